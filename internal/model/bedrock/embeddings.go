package bedrock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Embedder makes vectors of texts with a model of Amazon Bedrock: Cohere's, by many texts a request, or one that takes Titan's form, by one.
// It makes no retries and holds no state. Safe for concurrent use.
type Embedder struct {
	client *bedrockruntime.Client
	model  string
}

// NewEmbedder makes an embedder that asks the model of an id, an inference profile's or an ARN too, with a client of NewClient.
func NewEmbedder(client *bedrockruntime.Client, model string) *Embedder {
	return &Embedder{client: client, model: model}
}

// EmbedError is why texts were not embedded. Its text quotes nothing of the request and nothing that the service wrote.
type EmbedError struct {
	Kind   EmbedErrorKind
	Model  string
	Status int // of EmbedHTTP
	cause  error
}

// EmbedErrorKind is what kind of failure it is.
type EmbedErrorKind string

// The kinds.
const (
	EmbedHTTP       EmbedErrorKind = "http"               // the service answered with an error
	EmbedRequest    EmbedErrorKind = "request_failed"     // there was no answer
	EmbedEmpty      EmbedErrorKind = "empty_response"     // an answer without vectors, or that cannot be read
	EmbedDimensions EmbedErrorKind = "dimension_mismatch" // vectors that differ in length, or too few or many
)

func (e *EmbedError) Error() string {
	text := fmt.Sprintf("embedding model %s: %s", e.Model, e.Kind)
	if e.Status != 0 {
		text += fmt.Sprintf(", status %d", e.Status)
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap gives the cause: what Model says of such a failure; nil where there is none.
func (e *EmbedError) Unwrap() error { return e.cause }

// maxCohereTexts is how many texts a request to Cohere's models takes.
const maxCohereTexts = 96

// Embed makes a vector of each text, all of one length. An error is *EmbedError, or a cancelled context's.
func (e *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	size := 1
	ask := e.titan
	if strings.Contains(e.model, "cohere.") {
		size, ask = maxCohereTexts, e.cohere
	}
	vectors := make([][]float32, 0, len(texts))
	for from := 0; from < len(texts); from += size {
		part := texts[from:min(from+size, len(texts))]
		got, err := ask(ctx, part)
		if err != nil {
			return nil, err
		}
		if len(got) != len(part) {
			return nil, e.failed(EmbedDimensions)
		}
		vectors = append(vectors, got...)
	}
	for _, v := range vectors {
		if len(v) == 0 {
			return nil, e.failed(EmbedEmpty)
		}
		if len(v) != len(vectors[0]) {
			return nil, e.failed(EmbedDimensions)
		}
	}
	return vectors, nil
}

func (e *Embedder) failed(kind EmbedErrorKind) error { return &EmbedError{Kind: kind, Model: e.model} }

func (e *Embedder) titan(ctx context.Context, texts []string) ([][]float32, error) {
	var out struct {
		Embedding []float32 `json:"embedding"`
	}
	err := e.invoke(ctx, struct {
		Text string `json:"inputText"`
	}{texts[0]}, &out)
	if err == nil && len(out.Embedding) == 0 {
		err = e.failed(EmbedEmpty)
	}
	return [][]float32{out.Embedding}, err
}

func (e *Embedder) cohere(ctx context.Context, texts []string) ([][]float32, error) {
	var out struct {
		Embeddings json.RawMessage `json:"embeddings"`
	}
	err := e.invoke(ctx, struct {
		Texts []string `json:"texts"`
		Type  string   `json:"input_type"`
		Forms []string `json:"embedding_types"`
	}{texts, "search_document", []string{"float"}}, &out)
	if err != nil {
		return nil, err
	}
	var byForm struct {
		Float [][]float32 `json:"float"`
	}
	if json.Unmarshal(out.Embeddings, &byForm) == nil && len(byForm.Float) > 0 {
		return byForm.Float, nil
	}
	var plain [][]float32 // as models do that know one form
	if json.Unmarshal(out.Embeddings, &plain) != nil || len(plain) == 0 {
		return nil, e.failed(EmbedEmpty)
	}
	return plain, nil
}

// invoke makes one request.
func (e *Embedder) invoke(ctx context.Context, body, out any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write the request of embedding model %s: %w", e.model, err)
	}
	reply, err := e.client.InvokeModel(ctx, &bedrockruntime.InvokeModelInput{
		ModelId: &e.model, Body: raw, ContentType: aws.String("application/json"), Accept: aws.String("application/json"),
	})
	var response *smithyhttp.ResponseError
	switch {
	case err == nil && json.Unmarshal(reply.Body, out) != nil:
		return e.failed(EmbedEmpty)
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("ask embedding model %s: %w", e.model, ctx.Err())
	case errors.As(err, &response) && response.HTTPStatusCode() >= http.StatusMultipleChoices:
		return &EmbedError{Kind: EmbedHTTP, Model: e.model, Status: response.HTTPStatusCode()}
	default: // the SDK's error is not kept: it quotes addresses
		return &EmbedError{Kind: EmbedRequest, Model: e.model, cause: callFailure(ctx, err)}
	}
}
