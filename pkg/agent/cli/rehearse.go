package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/tool"
)

type rehearseCommand struct {
	Runs     []string `arg:"" optional:"" name:"run" id:"run" help:"These runs alone (default: all that are open)."`
	Agent    []string `placeholder:"AGENT" sep:"none" help:"An agent.yaml to deploy for that of its name. Repeatable."`
	Deployed bool     `help:"Read a deployment's table and bucket (COUNTERSIGN_TABLE, COUNTERSIGN_BUCKET)."`
	Tenant   string   `placeholder:"T" help:"Of a deployment: whose runs (default: default)."`
}

func (c *rehearseCommand) run(ctx context.Context, p *program) error {
	agents, err := c.loadAgents(p)
	if err != nil {
		return err
	}
	if c.Tenant != "" && !c.Deployed {
		return usageErrorf("--tenant: want it with --deployed: the store directory has one tenant")
	}
	table, blobs, done, err := c.openStore(p)
	if err != nil {
		return err
	}
	rep := rehearsalReport{Runs: []rehearsedRun{}}
	if table != nil {
		r := rehearsal{
			Table: table, Blobs: blobs, Tenant: cmp.Or(c.Tenant, local.Tenant), Tools: p.registry.Tools(),
			Hooks: p.registry.Hooks(), Agents: agents, Now: p.clock.Now(),
		}
		rep, err = r.All(ctx, c.Runs...)
		if err = errors.Join(err, done()); err != nil {
			return err
		}
	}
	for _, run := range rep.Runs {
		word := "ok"
		switch {
		case len(run.Breaks) > 0:
			word = "BREAKS"
		case len(run.Changes) > 0:
			word = "CHANGES"
		}
		name := cmp.Or(line(run.Agent), "an unknown agent")
		p.printText("%-8s run %s of %s, %s", word, run.ID, name, run.Status)
		for _, of := range []struct {
			name  string
			lines []string
		}{{"breaks", run.Breaks}, {"changes", run.Changes}, {"next", run.Next}} {
			for _, text := range of.lines {
				p.printText("  %-8s %s", of.name, line(text))
			}
		}
	}
	switch n := len(rep.Runs); {
	case n == 0:
		p.printText("nothing is open")
	case rep.Breaks == 0 && rep.Changes == 0:
		p.printText("%s: nothing would break, and nothing would be otherwise", counted(n, "open run"))
	default:
		p.printText("%s: %d would break, %d would go on otherwise", counted(n, "open run"), rep.Breaks, rep.Changes)
	}
	if err := p.printJSON(rep); err != nil {
		return err
	}
	if rep.Breaks > 0 {
		return exitCode(exitFailed)
	}
	return nil
}

// loadAgents returns the agents of the deployment: the registered ones, replaced by those of --agent.
func (c *rehearseCommand) loadAgents(p *program) (func(name string) (*agent.Definition, bool), error) {
	var given []agent.Definition
	names := map[string]bool{}
	for _, arg := range c.Agent {
		d, err := p.loadAgent(arg, agentOverrides{})
		if err != nil {
			return nil, err
		}
		if names[d.Name] {
			return nil, usageErrorf("--agent: two of them are named %s", d.Name)
		}
		given, names[d.Name] = append(given, *d), true
	}
	here, problems := p.loadLocalAgents()
	problems = slices.DeleteFunc(problems, func(err error) bool { // of files that those of --agent replace
		return !slices.ContainsFunc(agentFilesOf(err), func(file string) bool { return !names[agentNameOf(file)] })
	})
	known, err := here.With(given...)
	if err == nil {
		err = known.Check()
	}
	if err = errors.Join(append(problems, err)...); err != nil { // what it would do is not known
		return nil, usageErrorf("%w", err)
	}
	return known.Agent, nil
}

// openStore opens what the rehearsal reads; done closes it. table is nil if nothing has run yet.
func (c *rehearseCommand) openStore(p *program) (table store.Table, blobs store.Blobs, done func() error, err error) {
	if c.Deployed {
		t, b, err := p.openDeployed()
		return t, b, func() error { return nil }, err
	}
	if _, err := os.Stat(filepath.Join(p.home, "store.db")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, nil
	}
	t, err := local.OpenTable(p.home)
	if errors.Is(err, local.ErrInUse) {
		return nil, nil, nil, usageErrorf("rehearse: the store in %s is in use by another process: end it first", p.home)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	b, err := bolt.OpenFolder(filepath.Join(p.home, "blobs"))
	if err != nil {
		return nil, nil, nil, errors.Join(err, t.Close())
	}
	return t, b, t.Close, nil
}

// openDeployed opens the store of the deployment that the environment names.
func (p *program) openDeployed() (store.Table, store.Blobs, error) {
	cfg, err := p.aws.Config()
	if err != nil {
		return nil, nil, usageErrorf("--deployed: %v", err)
	}
	table, blobs, err := lambdafn.Stored(cfg, p.getenv)
	if err != nil {
		return nil, nil, usageErrorf("--deployed: %v", err)
	}
	return table, blobs, nil
}

// rehearsal is a deployment that is to come, and the store that it would find. It says what the deployment would do to
// the runs that are open: it reads the store, writes nothing, and answers three questions of each run: does this build
// read it, is the code that its definition names linked, and what would change. All fields are required.
//
// A run goes on under the definition it began with. Only what the new deployment says more strictly of its agent's
// policy reaches it (A17). So what would change is found by asking the gate twice about each open call: under the
// pinned definition, and with the policy of the new deployment beside it.
type rehearsal struct {
	Table  store.Table // nothing is written to it
	Blobs  store.Blobs // likewise
	Tenant string
	Tools  runtime.ToolSource // the code of the new build
	Hooks  hook.Set           // likewise
	Agents agent.Agents       // as they would be deployed
	Now    time.Time
}

// rehearsalReport is what a rehearsal found.
type rehearsalReport struct {
	Runs    []rehearsedRun `json:"runs"`    // waiting ones first, the oldest first
	Breaks  int            `json:"breaks"`  // runs that would break
	Changes int            `json:"changes"` // runs that would go on otherwise
}

// rehearsedRun is what would become of one open run.
type rehearsedRun struct {
	ID         string        `json:"id"`
	Agent      string        `json:"agent,omitempty"`
	Version    string        `json:"version,omitempty"`
	Definition string        `json:"definition,omitempty"` // digest of the one it is pinned to
	Status     run.RunStatus `json:"status"`
	// the agent's definition in the new deployment: same, changed, unknown
	Deployed string `json:"deployed,omitempty"`

	Next    []string `json:"next"`    // what comes next in the new deployment, of each open call
	Breaks  []string `json:"breaks"`  // what would go wrong; empty = nothing
	Changes []string `json:"changes"` // what would be otherwise; empty = nothing
}

// rehearsalPage is how many runs are listed at once.
const rehearsalPage = 200

// All rehearses every open run of the tenant, or these ones. One that is named and not open is store.ErrNoRun.
func (r *rehearsal) All(ctx context.Context, only ...string) (rehearsalReport, error) {
	rep := rehearsalReport{Runs: []rehearsedRun{}}
	for _, status := range []run.RunStatus{run.RunWaiting, run.RunRunning} {
		var open []store.Head
		for cursor := ""; ; {
			heads, next, err := r.journal().ListSince(ctx, r.Tenant, status, time.Time{}, rehearsalPage, cursor)
			if err != nil {
				return rep, err
			}
			open = append(open, heads...)
			if cursor = next; cursor == "" {
				break
			}
		}
		for _, h := range slices.Backward(open) {
			if len(only) > 0 && !slices.Contains(only, h.Run) {
				continue
			}
			run := rehearsedRun{ID: h.Run, Status: status, Next: []string{}, Breaks: []string{}, Changes: []string{}}
			r.rehearse(ctx, &run)
			if ctx.Err() != nil {
				return rep, ctx.Err()
			}
			rep.Runs = append(rep.Runs, run)
			if len(run.Breaks) > 0 {
				rep.Breaks++
			}
			if len(run.Changes) > 0 {
				rep.Changes++
			}
		}
	}
	for _, id := range only {
		if !slices.ContainsFunc(rep.Runs, func(run rehearsedRun) bool { return run.ID == id }) {
			return rehearsalReport{}, fmt.Errorf("run %s: %w among those that are open", agent.Bounded(id), store.ErrNoRun)
		}
	}
	return rep, nil
}

func (run *rehearsedRun) breaks(format string, args ...any) {
	run.Breaks = append(run.Breaks, fmt.Sprintf(format, args...))
}

func (run *rehearsedRun) changes(format string, args ...any) {
	run.Changes = append(run.Changes, fmt.Sprintf(format, args...))
}

func (r *rehearsal) journal() *store.Journal { return store.NewJournal(r.Table, 0) }

// rehearse answers the three questions of one run.
func (r *rehearsal) rehearse(ctx context.Context, one *rehearsedRun) {
	l, err := r.journal().Load(ctx, r.Tenant, one.ID)
	if err != nil {
		one.breaks("this build does not read it: %v", err)
		return
	}
	s := &l.State
	one.Agent, one.Version, one.Definition, one.Status = s.Agent, s.Version, s.Definition, s.Status
	var asked []string
	for _, req := range s.OpenRequests() {
		asked = append(asked, req.Approval)
	}
	for _, c := range s.Waits() {
		if c.Wait.Approval != "" && c.Wait.For != run.ForAnswer {
			asked = append(asked, c.Wait.Approval)
		}
	}
	for _, id := range asked {
		if _, err := approval.Get(ctx, r.Table, r.Tenant, id); err != nil {
			one.breaks("this build does not read a request to people: %v", err)
		}
	}
	def, err := runtime.PinnedDefinitions(r.Blobs)(ctx, r.Tenant, s.Definition)
	if err != nil {
		one.breaks("this build does not read the definition it is pinned to: %v", err)
		return
	}
	r.linked(one, def, s)
	r.compare(one, def, s)
}

// linked looks whether the build has the code and agents that the pinned definition names, and takes the arguments of
// the calls that are open.
func (r *rehearsal) linked(run *rehearsedRun, def *agent.Definition, s *run.AgentState) {
	if err := def.CheckPinned(); err != nil {
		run.breaks("this build does not accept the definition it is pinned to: %v", err)
	}
	if err := r.Hooks.Check(def); err != nil {
		run.breaks("code that its definition names is not in this build: %v", err)
	}
	for _, t := range def.Tools {
		var now agent.ToolSpec
		needs, ok := "tool "+t.Name, true
		switch {
		case t.Agent != nil:
			needs = "agent " + t.Agent.Agent
			_, ok = r.Agents(t.Agent.Agent)
		case t.Kind == agent.KindInternal || t.Kind == "":
			var code tool.Tool
			if code, ok = r.Tools.Lookup(t.Name); ok {
				now = code.Spec()
			}
		}
		if !ok {
			run.changes("%s is not in this build: calls of %s fail", needs, t.Name)
		}
		for _, c := range s.Live {
			if c.Tool != t.Name || c.Status.Terminal() || c.Child != "" {
				continue
			}
			if !ok {
				run.breaks("%s is not in this build, and call %s is open", needs, c.ID)
			} else if len(now.Schema) > 0 && tool.Validate(now, c.Input) != nil {
				run.breaks("the arguments of call %s are not what tool %s takes in this build", c.ID, t.Name)
			}
		}
	}
}

// compare says what comes next, and what of that is otherwise than under the pinned definition alone.
func (r *rehearsal) compare(one *rehearsedRun, def *agent.Definition, s *run.AgentState) {
	one.Deployed = "unknown"
	if now, ok := r.Agents(def.Name); ok {
		one.Deployed = "changed"
		was, err1 := jsonx.MarshalVerbatim(def)
		is, err2 := jsonx.MarshalVerbatim(now)
		if err1 == nil && err2 == nil && bytes.Equal(was, is) {
			one.Deployed = "same"
		}
	}
	current := *def
	current.Now = policy.CurrentOf(def, r.Agents)
	for _, c := range s.Live {
		if c.Status.Terminal() {
			continue
		}
		was, refusedBefore := r.next(def, s, c)
		then, refused := r.next(&current, s, c)
		one.Next = append(one.Next, fmt.Sprintf("call %s: %s", c.ID, then))
		if was != then {
			one.changes("call %s: %s; under what the run is pinned to: %s", c.ID, then, was)
		}
		if refused && !refusedBefore {
			one.breaks("call %s: %s, whatever people say", c.ID, then)
		}
	}
	if n := current.Now; n != nil {
		for _, t := range def.Tools {
			if _, there := n.Tool(def, t); !there {
				one.changes("the new definition has no tool %s: calls of it are denied", t.Name)
			}
		}
	}
	if len(one.Next) == 0 {
		one.Next = append(one.Next, nextWords[policy.Next(&current, s).Kind])
	}
}

// nextWords say what comes next of a run without open calls.
var nextWords = map[policy.ActionKind]string{
	policy.ActInfer: "the model is asked", policy.ActWait: "the run waits", policy.ActEnd: "the run ends",
	policy.ActDone:  "the run has ended",
	policy.ActTools: "its calls are carried out", policy.ActList: "its servers are listed",
	policy.ActBudget: "people are asked for more budget", policy.ActContinue: "its next execution begins",
}

// next is what the gate says of an open call as if nobody had decided about it yet.
func (r *rehearsal) next(d *agent.Definition, s *run.AgentState, c run.Call) (does string, refused bool) {
	switch {
	case c.Child != "":
		return "run " + c.Child + " carries it out", false
	case c.Status == run.StatusSuspended && c.Wait.For != run.ForApproval:
		if t, known := d.Tool(c.Tool); known && policy.DecideIn(d, s, t, c.Input).Verdict == agent.VerdictDeny {
			return c.Tool + " is denied", true
		}
		return fmt.Sprintf("%s waits for an %s", c.Tool, c.Wait.For), false
	}
	c.Status, c.Grant, c.Resume = run.StatusNew, nil, nil
	g := policy.GateHooked(d, s, c, agent.PluginGate{}, tool.Validate, r.Now)
	switch {
	case g.Refuse != nil && g.Refuse.Reason == run.WhyTooManyOpen, g.Suspend != nil, g.Block != nil:
		// its own request is one of those that are open
		return "people are asked about " + c.Tool + askedOf(g.Rule), false
	case g.Refuse != nil:
		return fmt.Sprintf("%s is not carried out (%s)", c.Tool, g.Refuse.Reason), true
	default:
		return c.Tool + " runs", false
	}
}

// askedOf says whom a decision asks.
func askedOf(d policy.Decision) string {
	var sets []string
	for _, set := range append([][]string{d.Approvers}, d.Above...) {
		sets = append(sets, strings.Join(set, " or "))
	}
	text := ": " + strings.Join(sets, ", and ")
	if d.Quorum > 1 {
		text += fmt.Sprintf(", %d of them", d.Quorum)
	}
	if d.FourEyes {
		text += ", not who asked for it"
	}
	if d.Via != nil {
		text += ", by " + d.Channels.Words()
	}
	return text
}
