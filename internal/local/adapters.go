package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/model/bedrock"
	"github.com/countersign/countersign/internal/model/openai"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
)

// EnvOpenAIKey is the variable with the key of OpenAI itself. It goes to no other server.
const EnvOpenAIKey = "OPENAI_API_KEY"

// AWS is the configuration of a laptop's clients of AWS, loaded when the first of them is needed, and those clients.
// The zero AWS is ready and safe for concurrent use.
type AWS struct {
	once    sync.Once
	config  aws.Config
	err     error
	bedrock *bedrock.Client
	lambda  *tools.Functions
}

// Config returns the configuration that the AWS SDK finds where it always looks, within ten seconds.
func (a *AWS) Config() (aws.Config, error) {
	a.once.Do(func() {
		ctx, cancel := clock.System().WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if a.config, a.err = awssdk.Load(ctx); a.err == nil {
			a.bedrock, a.lambda = bedrock.NewClient(a.config), tools.NewFunctions(a.config)
		}
	})
	return a.config, a.err
}

// Invoke implements runtime.Functions with the functions of AWS Lambda.
func (a *AWS) Invoke(ctx context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	cfg, err := a.Config()
	switch {
	case err != nil:
		return runtime.Invoked{}, fmt.Errorf("invoke functions of AWS Lambda: %w", err)
	case cfg.Region == "":
		return runtime.Invoked{}, fmt.Errorf("%w: functions of AWS Lambda need a region: set AWS_REGION or AWS_PROFILE",
			runtime.ErrUndeliverable)
	}
	return a.lambda.Invoke(ctx, i)
}

// Adapter makes the adapter of a model, with the keys that the environment and the secrets of the store directory dir
// hold. onDelta gets replies while models write them; nil = nobody does.
func Adapter(
	m agent.ModelSpec, dir string, getenv func(string) string, from *AWS, onDelta agent.OnDelta,
) (runtime.Model, error) {
	switch m.Provider {
	case "script":
		data, err := os.ReadFile(m.File)
		if err != nil {
			return nil, fmt.Errorf("read script: %w", err)
		}
		s, err := script.Parse(m.File, data)
		if err != nil {
			return nil, err
		}
		model := script.New(s)
		model.OnDelta = onDelta
		return model, nil
	case "openai":
		return openai.Servers{OwnKey: ownKey(getenv), Secrets: Secrets(dir, getenv), OnDelta: onDelta}, nil
	case "bedrock":
		if _, err := from.Config(); err != nil {
			return nil, err
		}
		return bedrock.Model{Client: from.bedrock, OnDelta: onDelta}, nil
	case "demo":
		return DemoModel{}, nil
	default:
		return nil, fmt.Errorf("model provider %q: want bedrock, openai, script or demo", m.Provider)
	}
}

// Embedder is the runtime.Embedder of a laptop, with the keys and clients that Adapter takes.
type Embedder struct {
	Dir    string
	Getenv func(string) string
	From   *AWS
}

// Embed asks the adapter that an agent names for vectors.
func (e Embedder) Embed(ctx context.Context, tenant string, by agent.Embeddings, texts []string) ([][]float32, error) {
	if by.Provider == agent.EmbeddingsOpenAI {
		s := openai.Servers{OwnKey: ownKey(e.Getenv), Secrets: Secrets(e.Dir, e.Getenv)}
		return s.Embed(ctx, tenant, by, texts)
	}
	if _, err := e.From.Config(); err != nil {
		return nil, err
	}
	return bedrock.Model{Client: e.From.bedrock}.Embed(ctx, tenant, by, texts)
}

// ownKey reads OpenAI's key from the environment.
func ownKey(getenv func(string) string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return getenv(EnvOpenAIKey), nil }
}

// Secrets returns the secrets of the store directory dir and of the environment.
func Secrets(dir string, getenv func(string) string) tool.LocalSecrets {
	return tool.LocalSecrets{File: filepath.Join(dir, tool.SecretsFile), Getenv: getenv}
}

// Remotes carry out the calls of tools that are HTTP requests, tools of MCP servers or functions of AWS Lambda, with
// the secrets of the store directory dir. MCP servers that are programs are started, and those that listen on the
// machine itself may be reached.
func Remotes(
	dir string, getenv func(string) string, clk clock.Clock, functions runtime.Functions,
) (runtime.Remotes, error) {
	all, err := lambdafn.Reach{
		Secrets: Secrets(dir, getenv), Private: getenv(tool.EnvPrivateHosts), Clock: clk, Laptop: true,
		Start: Programs{Path: getenv("PATH"), Home: getenv("HOME")}.Start,
	}.Remotes()
	if err != nil {
		return nil, err
	}
	all[agent.KindLambda] = tools.Lambda{Functions: functions}
	return all, nil
}
