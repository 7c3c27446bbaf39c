package lambdafn

import (
	"log/slog"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/observe/tracing"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
)

// Deployment is what one process does with runs and with requests to people. The functions and a laptop fill in the first
// fields and call Compose once; the HTTP API, the pages, Slack and the state machine's functions use what it made.
// After Compose it is safe for concurrent use and does not change.
type Deployment struct {
	Ports       runtime.Ports // with Valid
	Definitions runtime.Definitions
	People      person.Directory    // nil = nobody is known
	Links       *link.Links         // nil = the pages are behind no link: a console serves them
	Log         *slog.Logger        // nil = nothing is logged
	Getenv      func(string) string // for what else the environment turns on; nil = nothing

	Starter   *runtime.Starter
	Waits     *runtime.Waits
	Inputs    *runtime.Inputs
	Canceller *runtime.Canceller
	Servers   *approval.ServerPins
	Desk      *approval.Desk // where every decision is taken
	Decides   api.Desk       // Desk, with an audit of what people do
	Recorder  audit.Recorder // keeps what people look at
}

// Compose makes the use cases over the ports. trace records decisions; nil = nothing does.
func (d *Deployment) Compose(trace *tracing.Tracer) {
	p := d.Ports
	d.Starter, d.Waits = &runtime.Starter{Ports: p}, &runtime.Waits{Ports: p}
	d.Inputs = &runtime.Inputs{Ports: p, Waits: d.Waits, Definitions: d.Definitions}
	d.Canceller = &runtime.Canceller{Ports: p, Definitions: d.Definitions}
	d.Servers = &approval.ServerPins{Table: p.Table, Blobs: p.Blobs, Clock: p.Clock}
	d.Desk = &approval.Desk{
		Table: p.Table, Journal: p.Journal, Clock: p.Clock, Definitions: d.Definitions, Valid: p.Valid, Wake: d.Waits.Wake,
		Decided: trace.Decided(p.Journal),
	}
	if tells, ok := p.Notify.(notifies); ok {
		d.Desk.Noted, d.Desk.Woken, d.Desk.Said = tells.Noted, tells.Decided, tells.Thread
	}
	a := auditor(p)
	d.Recorder = a.Log
	d.Decides = &audit.Desk{Next: d.Desk, Recorder: a.Log, Run: a.Run, Clock: p.Clock, Warn: p.Warn}
}

// Backend is the deployment as the HTTP API serves it. What depends on who calls is left to be filled in.
func (d *Deployment) Backend() api.Backend {
	p := d.Ports
	return api.Backend{
		Starter: d.Starter, Inputs: d.Inputs, Canceller: d.Canceller, Desk: d.Decides, Servers: d.Servers, People: d.People,
		Journal: p.Journal, Table: p.Table, Clock: p.Clock, Definitions: d.Definitions, Uploads: p.Uploads, Log: d.Log,
	}
}
