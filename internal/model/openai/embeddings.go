package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/countersign/countersign/internal/agent"
)

// maxTexts is how many texts a request for vectors has. OpenAI takes more; common servers take 32.
const maxTexts = 32

// Embed makes vectors of texts with the server's /embeddings, with the key of the tenant. It implements
// runtime.Embedder and makes no retries. Errors quote neither texts nor keys.
func (s Servers) Embed(ctx context.Context, tenant string, by agent.Embeddings, texts []string) ([][]float32, error) {
	model := agent.ModelSpec{ID: by.ID, BaseURL: by.BaseURL, Key: by.Key}
	key, err := s.key(ctx, agent.Request{Tenant: tenant, Model: model})
	if err != nil {
		return nil, err
	}
	m, err := newServer(by.BaseURL, key, nil)
	if err != nil {
		return nil, err
	}
	var vectors [][]float32
	for part := range slices.Chunk(texts, maxTexts) {
		got, err := m.embed(ctx, by.ID, part)
		if err != nil {
			return nil, fmt.Errorf("embedding model %s: %w", by.ID, m.redacted(err))
		}
		vectors = append(vectors, got...)
	}
	return vectors, nil
}

func (m *server) embed(ctx context.Context, model string, texts []string) ([][]float32, error) {
	body, err := marshal(map[string]any{"model": model, "input": texts, "encoding_format": "float"})
	if err != nil {
		return nil, err
	}
	req, err := m.post(ctx, "/embeddings", body)
	if err != nil {
		return nil, err
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, ioFailure(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		_, err := parseRefusal(ctx, agent.Request{}, resp)
		return nil, err
	}
	var got struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, MaxResponse)).Decode(&got); err != nil {
		if ctx.Err() != nil {
			return nil, ioFailure(ctx, err)
		}
		return nil, modelError(agent.ModelInvalid, "the answer is not the JSON of vectors")
	}
	vectors := make([][]float32, len(texts))
	for i, d := range got.Data {
		at := d.Index
		if at < 0 || at >= len(texts) || vectors[at] != nil || d.Embedding == nil {
			problem := fmt.Sprintf("the answer's vector %d has no place of its own among %d", i, len(texts))
			return nil, modelError(agent.ModelInvalid, problem)
		}
		vectors[at] = d.Embedding
	}
	return vectors, nil
}
