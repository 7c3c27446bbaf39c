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

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/aws/awsconfig"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/edge"
)

// Agents finds the current definitions of agents by name; *registry.Registry does. Safe for concurrent use.
type Agents interface {
	Agent(name string) (*agent.Definition, bool)
}

// Tools finds tools by their original name and checks arguments; *tool.Set does. Safe for concurrent use.
type Tools interface {
	runtime.ToolSource
	Valid(t agent.ToolSpec, args json.RawMessage) error
}

// parts are what a function's main hands in, so that each function links its own alone. Nil = it has no use for it.
type parts struct {
	agents Agents
	tools  Tools
	models Models
	schema runtime.Schemas
	hooks  hook.Set
	// remote adds what carries out calls somewhere else; nil = nothing does.
	remote func(cfg aws.Config, getenv func(string) string, watch *Observer, p *runtime.Ports) error
	// notify adds what tells people of requests; nil = nothing does.
	notify func(cfg aws.Config, getenv func(string) string, watch *Observer, p *runtime.Ports)
}

// Remotes makes what carries out the calls of tools that are somewhere else, from a function's environment. Package reach has one; it is
// handed in by the main, so that a function that runs no tools links none of it.
type Remotes func(cfg aws.Config, getenv func(string) string) (runtime.Remotes, error)

// Step is the main of functions/step, the one that asks models: it serves until the process is ended. It runs no tools, and knows agents
// by what was compiled of them. Schema checks outputs; schema.Fits does. Hooks is the code that agents name beside tools.
func Step(agents Agents, models Models, schema runtime.Schemas, hooks hook.Set) {
	serve(parts{agents: agents, models: models, schema: schema, hooks: hooks}, (*Handlers).Step)
}

// Tool is the main of functions/tool. Runs bring their own definitions; agents are those that they may ask. Remote carries out what no code
// of the deployment does.
func Tool(agents Agents, tools Tools, hooks hook.Set, remote Remotes) {
	serve(parts{agents: agents, tools: tools, hooks: hooks, remote: remote.add}, (*Handlers).Tool)
}

// Approve is the main of functions/approve, which runs neither agents nor tools, and tells people that they are asked.
func Approve() { serve(parts{notify: telling}, (*Handlers).Approve) }

func serve(with parts, f func(*Handlers, context.Context, []byte) ([]byte, error)) {
	listen(func(cfg aws.Config, getenv func(string) string) (Invoke, error) {
		h, err := coldStart(with, cfg, getenv)
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

// coldStart wires a function from its parts and its environment. Bad configuration ends it here, before any event.
func coldStart(with parts, cfg aws.Config, getenv func(string) string) (*Handlers, error) {
	watch, err := observe(getenv, os.Stdout, os.Stderr)
	if err != nil {
		return nil, err
	}
	ports, err := connect(cfg, getenv, with.models, watch.Models)
	if err != nil {
		return nil, err
	}
	h := &Handlers{Definitions: runtime.PinnedDefinitions(ports.Blobs), Invoked: watch.Invoked}
	if with.tools != nil {
		ports.Tools, ports.Valid = with.tools, with.tools.Valid
	}
	if with.remote != nil {
		if err := with.remote(cfg, getenv, watch, &ports); err != nil {
			return nil, err
		}
	}
	if with.notify != nil {
		with.notify(cfg, getenv, watch, &ports)
	}
	if err := with.checkHooks(); err != nil {
		return nil, err
	}
	if with.agents != nil {
		able := fit(with.agents, watch.Log)
		h.Agents, ports.Agents = able.Agent, able.Agent
		h.Definitions = runtime.Tightened(h.Definitions, able.Agent)
		if d, ok := able.(*deployable); ok {
			h.Unfit = d.Unfit
		}
	}
	ports.Schema, ports.Hooks = with.schema, with.hooks
	h.Ports = watch.Ports(ports)
	return h, nil
}

// checkHooks refuses agents that name code which this function does not have. Agents that cannot be listed are refused when they run.
func (p parts) checkHooks() error {
	all, ok := p.agents.(interface{ Agents() []string })
	if !ok {
		return nil
	}
	for _, name := range all.Agents() {
		if d, ok := p.agents.Agent(name); ok {
			if err := p.hooks.Check(d); err != nil {
				return fmt.Errorf("agent %s: %w", name, err)
			}
		}
	}
	return nil
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
