package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
	"github.com/countersign/countersign/internal/tool"
)

var (
	ana = policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}}
	ben = policy.Principal{ID: "user:ben", Groups: []string{"group:operators"}}
	eve = policy.Principal{ID: "user:eve", Groups: []string{"group:staff"}}
)

// secret is in every argument, note and result: nothing of these may be in a record.
const secret = "canary-7331"

type payment struct {
	Amount int    `json:"amount"`
	To     string `json:"to"`
}

// world is a machine whose runs pay, and auditors of it over a table of their own that can fail. Its model pays as often as it is told to.
type world struct {
	t       require.TestingT
	ctx     context.Context
	machine *local.Machine
	table   store.Table // that never fails
	flaky   *flaky      // the auditors'
	clock   clock.Clock
	defs    map[string]*agent.Definition

	mu   sync.Mutex
	paid map[string]int // by run
}

// kinds of agents, by name: how they are asked about.
var kinds = map[string]func(p *agent.Permission){
	"calls": func(*agent.Permission) {},
	"tools": func(p *agent.Permission) { p.Mode, p.Scope = agent.ModeBlockAndRetry, agent.ScopeTool },
	"once": func(p *agent.Permission) {
		p.Mode, p.Scope, p.Grants = agent.ModeBlockAndRetry, agent.ScopeTool, agent.GrantsOnce
	},
	"standing": func(p *agent.Permission) { p.Scope, p.Grants = agent.ScopeTool, agent.GrantsStanding },
}

var kindNames = []string{"calls", "once", "standing", "tools"}

func newWorld(t require.TestingT) *world {
	w := &world{t: t, ctx: context.Background(), table: memory.New(), clock: clock.System(), defs: map[string]*agent.Definition{}, paid: map[string]int{}}
	w.flaky = &flaky{Table: w.table}
	pay := tool.Must(tool.New("pay", "Pays.", run.EffectNonIdempotent, func(_ context.Context, c tool.Call, in payment) (agent.ToolResultData, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.paid[c.Run]++
		if in.Amount == 13 {
			return agent.ToolResultData{IsError: true, Content: "no luck, " + secret}, nil
		}
		return tool.Text("paid, " + secret), nil
	}, nil))
	for name, change := range kinds {
		d, err := agent.PresetDefaults(agent.PresetCountersign)
		require.NoError(t, err)
		d.Name, d.Version, d.System, d.Tools = name, "1", "You pay.", []agent.ToolSpec{pay.Spec()}
		d.Model.Provider, d.Model.ID = "demo", "m"
		change(&d.Permission)
		require.NoError(t, d.Check())
		w.defs[name] = &d
	}
	var err error
	w.machine, err = local.New(local.Config{
		Table: w.table, Blobs: memory.NewBlobs(), Model: w, Tools: tools{pay}, Clock: w.clock, IDs: ids.System(w.clock), Executions: &asl.MemoryStore{},
		Agents: func(name string) (*agent.Definition, bool) { d, ok := w.defs[name]; return d, ok },
	})
	require.NoError(t, err)
	return w
}

type tools struct{ one tool.Tool }

func (s tools) Lookup(name string) (tool.Tool, bool) { return s.one, name == s.one.Spec().Name }

// Generate makes as many calls as the user says, round by round, and then says goodbye.
func (w *world) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	text, ok := r.Messages[0].Block.(run.Text)
	if !ok {
		return agent.Reply{}, fmt.Errorf("want a text")
	}
	var rounds []int
	if err := json.Unmarshal([]byte(text.Text), &rounds); err != nil {
		return agent.Reply{}, err
	}
	out := agent.Reply{Model: "m", Text: "Goodbye."}
	if i := int(r.Inference) - 1; i < len(rounds) {
		for n := range rounds[i] {
			args := fmt.Sprintf(`{"amount":%d,"to":"%s"}`, 12+n, secret)
			out.Calls = append(out.Calls, agent.ReplyCall{ID: fmt.Sprintf("c%d-%d", i+1, n), Name: "pay", Input: json.RawMessage(args)})
		}
	}
	return out, nil
}

// start starts a run that makes so many calls a round.
func (w *world) start(kind, key string, rounds ...int) string {
	text, err := json.Marshal(rounds)
	require.NoError(w.t, err)
	s, err := w.machine.Starter.Start(w.ctx, runtime.Start{
		Tenant: tenant, Agent: w.defs[kind], Key: key, Message: []run.UserBlock{{Block: run.Text{Text: string(text)}}},
	})
	require.NoError(w.t, err)
	return s.Run
}

// auditor is a new one, of another process.
func (w *world) auditor(seed uint64) *audit.Auditor {
	l := &audit.Log{Table: w.flaky, Clock: w.clock, Jitter: ids.Seeded(w.clock, seed).Jitter}
	return &audit.Auditor{Table: w.flaky, Journal: store.NewJournal(w.flaky, 0), Log: l}
}

func (w *world) log() *audit.Log { return &audit.Log{Table: w.table, Clock: w.clock} }

// sweep audits all that is left.
func (w *world) sweep() audit.Swept {
	a := w.auditor(99)
	swept, err := (&audit.Sweep{Auditor: a, Heads: store.NewJournal(w.flaky, 0), Clock: w.clock}).Run(w.ctx, []string{tenant})
	require.NoError(w.t, err)
	require.Empty(w.t, swept.Failed)
	return swept
}

// requests are all requests by their runs, whatever became of them.
func (w *world) requests() map[string][]approval.Approval {
	all := map[string][]approval.Approval{}
	for _, s := range []approval.Status{approval.Pending, approval.Approved, approval.Denied, approval.Expired, approval.Cancelled, approval.Voided} {
		list, next, err := approval.List(w.ctx, w.table, tenant, s, 100_000, "")
		require.NoError(w.t, err)
		require.Empty(w.t, next)
		for _, a := range list {
			all[a.Run] = append(all[a.Run], a)
		}
	}
	return all
}

// decide decides a request in one of many ways; what cannot be done to it is no decision.
func (w *world) decide(draw func(n int) int, a approval.Approval) {
	by := []policy.Principal{ana, ben, eve}[draw(3)]
	action := []approval.Action{approval.Approve, approval.Approve, approval.Deny, approval.Cancel, approval.Edit}[draw(5)]
	r := approval.Request{Tenant: tenant, ID: a.ID, Action: action, By: by, Note: secret, Via: approval.ViaAPI}
	if action == approval.Edit {
		r.Args = json.RawMessage(`{"amount":` + strconv.Itoa(draw(20)) + `,"to":"` + secret + `"}`)
	}
	_, _ = w.machine.Desk.Decide(w.ctx, r)
}

// byRun are the records of the chain, by their run.
func (w *world) byRun() map[string][]audit.Record {
	v, err := w.log().Verify(w.ctx, tenant)
	require.NoError(w.t, err)
	all := map[string][]audit.Record{}
	for _, r := range records(w.t, w.log()) {
		all[r.Run] = append(all[r.Run], r)
	}
	for _, text := range lines(w.t, w.log()) {
		require.NotContains(w.t, string(text), secret)
	}
	require.EqualValues(w.t, v.Count, v.Last.Seq)
	return all
}

// check holds a run's records against what is known otherwise: its requests, and how often it has paid.
func (w *world) check(run string, asked []approval.Approval, got []audit.Record) {
	t := w.t
	count := func(kind audit.Kind, approval string) (n int) {
		for _, r := range got {
			if r.Kind == kind && (approval == "" || r.Approval == approval) {
				n++
			}
		}
		return n
	}
	at := func(kind audit.Kind, approval string) int {
		return slices.IndexFunc(got, func(r audit.Record) bool { return r.Kind == kind && r.Approval == approval })
	}
	decisions := 0
	for _, a := range asked {
		require.Equal(t, 1, count(audit.Requested, a.ID), "%s %v", a.ID, got)
		require.Equal(t, len(a.Decisions), count(audit.Decided, a.ID))
		decisions += len(a.Decisions)
		first := at(audit.Requested, a.ID)
		require.Equal(t, a.RequestedAt, got[first].At)
		ended := count(audit.Expired, a.ID) + count(audit.Voided, a.ID) + count(audit.Cancelled, a.ID)
		switch {
		case a.Status == approval.Expired:
			require.Equal(t, 1, count(audit.Expired, a.ID))
		case a.Status == approval.Voided:
			require.Equal(t, 1, count(audit.Voided, a.ID))
		case a.Status == approval.Cancelled && len(a.Decisions) == 0:
			require.Equal(t, 1, count(audit.Cancelled, a.ID))
		default:
			require.Zero(t, ended, "%s is %s", a.ID, a.Status)
		}
		n := 0
		for i, r := range got { // requested, then each decision in its order, then the claim and the result
			if r.Approval == a.ID && r.Kind == audit.Decided {
				require.Greater(t, i, first)
				require.Equal(t, a.Decisions[n].By, r.Actor)
				require.Equal(t, string(a.Decisions[n].Action), r.Action)
				require.Equal(t, string(a.Decisions[n].Via), r.Channel)
				n++
			}
			if r.Approval == a.ID && (r.Kind == audit.Consumed || r.Kind == audit.Executed) {
				require.Equal(t, len(a.Decisions), n, "the decision stands before what it let run")
			}
		}
	}
	require.Equal(t, decisions, count(audit.Decided, ""))
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, w.paid[run], count(audit.Consumed, ""))
	require.Equal(t, w.paid[run], count(audit.Executed, ""))
	open := map[string]bool{}
	for _, r := range got {
		switch r.Kind {
		case audit.Consumed:
			require.False(t, open[r.Call])
			open[r.Call] = true
		case audit.Executed:
			require.True(t, open[r.Call], "the claim stands before the result")
		}
	}
}

// bubble runs f in a world in a bubble, and ends it.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() { require.NoError(t, w.machine.Engine.Close()) }()
		f(t, w)
	})
}

// C5: of random runs, whatever people do and however auditors fail, each fact makes one record, in the order of the run's journal; and once all is
// audited, to audit again changes nothing.
func TestC5EachFactMakesOneRecord(t *testing.T) {
	for seed := range int64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) { w.story(rand.New(rand.NewSource(seed)), 4) })
		})
	}
}

// C5: several auditors at once on one tenant, 200 runs.
func TestC5ManyAuditorsOfManyRuns(t *testing.T) {
	bubble(t, func(_ *testing.T, w *world) { w.story(rand.New(rand.NewSource(1)), 200) })
}

// story lets runs go on, people decide and auditors fail, and holds what comes of it against what has happened.
func (w *world) story(random *rand.Rand, n int) {
	var failing sync.Mutex
	w.flaky.fail = func(bool) (before, after error) {
		failing.Lock()
		defer failing.Unlock()
		switch random.Intn(40) {
		case 0:
			return errBlown, nil
		case 1:
			return nil, errBlown
		case 2:
			return store.ErrConflict, nil
		}
		return nil, nil
	}
	draw := func(n int) int {
		failing.Lock()
		defer failing.Unlock()
		return random.Intn(n)
	}
	var runs []string
	for i := range n {
		rounds := []int{1 + draw(3), draw(3), draw(2)}
		runs = append(runs, w.start(kindNames[draw(len(kindNames))], fmt.Sprint("k", i), rounds...))
	}
	for range 6 {
		synctest.Wait()
		w.audits(runs, draw)
		asked := w.requests()
		for _, run := range runs {
			for _, a := range asked[run] {
				if a.Status == approval.Pending && draw(3) > 0 {
					w.decide(draw, a)
				}
			}
			if draw(25) == 0 {
				_, _ = w.machine.Canceller.Cancel(w.ctx, tenant, run, "user:ana", secret)
			}
		}
		if draw(6) == 0 {
			time.Sleep(25 * time.Hour) // what waits expires
		}
	}
	w.audits(runs, draw)
	for range 4 { // rounds; each ends when its requests expire
		time.Sleep(25 * time.Hour)
		synctest.Wait()
	}
	w.flaky.fail = nil
	w.sweep()
	got, asked := w.byRun(), w.requests()
	for _, run := range runs {
		w.check(run, asked[run], got[run])
	}
	before := len(lines(w.t, w.log()))
	w.sweep()
	for _, run := range runs {
		require.NoError(w.t, w.auditor(7).Run(w.ctx, tenant, run))
	}
	require.Len(w.t, lines(w.t, w.log()), before)
	w.noneOpen()
}

// audits has several auditors at some of the runs at once, each of which may fail.
func (w *world) audits(runs []string, draw func(int) int) {
	var wg sync.WaitGroup
	for seed := range 4 {
		wg.Go(func() {
			a := w.auditor(uint64(seed))
			for _, run := range runs {
				if draw(3) > 0 {
					_ = a.Run(w.ctx, tenant, run)
				}
			}
		})
	}
	wg.Wait()
}

// noneOpen says that no cursor of a run that has ended is listed.
func (w *world) noneOpen() {
	p, err := w.table.Query(w.ctx, store.Range{PK: "AUDIT", Index: true})
	require.NoError(w.t, err)
	require.Empty(w.t, p.Items)
}
