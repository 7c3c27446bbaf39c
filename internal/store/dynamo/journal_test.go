package dynamo_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"

	"github.com/countersign/countersign/internal/tools/builtin"
)

const tenant = "default"

// meter counts the requests of each operation that went over the wire.
type meter struct {
	next aws.HTTPClient
	mu   sync.Mutex
	sent map[string]int64
}

func (m *meter) Do(r *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	m.mu.Lock()
	m.sent[operation]++
	m.mu.Unlock()
	return m.next.Do(r)
}

func (m *meter) snapshot() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.sent)
}

// flaky loses the answer to every third put, after it was executed.
type flaky struct {
	next  aws.HTTPClient
	mu    sync.Mutex
	calls int
	lost  int
}

func (f *flaky) Do(r *http.Request) (*http.Response, error) {
	resp, err := f.next.Do(r)
	if err != nil || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutItem") {
		return resp, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.calls%3 != 0 {
		return resp, nil
	}
	f.lost++
	return nil, errors.Join(errors.New("connection reset"), resp.Body.Close())
}

// deployment is one table, the blobs and the records of executions, which outlive any machine over them.
type deployment struct {
	t          *testing.T
	table      *fault.Table
	meter      *meter
	watch      *store.Journal // reads beside the meter
	blobs      *store.MemoryBlobs
	executions *store.Memory
	dir        string
	def        *agent.Definition
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	return deployOver(t, func(c aws.HTTPClient) aws.HTTPClient { return c })
}

// deployOver is deploy with something between the table and the engine behind it.
func deployOver(t *testing.T, between func(aws.HTTPClient) aws.HTTPClient) *deployment {
	t.Helper()
	cfg, name := realEngine(t)
	direct := cfg
	m := &meter{next: between(cfg.HTTPClient), sent: map[string]int64{}}
	cfg.HTTPClient = m
	d := &deployment{
		t: t, meter: m, blobs: store.NewMemoryBlobs(), executions: store.NewMemory(), dir: t.TempDir(),
		table: fault.NewTable(dynamo.New(cfg, name, token)),
		watch: store.NewJournal(dynamo.New(direct, name, token), 0),
	}
	d.def = d.definition()
	return d
}

// definition is the demo's agent over the deployment's folder.
func (d *deployment) definition() *agent.Definition {
	def, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(d.t, err)
	def.Name, def.System = "tidy", "You tidy."
	def.Model.Provider, def.Model.ID = "demo", "stand-in"
	def.Limits.Interactions, def.Guards.DuplicateCalls = 60, false // a looker looks at one thing over and over
	tools, err := builtin.PerRun()
	require.NoError(d.t, err)
	for _, b := range tools {
		s := b.Spec()
		s.Root = d.dir
		def.Tools = append(def.Tools, s)
	}
	require.NoError(d.t, def.Check())
	return &def
}

// machine is one process over the deployment.
func (d *deployment) machine(model runtime.Model, warm int) *local.Machine {
	d.t.Helper()
	tools, err := builtin.PerRun()
	require.NoError(d.t, err)
	reg, err := registry.New(tools...)
	require.NoError(d.t, err)
	c := clock.System()
	random := ids.System(c)
	m, err := local.New(local.Config{
		Table: store.Resend(d.table, c, random.Jitter), Blobs: d.blobs, Model: model, Tools: reg.Tools(), Agents: reg.Agent,
		Clock: c, IDs: random, Executions: local.NewExecutions(d.executions), Warm: warm,
	})
	require.NoError(d.t, err)
	return m
}

func (d *deployment) start(m *local.Machine, key string) (run.AgentState, error) {
	return m.Starter.Start(d.t.Context(), runtime.Start{
		Tenant: tenant, Agent: d.def, Key: key, Message: []run.UserBlock{{Block: run.Text{Text: "Tidy up."}}},
	})
}

// settled waits until the run is done, or parked on a request nobody has decided.
func (d *deployment) settled(runID string) run.AgentState {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 30*time.Second)
	defer cancel()
	for {
		head, err := d.watch.Head(ctx, tenant, runID)
		require.NoError(d.t, err)
		if head.Status == run.RunDone || head.Status == run.RunWaiting && head.Token != "" {
			l, err := d.watch.Load(ctx, tenant, runID)
			require.NoError(d.t, err)
			if len(l.Inbox) == 0 && l.State.Status == head.Status { // it may have gone on between the two reads
				return l.State
			}
		}
		require.NoError(d.t, clock.System().Sleep(ctx, 2*time.Millisecond))
	}
}

// ended closes a machine whose run is done, once its execution has ended too: closed any earlier, the engine takes the context away from a
// write whose answer is still under way, and what it cost is not counted.
func (d *deployment) ended(m *local.Machine) {
	d.t.Helper()
	for len(m.Engine.List(d.t.Context(), asl.Running)) > 0 {
		require.NoError(d.t, clock.System().Sleep(d.t.Context(), time.Millisecond))
	}
	require.NoError(d.t, m.Engine.Close())
}

// requireOneRequestEach asserts that what went over the wire is what went through the port, call by call.
func (d *deployment) requireOneRequestEach() {
	d.t.Helper()
	c, sent := d.table.Counts(), d.meter.snapshot()
	require.Equal(d.t, c.Gets, sent["GetItem"])
	require.Equal(d.t, c.Queries, sent["Query"])
	require.Equal(d.t, c.Writes, sent["PutItem"]+sent["UpdateItem"])
	require.Equal(d.t, c.Transactions, sent["TransactWriteItems"])
	require.Len(d.t, sent, 5, "and nothing else: %v", sent)
}

// TestRunParksIsApprovedInAnotherProcessAndEnds: two files, two approvals, each given in a process that has not seen the run.
func TestRunParksIsApprovedInAnotherProcessAndEnds(t *testing.T) {
	d := deploy(t)
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "a.txt"), []byte("Team meeting\nTuesday"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "b.txt"), []byte("Shopping list\nmilk"), 0o600))
	m := d.machine(local.DemoModel{}, 0)
	s, err := d.start(m, "k")
	require.NoError(t, err)
	waits := 0
	for s = d.settled(s.Run); s.Status != run.RunDone; s = d.settled(s.Run) {
		waits++
		require.NoError(t, m.Engine.Close())
		m = d.machine(local.DemoModel{}, 0)
		require.NoError(t, m.Resume(t.Context(), tenant))
		_, err := m.Desk.Decide(t.Context(), approval.DecisionInput{
			Tenant: tenant, ID: s.Waits()[0].Wait.Approval, Action: approval.Approve,
			By: policy.Principal{ID: "user:local", Groups: []string{"group:operators"}},
		})
		require.NoError(t, err)
	}
	d.ended(m)
	require.Equal(t, 2, waits)
	require.Equal(t, run.ReasonNaturalEnd, s.Reason)
	require.FileExists(t, filepath.Join(d.dir, "team_meeting.txt"))
	require.FileExists(t, filepath.Join(d.dir, "shopping_list.txt"))
	d.requireOneRequestEach()
	t.Logf("two approved calls: %+v", d.table.Counts())
}

// TestConcurrentStarts is R1: a hundred clients with one key, half of them in another process, make one run and get one answer.
func TestConcurrentStarts(t *testing.T) {
	d := deploy(t)
	machines := []*local.Machine{d.machine(local.DemoModel{}, 8), d.machine(local.DemoModel{}, 8)}
	const clients = 100
	answers := make([]run.AgentState, clients)
	errs := make([]error, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { answers[i], errs[i] = d.start(machines[i%2], "one key") })
	}
	all.Wait()
	type answer struct {
		run, owner, body string
		started          time.Time
	}
	of := func(s run.AgentState) answer { return answer{s.Run, s.Owner, s.BodyDigest, s.StartedAt} }
	for i := range clients {
		require.NoError(t, errs[i])
		require.Equal(t, of(answers[0]), of(answers[i]))
	}
	s := d.settled(answers[0].Run)
	require.Equal(t, run.RunDone, s.Status)
	heads, next, err := d.watch.List(t.Context(), tenant, run.RunDone, 0, "")
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, heads, 1, "one run")
	_, err = machines[0].Starter.Start(t.Context(), runtime.Start{
		Tenant: tenant, Agent: d.def, Key: "one key", Message: []run.UserBlock{{Block: run.Text{Text: "Something else."}}},
	})
	require.ErrorIs(t, err, runtime.ErrKeyReused)
	for _, m := range machines {
		require.NoError(t, m.Engine.Close())
	}
}

// looker is a model that lists the folder so many times and then ends.
type looker struct{ times int }

func (l looker) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	seen := (len(r.Messages) - 1) / 2 // a turn and its results, each time
	if seen >= l.times {
		return agent.Reply{Model: "looker", Text: "Done.", StopReason: "end_turn"}, nil
	}
	return agent.Reply{Model: "looker", StopReason: "tool_use", Calls: []agent.ReplyCall{
		{ID: agent.CallID("", func(string) bool { return false }, int64(seen+1), 0), Name: "list_directory", Input: json.RawMessage(`{"path":"."}`)},
	}}, nil
}

// TestRequestsOfAnIteration counts on the wire what protocol.md says a plain iteration costs: two Queries and two conditional puts,
// 2 WCU, cold and warm. What remains when iterations are taken away is start and end: a transaction each.
func TestRequestsOfAnIteration(t *testing.T) {
	for _, warm := range []int{0, 8} {
		run := func(times int) (map[string]int64, fault.Counts) {
			d := deploy(t)
			m := d.machine(looker{times}, warm)
			s, err := d.start(m, "k")
			require.NoError(t, err)
			s = d.settled(s.Run)
			d.ended(m)
			require.Equal(t, run.ReasonNaturalEnd, s.Reason)
			require.Len(t, s.Calls(), times)
			return d.meter.snapshot(), d.table.Counts()
		}
		few, fewCounts := run(3)
		many, manyCounts := run(13)
		require.EqualValues(t, 2*10, many["Query"]-few["Query"])
		require.EqualValues(t, 2*10, many["PutItem"]-few["PutItem"])
		for _, none := range []string{"GetItem", "UpdateItem", "TransactWriteItems"} {
			require.Equal(t, few[none], many[none], none)
		}
		require.EqualValues(t, 2, many["TransactWriteItems"], "start and end")
		require.EqualValues(t, 2*10, manyCounts.WCU-fewCounts.WCU)
		t.Logf("warm %d: 13 iterations: %v, %+v", warm, many, manyCounts)
	}
}

// TestRunOverAFlakyConnection: entries that were written and whose answers were lost are found again by their writer, not written twice.
func TestRunOverAFlakyConnection(t *testing.T) {
	var f *flaky
	d := deployOver(t, func(c aws.HTTPClient) aws.HTTPClient { f = &flaky{next: c}; return f })
	const times = 3
	m := d.machine(looker{times}, 8)
	s, err := d.start(m, "k")
	require.NoError(t, err)
	s = d.settled(s.Run)
	d.ended(m)
	require.Equal(t, run.ReasonNaturalEnd, s.Reason)
	require.Len(t, s.Calls(), times)
	require.EqualValues(t, 1+2*times+1, s.Entries, "start, a reply and its results each time, end")
	require.Positive(t, f.lost)
}
