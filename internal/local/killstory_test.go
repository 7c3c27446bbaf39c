package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/tool"
)

// storyVar starts this test binary again as a process that carries one story to its end and kills itself on the way: a
// telling as JSON.
const storyVar = "COUNTERSIGN_TEST_STORY"

func TestMain(m *testing.M) {
	if plan := os.Getenv(storyVar); plan != "" {
		if err := storyMain(plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// telling is one life of a process: the story, where it is kept, and at which point it ends. Point 0 lives, and counts
// its points.
type telling struct {
	Story, Home string
	Point       int64
	Began       time.Time // of the first life: a fast clock counts from there
}

// story is a run and what people do meanwhile. What they do they do again in each life.
type story struct {
	replies map[string][]agent.Reply // by agent, each at its inference
	asks    bool                     // payments wait for a person
	speed   int                      // of the clock; 0 = as it is
	// people do what people do, again and again until the run has ended. They are given what is pending.
	people func(ctx context.Context, m told, run string, pending []approval.Approval) error
	reason run.Reason // "" = natural end
	paid   int        // payments in the end
}

// told is a machine, and the books in which people look what became of a payment.
type told struct {
	*Machine
	killable
}

func calls(id, name, args string) agent.Reply {
	return agent.Reply{Model: "m", Calls: []agent.ReplyCall{{ID: id, Name: name, Input: json.RawMessage(args)}}}
}

var (
	lookUp   = calls("c1", "look", `{"order":"A-1"}`)
	payBack  = calls("c2", "pay", `{"order":"A-1"}`)
	farewell = agent.Reply{Model: "m", Text: "Done."}
)

// stories are what a laptop's engine is killed in the middle of.
var stories = map[string]story{
	"plain":     {replies: clerk(lookUp, calls("c2", "file", `{"order":"A-1"}`), farewell), people: nobody},
	"claimed":   {replies: clerk(lookUp, payBack, farewell), people: approve, paid: 1},
	"approved":  {replies: clerk(lookUp, payBack, farewell), asks: true, people: approve, paid: 1},
	"cancelled": {replies: clerk(lookUp, payBack, farewell), asks: true, people: callOff, reason: run.ReasonCancelled},
	"told":      {replies: clerk(payBack, lookUp, farewell), asks: true, people: tell, paid: 1},
	"expired":   {replies: clerk(payBack, farewell), asks: true, speed: 100, people: nobody},
	"delegated": {replies: map[string][]agent.Reply{
		"clerk": {calls("c1", "ask", `{"message":"Pay back A-1."}`), farewell}, "aide": {payBack, farewell},
	}, asks: true, people: approve, paid: 1},
}

func clerk(replies ...agent.Reply) map[string][]agent.Reply {
	return map[string][]agent.Reply{"clerk": replies}
}

func nobody(context.Context, told, string, []approval.Approval) error { return nil }

var clerks = policy.Principal{ID: "user:local", Groups: []string{"group:operators"}}

// approve approves payments, and says of one of which nobody knows what became of it what the books say.
func approve(ctx context.Context, m told, _ string, pending []approval.Approval) error {
	for _, a := range pending {
		var err error
		if a.Kind != approval.KindOutcome {
			_, err = m.Desk.Decide(ctx, approval.DecisionInput{Tenant: Tenant, ID: a.ID, Action: approval.Approve, By: clerks})
		} else {
			o := approval.DecisionInput{Tenant: Tenant, Run: a.Run, Call: a.Call(), ID: a.ID, By: clerks, Content: "paid", Action: approval.ReportResult}
			if len(m.books("pay")) == 0 {
				o.Content, o.Action = "", approval.Rerun
			}
			_, err = m.Desk.Decide(ctx, o)
		}
		var decided *approval.DecidedError
		if err != nil && !errors.As(err, &decided) { // the list may be late
			return err
		}
	}
	return nil
}

func callOff(ctx context.Context, m told, run string, pending []approval.Approval) error {
	if len(pending) == 0 {
		return nil
	}
	_, err := m.Canceller.Cancel(ctx, Tenant, run, clerks.ID, "enough")
	return err
}

// tell says something while the run waits, under one id in every life, and then approves.
func tell(ctx context.Context, m told, runID string, pending []approval.Approval) error {
	if len(pending) == 0 {
		return nil
	}
	if err := m.Inputs.Send(ctx, Tenant, runID, "m1", clerks.ID, message("And hurry.")); err != nil {
		return err
	}
	return approve(ctx, m, runID, pending)
}

// agents are the clerk, and the aide whom a clerk may ask.
func (s story) agents() (map[string]*agent.Definition, error) {
	all := map[string]*agent.Definition{}
	for name := range s.replies {
		d, err := agent.PresetDefaults(agent.PresetCountersign)
		if err != nil {
			return nil, err
		}
		d.Name, d.System, d.Model.Provider, d.Model.ID = name, "You work.", "demo", "m"
		for tool, effect := range map[string]run.Effect{
			"look": run.EffectRead, "file": run.EffectIdempotent, "pay": run.EffectNonIdempotent,
		} {
			d.Tools = append(d.Tools, agent.ToolSpec{
				Name: tool, Kind: agent.KindInternal, Description: "It does.", Effect: effect, Timeout: 30 * time.Minute,
				Schema: json.RawMessage(`{"type":"object","properties":{"order":{"type":"string"}},"required":["order"]}`),
			})
			rule := agent.Rule{Tool: tool, Verdict: agent.VerdictAllow}
			if s.asks && tool == "pay" {
				rule.Verdict, rule.Expires = agent.VerdictAsk, time.Hour
				if s.speed > 0 {
					rule.Expires = time.Minute
				}
			}
			d.Permission.Rules = append(d.Permission.Rules, rule)
		}
		if _, ok := s.replies["aide"]; ok && name == "clerk" {
			d.Tools = append(d.Tools, agent.ToolSpec{
				Name: "ask", Kind: agent.KindAgent, Effect: run.EffectIdempotent, Schema: agent.DelegateSchema, Timeout: time.Hour, Agent: &agent.Delegate{Agent: "aide"},
			})
			d.Permission.Rules = append(d.Permission.Rules, agent.Rule{Tool: "ask", Verdict: agent.VerdictAllow})
		}
		if err := d.Check(); err != nil {
			return nil, err
		}
		all[name] = &d
	}
	return all, nil
}

// marks counts the points of a process by what is done there, and ends it at one of them.
type marks struct {
	at int64
	mu sync.Mutex
	n  int64
	of map[string]int
}

// around marks the points before and after an I/O.
func (m *marks) around(what string, do func() error) error {
	m.point(what)
	err := do()
	m.point(what)
	return err
}

func (m *marks) point(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	m.of[what]++
	if m.n == m.at {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// The ports of a process that is killed.
type (
	killableModel struct {
		story
		*marks
	}
	killable struct {
		*marks
		ledger string
	}
)

// table returns a table whose writes are points.
func (m *marks) table(next store.Table, what string) store.Table {
	t := fault.NewTable(next)
	t.Use(fault.OnlyIf(fault.IsWrite, func(_ context.Context, _ fault.Call, call func() error) error { return m.around(what, call) }))
	return t
}

// blobs returns blobs whose writes are points.
func (m *marks) blobs(next store.Blobs) store.Blobs {
	isPut := func(c fault.Call) bool { return c.Port == fault.BlobsPut }
	return fault.NewBlobs(next, fault.OnlyIf(isPut, func(_ context.Context, _ fault.Call, call func() error) error { return m.around("blob", call) }))
}

// Generate gives the reply of the agent's inference, whenever it is asked for.
func (k killableModel) Generate(_ context.Context, r agent.Request) (reply agent.Reply, err error) {
	err = k.around("model", func() error {
		name := "clerk"
		if text, ok := r.Messages[0].Block.(run.Text); ok && strings.HasPrefix(text.Text, "Pay back") {
			name = "aide"
		}
		of := k.replies[name]
		reply = of[min(int(r.Inference), len(of))-1]
		return nil
	})
	return reply, err
}

func (k killable) Lookup(name string) (tool.Tool, bool) { return killableTool{k, name}, true }

type killableTool struct {
	killable
	name string
}

func (k killableTool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: k.name} }

// Call writes into the books, durably, under the key that makes it the same again.
func (k killableTool) Call(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
	err := k.around("tool", func() error {
		f, err := os.OpenFile(k.ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(f, k.name, c.Run+"/"+c.ID)
		return errors.Join(err, f.Sync(), f.Close())
	})
	return agent.ToolResultData{Content: "paid"}, err
}

// books are the keys under which a tool has written.
func (k killable) books(name string) (keys []string) {
	data, err := os.ReadFile(k.ledger)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if key, ok := strings.CutPrefix(line, name+" "); ok {
			keys = append(keys, strings.TrimSpace(key))
		}
	}
	return keys
}

// fast is a clock on which time goes by so many times as fast since a moment.
type fast struct {
	clock.Clock
	since time.Time
	speed time.Duration
}

func (f fast) Now() time.Time { return f.since.Add(f.Clock.Now().Sub(f.since) * f.speed) }

func (f fast) Sleep(ctx context.Context, d time.Duration) error { return f.Clock.Sleep(ctx, d/f.speed) }

func (f fast) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return f.Clock.WithTimeout(ctx, d/f.speed)
}

func (f fast) NewSignal() clock.Signal { return fastSignal{f.Clock.NewSignal(), f.speed} }

type fastSignal struct {
	clock.Signal
	speed time.Duration
}

func (s fastSignal) Wait(ctx context.Context, d time.Duration) error {
	return s.Signal.Wait(ctx, d/s.speed)
}

func (l telling) store() string { return filepath.Join(l.Home, "store.db") }

// machine is the engine over ports at which the process may end.
func (l telling) machine(db *bolt.Table, k *marks) (*Machine, error) {
	s := stories[l.Story]
	agents, err := s.agents()
	if err != nil {
		return nil, err
	}
	blobs, err := bolt.OpenFolder(filepath.Join(l.Home, "blobs"))
	if err != nil {
		return nil, err
	}
	c := clock.System()
	if s.speed > 0 {
		c = fast{c, l.Began, time.Duration(s.speed)}
	}
	return New(Config{
		Table: k.table(db, "table"), Blobs: k.blobs(blobs), Model: killableModel{s, k}, Tools: killable{k, filepath.Join(l.Home, "ledger")},
		Agents: func(name string) (*agent.Definition, bool) { d, ok := agents[name]; return d, ok },
		Clock:  c, IDs: clock.NewIDs(c), Executions: NewExecutions(k.table(db, "execution")), Warm: 4,
	})
}

// storyMain is the process that storyVar starts.
func storyMain(plan string) error {
	var l telling
	if err := json.Unmarshal([]byte(plan), &l); err != nil {
		return err
	}
	db, err := bolt.Open(l.store(), bolt.Options{LockWait: 2 * time.Minute})
	if err != nil {
		return err
	}
	k := &marks{at: l.Point, of: map[string]int{}}
	m, err := l.machine(db, k)
	if err != nil {
		return err
	}
	if err := errors.Join(l.live(context.Background(), m), m.Engine.Close(), db.Close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(k.of)
}

// live starts the run or finds it, and does what people do until it and all its executions have ended.
func (l telling) live(ctx context.Context, m *Machine) error {
	s := stories[l.Story]
	if err := m.Resume(ctx, Tenant, ""); err != nil {
		return err
	}
	def, _ := m.Agents("clerk")
	state, err := m.Starter.Start(ctx, runtime.Start{Tenant: Tenant, Agent: def, Key: "k", Message: message("Order A-1.")})
	if err != nil {
		return err
	}
	for {
		h, err := m.Ports.Journal.Head(ctx, Tenant, state.Run)
		if err != nil {
			return err
		}
		if h.Status == run.RunDone && len(m.Engine.List(ctx, asl.Running)) == 0 {
			return nil
		}
		pending, _, err := approval.List(ctx, m.Ports.Table, Tenant, approval.Query{Status: approval.Pending})
		if err != nil {
			return err
		}
		if h.Status != run.RunDone {
			if err := s.people(
				ctx, told{m, killable{ledger: filepath.Join(l.Home, "ledger")}}, state.Run, pending,
			); err != nil && !errors.Is(err, approval.ErrFinished) && !errors.Is(err, runtime.ErrRunFinished) {
				return err
			}
		}
		if err := clock.System().Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// tellOnce is one life; killed says how it ended, points what it did where it was not.
func (l telling) tellOnce(t *testing.T) (killed bool, points map[string]int) {
	t.Helper()
	plan, err := json.Marshal(l)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), storyVar+"="+string(plan))
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }) // it says where it stands
	defer stuck.Stop()
	if err = cmd.Wait(); err == nil {
		require.NoError(t, json.Unmarshal([]byte(stdout.String()), &points), stdout.String())
		return false, points
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(
		t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "%+v failed by itself: %v\n%s", l, err, stderr.String(),
	)
	return true, nil
}

// end is what a story has come to: the same however often its process was killed.
func (l telling) end(t *testing.T) (said []string) {
	t.Helper()
	s := stories[l.Story]
	k := killable{ledger: filepath.Join(l.Home, "ledger")}
	require.Len(t, k.books("pay"), s.paid, "%+v", l)
	for _, key := range k.books("file") { // the same again does no harm, and says that it is the same
		require.Equal(t, k.books("file")[0], key)
	}
	db, err := bolt.Open(l.store(), bolt.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	journal := store.NewJournal(db, 0)
	heads, _, err := journal.List(t.Context(), Tenant, run.RunDone, 0, "")
	require.NoError(t, err)
	require.Len(t, heads, len(s.replies), "every run has ended, and there is one of each agent")
	for _, name := range []string{"clerk", "aide"} {
		for _, h := range heads {
			if h.Agent == name {
				said = append(said, name)
				said = append(said, l.transcript(t, journal, h.Run)...)
			}
		}
	}
	for _, status := range []run.RunStatus{run.RunRunning, run.RunWaiting} {
		open, _, err := journal.List(t.Context(), Tenant, status, 0, "")
		require.NoError(t, err)
		require.Empty(t, open)
	}
	pending, _, err := approval.List(t.Context(), db, Tenant, approval.Query{Status: approval.Pending})
	require.NoError(t, err)
	require.Empty(t, pending, "nobody is asked any more")
	return said
}

func (l telling) transcript(t *testing.T, journal *store.Journal, id string) (said []string) {
	t.Helper()
	loaded, err := journal.Load(t.Context(), Tenant, id)
	require.NoError(t, err)
	r := loaded.State
	require.Empty(t, loaded.Inbox, "what was accepted was applied")
	if r.Agent == "clerk" {
		require.Equal(t, cmp.Or(stories[l.Story].reason, run.ReasonNaturalEnd), r.Reason, "%+v %+v", l, r.Error)
	}
	said = append(said, fmt.Sprintf("%s after %d inferences", r.Reason, r.Inferences))
	for _, c := range r.Calls() {
		said = append(said, c.ID+" "+c.Tool+" "+string(c.Status))
	}
	for _, m := range r.Messages.All() {
		said = append(said, fmt.Sprintf("%s %+v seen %d", m.Role, m.Block, m.Seen(r.Inferences)))
	}
	return said
}

// killsVar has every point tried; else a few of each story are.
const killsVar = "COUNTERSIGN_KILLS"

// TestKilledInAnyStory: the engine's process is killed before and after every write to the table and to the records of
// executions, every blob, tool call and model call; the next process comes to the same end, and no payment is made
// twice: where nobody can know, somebody is asked.
func TestKilledInAnyStory(t *testing.T) {
	every := os.Getenv(killsVar) != ""
	for name := range stories {
		t.Run(name, func(t *testing.T) {
			plain := telling{Story: name, Home: t.TempDir(), Began: time.Now()}
			_, points := plain.tellOnce(t)
			want, all := plain.end(t), int64(0)
			for _, n := range points {
				all += int64(n)
			}
			step := int64(1)
			if !every {
				step = all/3 + 1
			}
			kills := 0
			for point := 1 + (int64(len(name)) % step); point <= all; point += step {
				l := telling{Story: name, Home: t.TempDir(), Point: point, Began: time.Now()}
				killed, _ := l.tellOnce(t)
				if killed {
					kills++
				}
				if every && killed { // and once more on the way
					l.Point = 1 + point*7%all
					if killed, _ = l.tellOnce(t); killed {
						kills++
					}
				}
				l.Point = 0
				killed, _ = l.tellOnce(t)
				require.False(t, killed)
				require.Equal(t, want, l.end(t), "killed at point %d", point)
			}
			t.Logf("points %v, killed %d times", points, kills)
			require.NotZero(t, kills)
		})
	}
	if !every {
		t.Log("a few points of each story; all of them by " + killsVar + "=all, or make kills")
	}
}

// deaf is a state machine that does not hear that an execution is to stop.
type deaf struct{ runtime.Waiter }

var errDeaf = errors.New("killed before it was stopped")

func (deaf) Stop(context.Context, string, string) error { return errDeaf }

// TestCancelledAndKilledBeforeTheStop: the execution of a run that was cancelled is stopped by the next process.
func TestCancelledAndKilledBeforeTheStop(t *testing.T) {
	l := telling{Story: "cancelled", Home: t.TempDir()}
	machine := func() (*Machine, func()) {
		db, err := bolt.Open(l.store(), bolt.Options{})
		require.NoError(t, err)
		m, err := l.machine(db, &marks{of: map[string]int{}})
		require.NoError(t, err)
		require.NoError(t, m.Resume(t.Context(), Tenant, ""))
		return m, func() { require.NoError(t, errors.Join(m.Engine.Close(), db.Close())) }
	}
	m, end := machine()
	def, _ := m.Agents("clerk")
	state, err := m.Starter.Start(t.Context(), runtime.Start{Tenant: Tenant, Agent: def, Key: "k", Message: message("Order A-1.")})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		h, err := m.Ports.Journal.Head(t.Context(), Tenant, state.Run)
		return err == nil && h.Status == run.RunWaiting && h.Token != ""
	}, time.Minute, time.Millisecond)
	m.Canceller.Waiter = deaf{m.Canceller.Waiter}
	_, err = m.Canceller.Cancel(t.Context(), Tenant, state.Run, clerks.ID, "enough")
	require.ErrorIs(t, err, errDeaf)
	end()
	m, end = machine()
	require.Eventually(
		t, func() bool { return len(m.Engine.List(t.Context(), asl.Running)) == 0 }, time.Minute, time.Millisecond,
	)
	end()
}
