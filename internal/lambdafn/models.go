package lambdafn

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/model/bedrock"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/model/openai"
	"github.com/countersign/countersign/internal/runtime"
)

// envOpenAI is the key of OpenAI itself. It goes to no other server.
const envOpenAI = "OPENAI_API_KEY"

// addModels adds the ports that ask models. The observer sees every try of a request: it stands below the retries.
func addModels(f *function) error {
	p, all := &f.Ports, NewModels(f.cfg, f.getenv)
	m := runtime.WithDialect(runtime.WithMedia(f.watch.Model(all), p.Blobs))
	p.Model, p.Count, p.Index = modelretry.New(m, p.Clock, ids.System(p.Clock).Jitter), m, runtime.NewToolIndex(all)
	return nil
}

// Models asks the model that a run's own definition names: of Amazon Bedrock with the function's own role, or of an
// OpenAI-compatible server. Safe for concurrent use.
type Models struct {
	vectors bedrock.Embedder
	bedrock *bedrock.Model
	openai  openai.Servers
}

// NewModels opens no connection; all requests share those that they open.
func NewModels(cfg aws.Config, getenv func(string) string) Models {
	client := bedrock.NewClient(cfg, "")
	return Models{
		vectors: bedrock.Embedder{Client: client}, bedrock: bedrock.New(bedrock.Config{Client: client, Stream: true}),
		openai: openai.Servers{OwnKey: getenv(envOpenAI), Secrets: awssdk.DeployedSecrets(cfg, getenv, clock.System())},
	}
}

// CountTokens counts with the service where the model is Bedrock's. Servers that speak OpenAI's protocol do not count.
func (m Models) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	if r.Model.Provider != "bedrock" {
		return 0, &agent.ModelError{
			Class: agent.ModelInvalid, Model: r.Model.ID, Message: "its tokens cannot be counted", Lasting: true,
		}
	}
	return m.bedrock.CountTokens(ctx, r)
}

// Generate asks the adapter that the request names.
func (m Models) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	switch r.Model.Provider {
	case "bedrock":
		return m.bedrock.Generate(ctx, r)
	case "openai":
		return m.openai.Generate(ctx, r)
	default:
		return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID,
			Message: "provider " + r.Model.Provider + " does not work in a deployed function; want bedrock or openai"}
	}
}

// Embed asks the adapter that an agent names for vectors.
func (m Models) Embed(ctx context.Context, tenant string, by agent.Embeddings, texts []string) ([][]float32, error) {
	if by.Provider == agent.EmbeddingsOpenAI {
		return m.openai.Embed(ctx, tenant, by, texts)
	}
	return m.vectors.Embed(ctx, tenant, by, texts)
}
