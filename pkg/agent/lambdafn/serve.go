package lambdafn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambda/messages"

	"github.com/countersign/countersign/pkg/agent/edge"
	"github.com/countersign/countersign/pkg/agent/registry"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// Step is the main of functions/step, the one that asks models: it serves until the process is ended.
func Step(r *registry.Registry, models Models) { serve(r, (*Handlers).Step, models) }

// Tool is the main of functions/tool. It needs the registry's code alone: runs bring their definitions.
func Tool(r *registry.Registry) { serve(r, (*Handlers).Tool, nil) }

// Approve is the main of functions/approve, which runs neither agents nor tools.
func Approve() { serve(nil, (*Handlers).Approve, nil) }

func serve(r *registry.Registry, f func(*Handlers, context.Context, []byte) ([]byte, error), model Models) {
	listen(func(getenv func(string) string) (Invoke, error) {
		h, err := coldStart(r, getenv, model)
		return func(ctx context.Context, payload []byte) ([]byte, error) { return f(h, ctx, payload) }, err
	})
}

// Invoke answers one event of a function.
type Invoke func(ctx context.Context, payload []byte) ([]byte, error)

// listen starts a function and serves its events. Bad configuration ends it before any event.
func listen(start func(getenv func(string) string) (Invoke, error)) {
	f, err := start(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cold start:", err)
		os.Exit(1)
	}
	lambda.Start(func(ctx context.Context, payload json.RawMessage) (json.RawMessage, error) {
		out, err := f(ctx, payload)
		return out, named(err)
	})
}

// coldStart wires a function from its environment and, where it runs agents or tools, their registry. Bad configuration ends it here, before any event.
func coldStart(r *registry.Registry, getenv func(string) string, model Models) (*Handlers, error) {
	watch, err := observe(getenv, os.Stdout, os.Stderr)
	if err != nil {
		return nil, err
	}
	ports, err := connect(getenv, watch.Models(model))
	if err != nil {
		return nil, err
	}
	h := &Handlers{Definitions: runtime.PinnedDefinitions(ports.Blobs), Invoked: watch.Invoked}
	if r != nil {
		ports.Tools, h.Agents = r.Tools(), r.Agent
	}
	h.Ports = watch.Ports(ports)
	return h, nil
}

// named gives an error the name that the state machine's Retry and Catch look for. The Lambda runtime would report the
// outermost Go type instead.
func named(err error) error {
	var known *edge.Error
	if !errors.As(err, &known) {
		return err
	}
	return messages.InvokeResponse_Error{Type: known.ErrorType(), Message: err.Error()}
}
