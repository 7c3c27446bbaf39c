package bedrock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"
)

// embedding is an embedder against a loopback server, and the bodies that it was sent.
func embedding(t *testing.T, model string, answer func(n int, body string) (status int, reply string)) (*Embedder, *[]string) {
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
	cfg := aws.Config{Region: "eu-test-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: server.Client()}
	return NewEmbedder(NewClient(cfg, server.URL), model), &sent
}

func TestTitanTakesOneTextARequest(t *testing.T) {
	e, sent := embedding(t, "amazon.titan-embed-text-v2:0", func(n int, _ string) (int, string) {
		return 200, fmt.Sprintf(`{"embedding": [%d, 0.5], "inputTextTokenCount": 3}`, n)
	})
	got, err := e.Embed(t.Context(), []string{"a: one", "b: two"})
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
			got, err := e.Embed(t.Context(), make([]string, maxCohereTexts+1))
			require.NoError(t, err)
			require.Len(t, got, maxCohereTexts+1)
			require.Equal(t, []float32{1, 2}, got[maxCohereTexts])
			require.Len(t, *sent, 2)
			require.Equal(t, `{"texts":[""],"input_type":"search_document","embedding_types":["float"]}`, (*sent)[1])
		})
	}
}

func TestEmbedErrors(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		status int
		reply  string
		kind   EmbedErrorKind
		text   string
	}{
		"an error of the service": {"amazon.titan-embed-text-v2:0", 429, `{"message": "canary"}`, EmbedHTTP, "http, status 429"},
		"no vector":               {"amazon.titan-embed-text-v2:0", 200, `{}`, EmbedEmpty, "empty_response"},
		"no JSON":                 {"amazon.titan-embed-text-v2:0", 200, `canary`, EmbedEmpty, "empty_response"},
		"no vectors":              {"cohere.embed-english-v3", 200, `{"embeddings": []}`, EmbedEmpty, "empty_response"},
		"an empty vector":         {"cohere.embed-english-v3", 200, `{"embeddings": [[1], []]}`, EmbedEmpty, "empty_response"},
		"too few":                 {"cohere.embed-english-v3", 200, `{"embeddings": [[1]]}`, EmbedDimensions, "dimension_mismatch"},
		"of several lengths":      {"cohere.embed-english-v3", 200, `{"embeddings": [[1], [1, 2]]}`, EmbedDimensions, "dimension_mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := embedding(t, c.model, func(int, string) (int, string) { return c.status, c.reply })
			_, err := e.Embed(t.Context(), []string{"secret text", "b"})
			var failed *EmbedError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, c.kind, failed.Kind)
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "canary")
			require.NotContains(t, err.Error(), "secret")
		})
	}
	t.Run("nobody answers", func(t *testing.T) {
		cfg := aws.Config{Region: "eu-test-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")}
		_, err := NewEmbedder(NewClient(cfg, "http://127.0.0.1:1"), "m").Embed(t.Context(), []string{"a"})
		var failed *EmbedError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, EmbedRequest, failed.Kind)
	})
	t.Run("nobody may ask", func(t *testing.T) {
		none := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("canary")
		})
		_, err := NewEmbedder(NewClient(aws.Config{Region: "eu-test-1", Credentials: none}, ""), "m").Embed(t.Context(), []string{"a"})
		require.ErrorContains(t, err, "embedding model m: request_failed: ")
		require.ErrorContains(t, err, "no credentials, region or endpoint")
		require.NotContains(t, err.Error(), "canary")
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e, _ := embedding(t, "m", func(int, string) (int, string) { return 200, `{}` })
		_, err := e.Embed(ctx, []string{"a"})
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("nothing to embed", func(t *testing.T) {
		e, sent := embedding(t, "m", func(int, string) (int, string) { return 200, `{}` })
		got, err := e.Embed(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, got)
		require.Empty(t, *sent)
	})
}
