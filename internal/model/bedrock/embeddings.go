package bedrock

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"

	"github.com/countersign/countersign/internal/agent"
)

// maxCohereTexts is how many texts a request to Cohere's models takes.
const maxCohereTexts = 96

// Embed implements runtime.Embedder for Cohere's models, which take many texts a request, and those that take Titan's
// form, one text a request. It asks the model by.ID, which may be an inference profile's id or an ARN, and makes no
// retries. Errors quote neither texts nor what the service wrote.
func (m Model) Embed(ctx context.Context, _ string, by agent.Embeddings, texts []string) ([][]float32, error) {
	cohere, size := strings.Contains(by.ID, "cohere."), 1
	if cohere {
		size = maxCohereTexts
	}
	var vectors [][]float32
	for part := range slices.Chunk(texts, size) {
		body := map[string]any{"inputText": part[0]}
		if cohere {
			body = map[string]any{"texts": part, "input_type": "search_document", "embedding_types": []string{"float"}}
		}
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("write the request of embedding model %s: %w", by.ID, err)
		}
		reply, err := m.Client.invokeModel(ctx, &bedrockruntime.InvokeModelInput{
			ModelId: &by.ID, Body: raw, ContentType: aws.String("application/json"), Accept: aws.String("application/json"),
		})
		if err != nil {
			return nil, fmt.Errorf("embedding model %s: %w", by.ID, callFailure(ctx, err))
		}
		var got struct {
			Embedding  []float32 `json:"embedding"` // Titan's
			Embeddings vectorsOf `json:"embeddings"`
		}
		if json.Unmarshal(reply.Body, &got) != nil {
			return nil, fmt.Errorf("embedding model %s: the answer is not the JSON of vectors", by.ID)
		}
		if cohere {
			vectors = append(vectors, got.Embeddings...)
		} else {
			vectors = append(vectors, got.Embedding)
		}
	}
	return vectors, nil
}

// vectorsOf are Cohere's vectors: a list of them, or, from models that know several forms, {"float": list}.
type vectorsOf [][]float32

// UnmarshalJSON reads both forms.
func (v *vectorsOf) UnmarshalJSON(raw []byte) error {
	var forms struct{ Float [][]float32 }
	if json.Unmarshal(raw, &forms) == nil {
		*v = forms.Float
		return nil
	}
	return json.Unmarshal(raw, (*[][]float32)(v))
}
