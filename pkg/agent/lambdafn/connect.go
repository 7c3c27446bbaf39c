package lambdafn

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sfn"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/bedrock"
	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/dynamo"
	"github.com/countersign/countersign/pkg/agent/ids"
	"github.com/countersign/countersign/pkg/agent/modelretry"
	"github.com/countersign/countersign/pkg/agent/openai"
	"github.com/countersign/countersign/pkg/agent/registry"
	"github.com/countersign/countersign/pkg/agent/runtime"
	"github.com/countersign/countersign/pkg/agent/s3"
	waiter "github.com/countersign/countersign/pkg/agent/sfn"
	"github.com/countersign/countersign/pkg/agent/store"
)

// The environment of a deployed function, beside what the SDK reads itself.
const (
	envTable   = "COUNTERSIGN_TABLE"
	envBucket  = "COUNTERSIGN_BUCKET"
	envMachine = "COUNTERSIGN_STATE_MACHINE"
	envKey     = "OPENAI_API_KEY" // for agents whose model is openai; empty where the server wants none
)

// warmRuns is how many runs' folded states one function environment keeps.
const warmRuns = 64

// coldStartWithin bounds the SDK's own configuration.
const coldStartWithin = 5 * time.Second

// modelFactory makes the model port of a function that asks models. A function that asks none passes nil, and its binary links no
// model's adapter.
type modelFactory func(cfg aws.Config, getenv func(string) string) runtime.Model

// connect wires the ports of a deployment from its environment. A variable that is missing is an error that names it.
func connect(ctx context.Context, r *registry.Registry, getenv func(string) string, model modelFactory) (runtime.Ports, error) {
	for _, name := range []string{envTable, envBucket, envMachine} {
		if getenv(name) == "" {
			return runtime.Ports{}, fmt.Errorf("%s: want a value, got none", name)
		}
	}
	clk := clock.System()
	ctx, cancel := clk.WithTimeout(ctx, coldStartWithin)
	defer cancel()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return runtime.Ports{}, fmt.Errorf("configure the AWS SDK: %w", err)
	}
	w, err := waiter.New(sfn.NewFromConfig(cfg), getenv(envMachine))
	if err != nil {
		return runtime.Ports{}, fmt.Errorf("%s: %w", envMachine, err)
	}
	draw := ids.System(clk)
	table := store.Resend(dynamo.New(dynamo.NewClient(cfg, ""), getenv(envTable), dynamo.Options{Token: draw.Key}), clk, draw.Jitter)
	p := runtime.Ports{
		Table: table, Journal: store.NewJournal(table, warmRuns), Blobs: s3.New(s3.NewClient(cfg, ""), getenv(envBucket)),
		Tools: r.Tools(), Waiter: w, Clock: clk, IDs: draw,
	}
	if model != nil {
		p.Model = modelretry.New(model(cfg, getenv), clk, draw.Jitter)
	}
	return p, nil
}

// askDeployed is the modelFactory of functions/step.
func askDeployed(cfg aws.Config, getenv func(string) string) runtime.Model {
	return deployedModel{cfg, getenv(envKey)}
}

// deployedModel asks the model that the run's own definition names.
type deployedModel struct {
	cfg       aws.Config
	openaiKey string
}

// Generate makes the adapter the request needs. Making one opens no connection.
func (m deployedModel) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	switch r.Model.Provider {
	case "bedrock":
		return bedrock.New(bedrock.Config{Client: bedrock.NewClient(m.cfg, ""), Stream: true}).Generate(ctx, r)
	case "openai":
		o, err := openai.New(openai.Config{BaseURL: r.Model.BaseURL, Key: m.openaiKey})
		if err != nil {
			return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Message: err.Error(), Cause: err}
		}
		defer o.Close()
		return o.Generate(ctx, r)
	default:
		return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID,
			Message: "provider " + r.Model.Provider + " does not work in a deployed function; want bedrock or openai"}
	}
}
