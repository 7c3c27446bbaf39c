package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

type oneSecret string

func (s oneSecret) Secret(context.Context, string, string) (string, error) { return string(s), nil }

// embeds asks a loopback server for the vectors of texts, with a key.
func embeds(t *testing.T, status int, answer string, texts ...string) (vectors [][]float32, asked []string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/embeddings" || r.Header.Get("Authorization") != "Bearer k-1" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		asked = append(asked, string(body))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	s := Servers{Secrets: oneSecret("k-1")}
	by := agent.Embeddings{Provider: agent.EmbeddingsOpenAI, ID: "m", BaseURL: server.URL + "/v1/", Key: "${secret:K}"}
	vectors, err = s.Embed(t.Context(), "t", by, texts)
	return vectors, asked, err
}

func TestEmbed(t *testing.T) {
	got, asked, err := embeds(t, 200, `{"data": [{"index": 1, "embedding": [2]}, {"index": 0, "embedding": [1]}]}`, "a", "b")
	require.NoError(t, err)
	require.Equal(t, [][]float32{{1}, {2}}, got, "in the order of the texts")
	require.Len(t, asked, 1)
	require.JSONEq(t, `{"model":"m","input":["a","b"],"encoding_format":"float"}`, asked[0])

	data := make([]string, maxTexts)
	for i := range data {
		data[i] = fmt.Sprintf(`{"index": %d, "embedding": [1]}`, i)
	}
	_, asked, err = embeds(t, 200, `{"data": [`+strings.Join(data, ",")+`]}`, make([]string, 2*maxTexts)...)
	require.NoError(t, err)
	require.Len(t, asked, 2)
	var second struct{ Input []string }
	require.NoError(t, json.Unmarshal([]byte(asked[1]), &second))
	require.Len(t, second.Input, maxTexts)
}

// What the server or the texts say is in no error, and neither is the key.
func TestEmbedErrors(t *testing.T) {
	for name, c := range map[string]struct {
		status       int
		answer, want string
	}{
		"refused":        {401, `{"error": {"message": "canary k-1", "code": "invalid_api_key"}}`, "embedding model m: "},
		"no JSON":        {200, `canary`, "not the JSON of vectors"},
		"another's":      {200, `{"data": [{"index": 9, "embedding": [1]}]}`, "no place of its own"},
		"twice the same": {200, `{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}`, "no place of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := embeds(t, c.status, c.answer, "secret text", "b")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "canary")
			require.NotContains(t, err.Error(), "secret")
			require.NotContains(t, err.Error(), "k-1")
		})
	}
}
