package lambdafn

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/observe/tracing"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
	"github.com/countersign/countersign/internal/web/gateway"
)

// Behind is what stands behind the pages of functions/web.
type Behind struct {
	Ports       runtime.Ports
	Desk        *approval.Desk // for what it knows; decisions go through Decides
	Decides     api.Desk       // Desk, and what keeps an audit of it
	Recorder    audit.Recorder // of what is looked at; nil = nobody keeps it
	Definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)
	Links       *link.Links
	People      person.Directory
	Log         *slog.Logger        // nil = nothing is logged
	Getenv      func(string) string // for what else the environment turns on
}

// Front makes what functions/web serves. Package front has one; it is handed in by the main, so that the other functions link none of it.
type Front func(b Behind) (http.Handler, error)

// Web is the main of functions/web: the pages that people decide on, and whatever else says by itself who asks. It serves until the process is ended.
// Agents are the definitions of now, whose policy holds beside a run's own. Valid checks the arguments that people edit; schema.Validate does.
func Web(agents api.Agents, valid agent.Validator, front Front) {
	listen(func(getenv func(string) string) (Invoke, error) { return startWeb(agents, valid, front, getenv) })
}

func startWeb(agents api.Agents, valid agent.Validator, front Front, getenv func(string) string) (Invoke, error) {
	watch, err := observe(getenv, os.Stdout, os.Stderr)
	if err != nil {
		return nil, err
	}
	ports, err := connect(getenv, nil, nil)
	if err != nil {
		return nil, err
	}
	ports.Valid = valid
	telling(getenv, watch, &ports)
	links, err := Links(ports, getenv)
	switch {
	case err != nil:
		return nil, err
	case links == nil:
		return nil, fmt.Errorf("%s: want a ring of keys, or %s, got neither", envKeyRing, envLinkKMS)
	}
	people, err := readDirectory(getenv)
	if err != nil {
		return nil, err
	}
	b := NewBehind(watch.Ports(ports), agents, watch.Trace)
	b.Links, b.People, b.Log, b.Getenv = links, people, newLog(), getenv
	b.Desk.Duties = person.Duties{Table: ports.Table, Directory: people}.ActsFor
	serve, err := NewWeb(b, front)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		defer watch.flush(ctx)
		return serve(ctx, payload)
	}, nil
}

// NewBehind is a desk over ports, which need no model and no tool. Without Valid it panics. Trace nil = decisions are not traced.
func NewBehind(p runtime.Ports, agents api.Agents, trace *tracing.Tracer) Behind {
	if p.Valid == nil {
		panic("lambdafn.NewBehind: want a port that checks arguments, got none")
	}
	definitions := runtime.Tightened(runtime.PinnedDefinitions(p.Blobs), agents.Agent)
	waits := &runtime.Waits{Ports: p}
	desk := &approval.Desk{
		Table: p.Table, Journal: p.Journal, Clock: p.Clock, Definitions: definitions, Valid: p.Valid, Wake: waits.Wake, Decided: trace.Decided(p.Journal),
		Noted: noted(p.Notify), Woken: decided(p.Notify), Said: said(p.Notify),
	}
	return Behind{Ports: p, Definitions: definitions, Desk: desk, Decides: audited(p, desk), Recorder: auditor(p).Log}
}

// NewWeb serves the pages to the events of a gateway.
func NewWeb(b Behind, front Front) (Invoke, error) {
	h, err := front(b)
	if err != nil {
		return nil, err
	}
	serve := (&gateway.Gateway{Handler: h, Log: b.Log}).Serve
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		ctx, cancel := inTime(ctx, b.Ports.Clock)
		defer cancel()
		return serve(ctx, payload)
	}, nil
}
