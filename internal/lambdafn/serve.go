package lambdafn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambda/messages"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/aws/awsconfig"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tools/schema"
)

// Step is the main of functions/step, which asks models. It serves until the process is ended.
func Step(r *registry.Registry) { serve(r, (*Handlers).Step) }

// Tool is the main of functions/tool, which runs tools. It serves until the process is ended.
func Tool(r *registry.Registry) { serve(r, (*Handlers).Tool) }

// Approve is the main of functions/approve, which keeps task tokens and tells people of requests. It serves until the process is ended.
func Approve(r *registry.Registry) { serve(r, (*Handlers).Approve) }

func serve(r *registry.Registry, f func(*Handlers, context.Context, []byte) ([]byte, error)) {
	listen(func(cfg aws.Config, getenv func(string) string) (Invoke, error) {
		h, err := coldStart(r, cfg, getenv)
		return func(ctx context.Context, payload []byte) ([]byte, error) { return f(h, ctx, payload) }, err
	})
}

// Invoke answers one event of a function.
type Invoke func(ctx context.Context, payload []byte) ([]byte, error)

// listen starts a function with the configuration of its AWS clients and its environment, and serves its events. Bad configuration ends it
// before any event.
func listen(start func(cfg aws.Config, getenv func(string) string) (Invoke, error)) {
	cfg, err := awsconfig.Load(context.Background())
	var f Invoke
	if err == nil {
		f, err = start(cfg, os.Getenv)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cold start:", err)
		os.Exit(1)
	}
	lambda.Start(func(ctx context.Context, payload json.RawMessage) (json.RawMessage, error) {
		out, err := f(ctx, payload)
		return out, named(err)
	})
}

// coldStart wires the functions of the state machine from their agents, tools and environment. Bad configuration ends it here, before
// any event.
func coldStart(r *registry.Registry, cfg aws.Config, getenv func(string) string) (*Handlers, error) {
	watch, err := observe(getenv, os.Stdout, os.Stderr)
	if err != nil {
		return nil, err
	}
	ports, err := connect(cfg, getenv)
	if err != nil {
		return nil, err
	}
	addModels(&ports, cfg, getenv, watch)
	if err := addRemotes(&ports, cfg, getenv, watch); err != nil {
		return nil, err
	}
	telling(cfg, getenv, watch, &ports)
	able := fit(r, watch.Log)
	ports.Agents, ports.Tools, ports.Valid = able.Agent, r.Tools(), r.Tools().Valid
	ports.Schema, ports.Hooks = schema.Fits, r.Hooks()
	return &Handlers{
		Ports: watch.Ports(ports), Definitions: runtime.Tightened(runtime.PinnedDefinitions(ports.Blobs), able.Agent),
		Agents: able.Agent, Unfit: able.Unfit, Invoked: watch.Invoked,
	}, nil
}

// named gives an error the name that the state machine's Retry and Catch look for. The Lambda runtime would report the
// outermost Go type instead.
func named(err error) error {
	var known *Error
	if !errors.As(err, &known) {
		return err
	}
	return messages.InvokeResponse_Error{Type: known.ErrorType(), Message: err.Error()}
}
