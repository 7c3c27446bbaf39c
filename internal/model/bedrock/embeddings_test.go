package bedrock

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

// embedding is a model against a loopback server, and the bodies that it was sent.
func embedding(t *testing.T, model string, answer func(n int, body string) (status int, reply string)) (Model, *[]string) {
	t.Helper()
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.EscapedPath() != "/model/"+strings.ReplaceAll(model, ":", "%3A")+"/invoke" || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ") {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		sent = append(sent, string(body))
		status, reply := answer(len(sent), string(body))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, reply)
	}))
	t.Cleanup(server.Close)
	cfg := aws.Config{Region: "eu-test-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: server.Client(), BaseEndpoint: &server.URL}
	return Model{Client: NewClient(cfg)}, &sent
}

func TestTitanTakesOneTextARequest(t *testing.T) {
	e, sent := embedding(t, "amazon.titan-embed-text-v2:0", func(n int, _ string) (int, string) {
		return 200, fmt.Sprintf(`{"embedding": [%d, 0.5], "inputTextTokenCount": 3}`, n)
	})
	got, err := e.Embed(t.Context(), "t", agent.Embeddings{ID: "amazon.titan-embed-text-v2:0"}, []string{"a: one", "b: two"})
	require.NoError(t, err)
	require.Equal(t, [][]float32{{1, 0.5}, {2, 0.5}}, got)
	require.Equal(t, []string{`{"inputText":"a: one"}`, `{"inputText":"b: two"}`}, *sent)
}

func TestCohereTakesManyTexts(t *testing.T) {
	for name, form := range map[string]string{"v4": `{"embeddings": {"float": [%s]}}`, "v3": `{"embeddings": [%s], "response_type": "embeddings_floats"}`} {
		t.Run(name, func(t *testing.T) {
			e, sent := embedding(t, "eu.cohere.embed-v4:0", func(_ int, body string) (int, string) {
				var asked struct {
					Texts []string `json:"texts"`
				}
				require.NoError(t, json.Unmarshal([]byte(body), &asked))
				return 200, fmt.Sprintf(form, strings.TrimSuffix(strings.Repeat("[1, 2],", len(asked.Texts)), ","))
			})
			got, err := e.Embed(t.Context(), "t", agent.Embeddings{ID: "eu.cohere.embed-v4:0"}, make([]string, maxCohereTexts+1))
			require.NoError(t, err)
			require.Len(t, got, maxCohereTexts+1)
			require.Equal(t, []float32{1, 2}, got[maxCohereTexts])
			require.Len(t, *sent, 2)
			require.Equal(t, `{"embedding_types":["float"],"input_type":"search_document","texts":[""]}`, (*sent)[1])
		})
	}
}

// What the service or the texts say is in no error.
func TestEmbedErrors(t *testing.T) {
	by := agent.Embeddings{ID: "cohere.embed-english-v3"}
	for name, c := range map[string]struct {
		status      int
		reply, want string
	}{
		"an error of the service": {429, `{"message": "canary"}`, "embedding model cohere.embed-english-v3: "},
		"no JSON":                 {200, `canary`, "the answer is not the JSON of vectors"},
		"no vectors":              {200, `{"embeddings": "canary"}`, "the answer is not the JSON of vectors"},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := embedding(t, by.ID, func(int, string) (int, string) { return c.status, c.reply })
			_, err := e.Embed(t.Context(), "t", by, []string{"secret text", "b"})
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "canary")
			require.NotContains(t, err.Error(), "secret")
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e, _ := embedding(t, by.ID, func(int, string) (int, string) { return 200, `{}` })
		_, err := e.Embed(ctx, "t", by, []string{"a"})
		require.ErrorIs(t, err, context.Canceled)
	})
}
