// Package deployed asks models from a deployed function: Amazon Bedrock with the function's own role, and OpenAI-compatible endpoints.
package deployed

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/model/bedrock"
	"github.com/countersign/countersign/internal/model/openai"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tools/secrets"
)

// envKey is the key of OpenAI itself. It goes to no other server.
const envKey = "OPENAI_API_KEY"

// Models makes the model port: a lambdafn.Models. It opens no connection, and all its requests share those that they open. Safe for
// concurrent use.
func Models(cfg aws.Config, getenv func(string) string) runtime.Model {
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = awshttp.NewBuildableClient()
	}
	return model{
		cfg: cfg, bedrock: bedrock.New(bedrock.Config{Client: bedrock.NewClient(cfg, ""), Stream: true}),
		openai: openai.Servers{OwnKey: getenv(envKey), Secrets: secrets.Deployed(cfg, getenv, clock.System())},
	}
}

// model asks the model that the run's own definition names.
type model struct {
	cfg     aws.Config
	bedrock *bedrock.Model
	openai  openai.Servers
}

// CountTokens counts with the service where the model is one of its own. Servers that speak OpenAI's protocol count for nobody.
func (m model) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	if r.Model.Provider != "bedrock" {
		return 0, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Message: "its tokens cannot be counted", Lasting: true}
	}
	return m.bedrock.CountTokens(ctx, r)
}

// Generate asks the adapter that the request needs.
func (m model) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
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
