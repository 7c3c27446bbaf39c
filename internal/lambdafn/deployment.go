package lambdafn

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// Deployment is what one process does with runs and with requests to people. The functions and a laptop fill in the
// first fields and call Compose once; what only the HTTP API, the pages, Slack or the sweep use may be filled in until
// those are made. From then on it is safe for concurrent use and does not change.
type Deployment struct {
	Ports       runtime.Ports // with Valid
	Definitions runtime.Definitions
	// Shown is Definitions for what shows runs, cancels them or takes inputs for them: it also finds the definition of a
	// run that cannot go on here. Nil = Definitions.
	Shown runtime.Definitions
	// Agents finds an agent's current definition by name, for runs that start with an event.
	Agents func(name string) (*agent.Definition, bool)
	// Unfit says why an agent that is registered is not among Agents; "" = it is not registered. Nil = all of them are
	// there.
	Unfit func(name string) string
	// Family tells the runs around one that has failed; nil = the repair of executions that ended badly does.
	Family func(ctx context.Context, s *run.AgentState) error
	// CleansUp says that the code which agents name is in this process, for runs that are cancelled.
	CleansUp bool
	// CheckLinked refuses decisions that this process could not carry out; nil = it can carry out all of them.
	CheckLinked func(ctx context.Context, a approval.Approval) error
	// Invoked is told that a function begins, and what it returns, how it ended: for what has to be written out before
	// the process is frozen. Nil = nobody is.
	Invoked func(ctx context.Context, function string) (context.Context, func(error))

	People       people.Directory              // nil = nobody is known
	PeopleAdmins string                        // the group whose members may change them by the API; "" = nobody may
	Ring         func() (*secrets.Ring, error) // verifies callbacks; nil = there are none
	Links        *approval.Links               // nil = the pages are behind no link: a console serves them
	SignIn       *web.OIDC                     // signs people in for the console and for pages; nil = nobody can sign in
	// Slack gives Secrets and Hooks of the app whose clicks are taken, for each click anew; nil = none is taken.
	Slack func(ctx context.Context) (*people.SlackInteractions, error)
	// Live keeps replies while models write them, for streams of their runs; nil = nothing does.
	Live store.Table
	// MaxRunning is how many running runs a tenant may have when another one is started; 0 = any number.
	MaxRunning int
	Retention  runtime.Retention // how long the sweep keeps runs after their end
	Trace      *observe.Tracer   // nil = runs are not traced
	Log        *slog.Logger      // nil = nothing is logged; Sweep needs one

	Starter   *runtime.Starter
	Waits     *runtime.Waits
	Inputs    *runtime.Inputs
	Canceller *runtime.Canceller
	Desk      *approval.Desk // where every decision is taken
}

// Compose makes the use cases over the ports, and returns d.
func (d *Deployment) Compose() *Deployment {
	p := d.Ports
	if d.Shown == nil {
		d.Shown = d.Definitions
	}
	d.Starter, d.Waits = &runtime.Starter{Ports: p, MaxRunning: d.MaxRunning}, &runtime.Waits{Ports: p}
	d.Inputs = &runtime.Inputs{Ports: p, Definitions: d.Shown}
	d.Canceller = &runtime.Canceller{Ports: p, Definitions: d.Shown, CleansUp: d.CleansUp}
	d.Desk = &approval.Desk{
		Table: p.Table, Journal: p.Journal, Clock: p.Clock, Definitions: d.Definitions, ValidateArgs: p.Valid,
		ResumeRun: d.Waits.Wake, Log: d.Log,
		OnDecided: d.Trace.Decided(p.Journal), CheckLinked: d.CheckLinked,
	}
	if n, ok := p.Notify.(interface { // among what tells people that they are asked
		NotifyChange(ctx context.Context, a approval.Approval)
	}); ok {
		d.Desk.OnChange = n.NotifyChange
	}
	return d
}

// Backend returns the deployment in the form that the HTTP API serves. The caller adds what depends on who calls.
func (d *Deployment) Backend() web.Backend {
	p := d.Ports
	return web.Backend{
		Starter: d.Starter, Inputs: d.Inputs, Canceller: d.Canceller, Desk: d.Desk,
		Deleter: &runtime.Deleter{Ports: p},
		Journal: p.Journal, Table: p.Table, Clock: p.Clock, Definitions: d.Shown, Uploads: p.Uploads, Log: d.Log,
		Callbacks: d.Ring,
	}
}

// deployedBackend returns the backend for callers whom the gateway has verified and who are not removed.
func (d *Deployment) deployedBackend(agents web.Agents, who Identity) web.Backend {
	b := d.Backend()
	b.PeopleAdmins = d.PeopleAdmins
	b.Agents, b.Feed = agents, web.NewPoll(d.Ports.Journal, d.Live, d.Ports.Clock)
	b.Caller = func(r *http.Request) (web.Caller, error) {
		c, err := who.Caller(r)
		if err == nil {
			err = d.Admit(r.Context(), c)
		}
		var refused *web.Problem
		if err != nil && !errors.As(err, &refused) {
			if d.Log != nil {
				d.Log.Error("the people could not be read", "tenant", c.Tenant, "error", err)
			}
			err = web.NewProblem(web.Unavailable, "the people could not be read")
		}
		return c, err
	}
	return b
}

// Admit refuses whoever was taken out of the directory of people, whatever token or session they still have. Its error
// is a *web.Problem, except where the directory cannot be read.
func (d *Deployment) Admit(ctx context.Context, who web.Caller) error {
	if d.People == nil {
		return nil
	}
	removed, err := d.People.Removed(ctx, who.Tenant, who.Principal.ID)
	if err == nil && removed {
		return web.NewProblem(web.NotAllowed, who.Principal.ID+" was removed from the people of this deployment")
	}
	return err
}
