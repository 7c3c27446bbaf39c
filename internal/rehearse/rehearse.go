package rehearse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tools/schema"
)

// Reader is the half of a store.Table that writes nothing.
type Reader interface {
	Get(ctx context.Context, k store.Key) (store.Item, bool, error)
	Query(ctx context.Context, r store.Range) (store.Page, error)
}

// BlobReader is the half of a store.Blobs that writes nothing.
type BlobReader interface {
	Get(ctx context.Context, tenant, digest string) ([]byte, error)
	Size(ctx context.Context, tenant, digest string) (int64, error)
}

// Rehearsal is a deployment that is to come, and the store that it would find. All fields are required. Not safe for concurrent use.
type Rehearsal struct {
	Table  Reader
	Blobs  BlobReader
	Tenant string
	Tools  runtime.ToolSource // the code of the new build
	Hooks  hook.Set           // likewise
	Agents runtime.Agents     // as they would be deployed
	Now    time.Time
}

// Report is what a rehearsal found.
type Report struct {
	Runs     []Run `json:"runs"` // waiting ones first, the oldest first
	Breaks   int   `json:"breaks"`
	Changes  int   `json:"changes"`
	Compared bool  `json:"compared,omitempty"` // with a former report: see Against
}

// Run is what would become of one open run.
type Run struct {
	ID         string          `json:"id"`
	Agent      string          `json:"agent,omitempty"`
	Version    string          `json:"version,omitempty"`
	Definition string          `json:"definition,omitempty"` // digest of the one it is pinned to
	Status     agent.RunStatus `json:"status"`
	Deployed   string          `json:"deployed"` // the agent's definition in the new deployment: same, changed, unknown

	Breaks  []string `json:"breaks"`  // what would go wrong; empty = nothing
	Changes []string `json:"changes"` // what would be otherwise, as the new deployment says; empty = nothing
	Notes   []string `json:"notes"`   // what is as well to know
	Waits   []Wait   `json:"waits"`
}

// Wait is something that the run waits for, and what would come of each answer.
type Wait struct {
	Call     string    `json:"call"` // the first one, of a request about tools
	Tool     string    `json:"tool"`
	For      string    `json:"for"` // approval, tools, input, answer, outcome
	Approval string    `json:"approval,omitempty"`
	Expires  time.Time `json:"expires"`
	Answers  []Answer  `json:"answers"`
}

// Answer is one way in which a wait may end.
type Answer struct {
	Answer string `json:"answer"`        // approve, deny, answer, rerun, expire
	Then   string `json:"then"`          // in the new deployment
	Was    string `json:"was,omitempty"` // under what the run is pinned to alone, where that is another
}

// pageSize is how many runs are listed at once.
const pageSize = 200

// All rehearses every open run of the tenant, or these ones.
func (r *Rehearsal) All(ctx context.Context, only ...string) (Report, error) {
	rep := Report{Runs: []Run{}}
	open, err := r.open(ctx, only)
	if err != nil {
		return rep, err
	}
	for _, o := range open {
		run := r.run(ctx, o)
		if ctx.Err() != nil {
			return rep, ctx.Err()
		}
		rep.Runs = append(rep.Runs, run)
	}
	rep.count()
	return rep, nil
}

func (rep *Report) count() {
	rep.Breaks, rep.Changes = 0, 0
	for _, run := range rep.Runs {
		if len(run.Breaks) > 0 {
			rep.Breaks++
		}
		if len(run.Changes) > 0 {
			rep.Changes++
		}
	}
}

// openRun is one on a list.
type openRun struct {
	id     string
	status agent.RunStatus
}

// open are the runs to rehearse. One that is named must be there and not have ended.
func (r *Rehearsal) open(ctx context.Context, only []string) ([]openRun, error) {
	var all []openRun
	for _, status := range []agent.RunStatus{agent.RunWaiting, agent.RunRunning} {
		var of []openRun
		for cursor := ""; ; {
			heads, next, err := r.journal().List(ctx, r.Tenant, status, pageSize, cursor)
			if err != nil {
				return nil, err
			}
			for _, h := range heads {
				of = append(of, openRun{h.Run, status})
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		slices.Reverse(of)
		all = append(all, of...)
	}
	if len(only) == 0 {
		return all, nil
	}
	for _, id := range only {
		if !slices.ContainsFunc(all, func(o openRun) bool { return o.id == id }) {
			return nil, fmt.Errorf("run %s: %w among those that are open", agent.Bounded(id), store.ErrNoRun)
		}
	}
	return slices.DeleteFunc(all, func(o openRun) bool { return !slices.Contains(only, o.id) }), nil
}

func (r *Rehearsal) journal() *store.Journal { return store.NewJournal(readOnly{r.Table}, 0) }

// run rehearses one run. What cannot be read is what would break.
func (r *Rehearsal) run(ctx context.Context, o openRun) Run {
	run := Run{ID: o.id, Status: o.status, Breaks: []string{}, Changes: []string{}, Notes: []string{}, Waits: []Wait{}}
	l, err := r.journal().Load(ctx, r.Tenant, o.id)
	if err != nil {
		run.breaks("this build does not read it: %v", err)
		return run
	}
	s := &l.State
	run.Agent, run.Version, run.Definition, run.Status = s.Agent, s.Version, s.Definition, s.Status
	if hint, err := r.journal().LoadAt(ctx, r.Tenant, o.id, s.ReadFrom()); err != nil || hint.State.Entries != s.Entries {
		run.breaks("its journal does not read from its newest snapshot: %v", err)
	}
	def, err := runtime.PinnedDefinitions(readOnlyBlobs{r.Blobs})(ctx, r.Tenant, s.Definition)
	if err != nil {
		run.breaks("this build does not read the definition it is pinned to: %v", err)
		return run
	}
	r.code(&run, def, s)
	r.deployed(&run, def, s)
	r.waits(ctx, &run, s)
	return run
}

func (run *Run) breaks(format string, args ...any) { add(&run.Breaks, format, args...) }

func (run *Run) changes(format string, args ...any) { add(&run.Changes, format, args...) }

func (run *Run) notes(format string, args ...any) { add(&run.Notes, format, args...) }

// add adds what is not there yet.
func add(to *[]string, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(*to, text) {
		*to = append(*to, text)
	}
}

// code looks whether the new build has the code that the pinned definition names. What an open call needs must be there; the rest is told.
func (r *Rehearsal) code(run *Run, def *agent.Definition, s *agent.AgentState) {
	if err := def.Check(); err != nil {
		run.breaks("this build does not accept the definition it is pinned to: %v", err)
	}
	if err := r.Hooks.Check(def); err != nil {
		run.breaks("code that its definition names is not in this build: %v", err)
	}
	if def.HooksVersion != "" && r.Hooks.Version != def.HooksVersion {
		run.notes("its code is version %s now, and was %s when it began", orNone(r.Hooks.Version), def.HooksVersion)
	}
	for _, t := range def.Tools {
		r.linked(run, t, s)
	}
}

func orNone(version string) string {
	if version == "" {
		return "unnamed"
	}
	return version
}

// linked compares a pinned tool with the one that is linked.
func (r *Rehearsal) linked(run *Run, t agent.ToolSpec, s *agent.AgentState) {
	if t.Kind != agent.KindInternal && t.Kind != "" {
		return
	}
	open := openCalls(s, t.Name)
	code, ok := r.Tools.Lookup(t.Name)
	switch {
	case !ok && len(open) > 0:
		run.breaks("tool %s is not in this build, and call %s is open", t.Name, strings.Join(callIDs(open), ", "))
		return
	case !ok:
		run.notes("tool %s is not in this build: a call of it fails", t.Name)
		return
	}
	now := code.Spec()
	if len(now.Schema) == 0 || sameJSON(now.Schema, t.Schema) {
		return
	}
	run.notes("tool %s takes other arguments in this build: the model goes on being told the former ones", t.Name)
	for _, c := range open {
		if schema.Validate(now, c.Input) != nil {
			run.breaks("the arguments of call %s are not what tool %s takes in this build", c.ID, t.Name)
		}
	}
}

func openCalls(s *agent.AgentState, name string) []agent.Call {
	return slices.DeleteFunc(s.Calls(), func(c agent.Call) bool { return c.Tool != name || c.Status.Terminal() })
}

func callIDs(calls []agent.Call) []string {
	ids := make([]string, len(calls))
	for i, c := range calls {
		ids[i] = c.ID
	}
	return ids
}

func sameJSON(a, b json.RawMessage) bool {
	x, err1 := agent.CanonicalJSON(a)
	y, err2 := agent.CanonicalJSON(b)
	return err1 == nil && err2 == nil && x == y
}

// deployed compares the pinned definition with the one that would be deployed. A run goes on with its own: only what is stricter now reaches it.
func (r *Rehearsal) deployed(run *Run, def *agent.Definition, s *agent.AgentState) {
	now, ok := r.Agents(def.Name)
	if !ok {
		run.Deployed = "unknown"
		run.notes("the new deployment has no agent %s: the run goes on with what it is pinned to, and no new one can begin", def.Name)
		return
	}
	was, err1 := agent.MarshalVerbatim(def)
	is, err2 := agent.MarshalVerbatim(now)
	if run.Deployed = "changed"; err1 == nil && err2 == nil && bytes.Equal(was, is) {
		run.Deployed = "same"
		return
	}
	for _, t := range def.Tools {
		if _, ok := now.Tool(t.Name); ok {
			continue
		}
		if open := openCalls(s, t.Name); len(open) > 0 {
			run.breaks("the new definition has no tool %s: call %s is denied, whatever people say", t.Name, strings.Join(callIDs(open), ", "))
			continue
		}
		run.changes("the new definition has no tool %s: calls of it are denied", t.Name)
	}
	for _, m := range def.MCP {
		if !slices.ContainsFunc(now.MCP, func(n agent.MCPServer) bool { return n.Name == m.Name }) {
			run.changes("the new definition has no server %s: calls of its tools are denied", m.Name)
		}
	}
	if agent.PolicyVersion(now.Permission) != agent.PolicyVersion(def.Permission) {
		run.notes("the policy is another: what is stricter in it holds for this run as well")
	}
	if now.System != def.System || !sameModel(now.Model, def.Model) {
		run.notes("the new prompt or model is for new runs: this one goes on with its own")
	}
}

func sameModel(a, b agent.ModelSpec) bool {
	x, err1 := agent.MarshalVerbatim(a)
	y, err2 := agent.MarshalVerbatim(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// waits rehearses every answer to everything the run waits for.
func (r *Rehearsal) waits(ctx context.Context, run *Run, s *agent.AgentState) {
	for _, req := range s.OpenRequests() {
		w := Wait{Call: req.First(), For: "tools", Approval: req.Approval, Expires: req.Expires}
		var names []string
		for _, t := range req.Tools {
			names = append(names, t.Tool)
		}
		w.Tool = strings.Join(names, ", ")
		run.Waits = append(run.Waits, r.wait(ctx, run, s, w))
	}
	for _, c := range s.Waits() {
		if c.Child != "" {
			run.notes("call %s is run %s, which is rehearsed by itself", c.ID, c.Child)
			continue
		}
		w := Wait{Call: c.ID, Tool: c.Tool, For: string(c.Wait.For), Approval: c.Wait.Approval, Expires: c.Wait.Expires}
		run.Waits = append(run.Waits, r.wait(ctx, run, s, w))
	}
}

// answers are those to what is waited for.
var answers = map[string][]string{
	"approval": {"approve", "deny", "expire"}, "tools": {"approve", "deny", "expire"}, "input": {"approve", "deny", "expire"},
	"answer": {"answer", "expire"}, "outcome": {"answer", "rerun", "expire"},
}

func (r *Rehearsal) wait(ctx context.Context, run *Run, s *agent.AgentState, w Wait) Wait {
	w.Answers = []Answer{}
	var asked *approval.Approval
	if w.Approval != "" {
		a, err := approval.Get(ctx, readOnly{r.Table}, r.Tenant, w.Approval)
		if err != nil {
			run.breaks("this build does not read the request about call %s: %v", w.Call, err)
			return w
		}
		asked = &a
	}
	for _, word := range answers[w.For] {
		p := performance{Rehearsal: r, run: s.Run, wait: w, asked: asked, answer: word}
		was, err := p.play(ctx, nil)
		if err != nil {
			run.breaks("call %s, %s: %v", w.Call, word, err)
			continue
		}
		then, err := p.play(ctx, r.Agents)
		if err != nil {
			run.breaks("call %s, %s: %v", w.Call, word, err)
			continue
		}
		a := Answer{Answer: word, Then: then.String()}
		if a.Then != was.String() {
			a.Was = was.String()
			run.changes("call %s, %s: %s; under what the run is pinned to: %s", w.Call, word, a.Then, a.Was)
		}
		if word == "approve" && then.voids(w.Call) && !was.voids(w.Call) {
			run.breaks("call %s is denied by the new definition: what people approve does not happen", w.Call)
		}
		for _, problem := range then.problems {
			run.breaks("call %s, %s: %s", w.Call, word, problem)
		}
		w.Answers = append(w.Answers, a)
	}
	return w
}

// Against compares with a report that another build made of the same store: what it said otherwise of an answer is a change.
func (rep *Report) Against(former Report) {
	rep.Compared = true
	before := map[string]string{}
	for _, run := range former.Runs {
		for _, w := range run.Waits {
			for _, a := range w.Answers {
				before[run.ID+" "+w.Call+" "+w.Approval+" "+a.Answer] = a.Then
			}
		}
	}
	for i := range rep.Runs {
		run := &rep.Runs[i]
		for _, w := range run.Waits {
			for _, a := range w.Answers {
				if was, ok := before[run.ID+" "+w.Call+" "+w.Approval+" "+a.Answer]; ok && was != a.Then {
					run.changes("call %s, %s: %s; in the former report: %s", w.Call, a.Answer, a.Then, was)
				}
			}
		}
	}
	rep.count()
}
