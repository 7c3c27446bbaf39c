package bedrock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/countersign/countersign/internal/clock"
)

// Embedder makes vectors of texts with a model of Amazon Bedrock: Cohere's, by many texts a request, or one that takes Titan's form, by one.
// It makes no retries and holds no state. Safe for concurrent use.
//
// It sends its requests itself, with the SDK's signatures and transport: the SDK's operation for it is a fortieth of a function's bootstrap
// (ADR 15). Unlike Model it signs with the configuration's credentials alone.
type Embedder struct {
	http        aws.HTTPClient
	endpoint    string
	region      string
	credentials aws.CredentialsProvider
	clock       clock.Clock
	model       string
}

// NewEmbedder makes an embedder that asks the model of an id, an inference profile's or an ARN too. An endpoint that is not empty stands in
// for AWS, and so does one that cfg names. A configuration without a region or credentials makes every request fail.
func NewEmbedder(cfg aws.Config, endpoint, model string) *Embedder {
	e := &Embedder{http: cfg.HTTPClient, endpoint: endpoint, region: cfg.Region, credentials: cfg.Credentials, clock: clock.System(), model: model}
	if e.http == nil {
		e.http = awshttp.NewBuildableClient()
	}
	if e.endpoint == "" {
		e.endpoint = aws.ToString(cfg.BaseEndpoint)
	}
	if e.endpoint == "" {
		e.endpoint = "https://bedrock-runtime." + cfg.Region + ".amazonaws.com"
		if strings.HasPrefix(cfg.Region, "cn-") {
			e.endpoint += ".cn"
		}
	}
	return e
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

// maxEmbeddings is how many bytes of an answer are read: far more than the vectors of a request take.
const maxEmbeddings = 64 << 20

// invoke makes one request (InvokeModel).
func (e *Embedder) invoke(ctx context.Context, body, out any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write the request of embedding model %s: %w", e.model, err)
	}
	r, err := e.signed(ctx, raw)
	if err != nil {
		return e.unsent(ctx, err)
	}
	response, err := e.http.Do(r)
	if err != nil {
		return e.unsent(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return &EmbedError{Kind: EmbedHTTP, Model: e.model, Status: response.StatusCode}
	}
	reply, err := io.ReadAll(io.LimitReader(response.Body, maxEmbeddings))
	if err != nil {
		return e.unsent(ctx, err)
	}
	if json.Unmarshal(reply, out) != nil {
		return e.failed(EmbedEmpty)
	}
	return nil
}

// signed is the request with AWS Signature Version 4.
func (e *Embedder) signed(ctx context.Context, body []byte) (*http.Request, error) {
	if e.credentials == nil || e.region == "" {
		return nil, errUnconfigured
	}
	keys, err := e.credentials.Retrieve(ctx)
	if err != nil {
		return nil, errUnconfigured
	}
	id := strings.ReplaceAll(url.PathEscape(e.model), ":", "%3A")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(e.endpoint, "/")+"/model/"+id+"/invoke", bytes.NewReader(body))
	if err != nil {
		return nil, errUnconfigured
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, keys, r, hex.EncodeToString(sum[:]), "bedrock", e.region, e.clock.Now()); err != nil {
		return nil, errUnconfigured
	}
	return r, nil
}

var errUnconfigured = errors.New("no credentials, region or endpoint")

// unsent says why a request had no answer. The foreign error is not kept: it quotes addresses.
func (e *Embedder) unsent(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("ask embedding model %s: %w", e.model, ctx.Err())
	}
	failure := &EmbedError{Kind: EmbedRequest, Model: e.model, cause: errUnconfigured}
	if !errors.Is(err, errUnconfigured) {
		failure.cause = callFailure(ctx, err)
	}
	return failure
}
