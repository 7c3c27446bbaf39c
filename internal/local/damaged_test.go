package local

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// rolledBack is a machine and a run that waits for a person, in a store that another version has had as well.
type rolledBack struct {
	executions *Executions // of all its machines
	t          *testing.T
	table      *store.Memory
	blobs      *store.MemoryBlobs
	clock      *clock.Virtual
	machine    *Machine
	def        agent.Definition
	run        string
	asked      string // the request
	owner      string
	entered    int
}

func (r *rolledBack) Lookup(string) (tool.Tool, bool) { return r, true }

func (r *rolledBack) Spec() agent.ToolSpec { return r.def.Tools[0] }

func (r *rolledBack) Call(context.Context, tool.Call) (agent.ToolResultData, error) {
	r.entered++
	return agent.ToolResultData{Content: "paid"}, nil
}

// withParkedRun has f do with a run that waits what it likes, on a virtual clock.
func withParkedRun(t *testing.T, f func(r *rolledBack)) {
	t.Helper()
	d := define(t, "payer", agent.ToolSpec{
		Name: "pay", Kind: agent.KindInternal, Effect: run.EffectNonIdempotent, Description: "Pays.", Timeout: time.Minute,
		Schema: json.RawMessage(`{"type":"object","properties":{"amount":{"type":"number"}},"required":["amount"]}`),
	})
	d.Permission.Default, d.Permission.Approvers = agent.DefaultAsk, []string{"group:operators"}
	v := clock.NewVirtual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := &rolledBack{t: t, executions: NewExecutions(store.NewMemory()), table: store.NewMemory(), blobs: store.NewMemoryBlobs(), clock: v, def: *d}
	require.NoError(t, r.clock.Run(func() {
		r.open()
		s, err := r.machine.Starter.Start(context.Background(), runtime.Start{Tenant: Tenant, Agent: &r.def, Key: "k", Message: message("Pay.")})
		require.NoError(t, err)
		r.run = s.Run
		h := r.until(func(h store.Head) bool { return h.Token != "" })
		r.owner = h.Owner
		l, err := r.machine.Ports.Journal.Load(context.Background(), "default", r.run)
		require.NoError(t, err)
		r.asked = l.State.Waits()[0].Wait.Approval
		f(r)
	}))
}

// open makes a machine over the store, as a deployment does: nothing is warm.
func (r *rolledBack) open() {
	if r.machine != nil {
		require.NoError(r.t, r.machine.Engine.Close())
	}
	var err error
	r.machine, err = New(Config{
		Table: r.table, Blobs: r.blobs, Model: replying{calls("c1", "pay", `{"amount":40}`), farewell}, Tools: r, Clock: r.clock,
		IDs: clock.SeededIDs(r.clock, uint64(7+len(r.table.All()))), Executions: r.executions,
		Agents: func(string) (*agent.Definition, bool) { return &r.def, true },
	})
	require.NoError(r.t, err)
}

// until lets the machine work until the run's view is as wanted.
func (r *rolledBack) until(ok func(h store.Head) bool) store.Head {
	r.t.Helper()
	for range 7200 {
		h, err := r.machine.Ports.Journal.Head(context.Background(), "default", r.run)
		require.NoError(r.t, err)
		if ok(h) {
			return h
		}
		require.NoError(r.t, r.clock.Sleep(context.Background(), time.Second))
	}
	r.t.Fatal("the run does not get there")
	return store.Head{}
}

func (r *rolledBack) key(sk string) store.Key {
	return store.Key{PK: "T#default#RUN#" + r.run, SK: sk}
}

// replace writes something else in an item's place and gives what was there.
func (r *rolledBack) replace(k store.Key, from, to string) store.Item {
	r.t.Helper()
	it, found, err := r.table.Get(context.Background(), k)
	require.NoError(r.t, err)
	require.True(r.t, found)
	was := it
	it.Body = []byte(strings.Replace(string(it.Body), from, to, 1))
	require.NotEqual(r.t, string(was.Body), string(it.Body))
	r.put(it)
	return was
}

func (r *rolledBack) put(it store.Item) {
	r.t.Helper()
	require.NoError(r.t, r.table.Write(context.Background(), store.Op{Kind: store.Put, Item: it}))
}

// otherForms are what another version may have written about a run that waits, each with what puts it back.
var otherForms = map[string]func(r *rolledBack) store.Item{
	"a fact":       inEntry(`"parked":`, `"halted":`),
	"a key":        inEntry(`"digest":`, `"weight":3,"digest":`),
	"a wait":       inEntry(`"digest":`, `"for":"review","digest":`),
	"an entry":     inEntry(`"v":1`, `"v":2`),
	"a definition": otherDefinition,
}

// inEntry has the entry that parked the run say something else.
func inEntry(from, to string) func(r *rolledBack) store.Item {
	return func(r *rolledBack) store.Item { return r.replace(r.key("J#0000000002"), from, to) }
}

// otherDefinition pins the run to one with a key that this build would leave out.
func otherDefinition(r *rolledBack) store.Item {
	l, err := r.machine.Ports.Journal.Load(context.Background(), "default", r.run)
	require.NoError(r.t, err)
	raw, err := r.blobs.Get(context.Background(), "default", l.State.Definition)
	require.NoError(r.t, err)
	raw = []byte(strings.Replace(string(raw), `{"name":`, `{"oversight":"strict","name":`, 1))
	digest := store.BlobDigest(raw)
	require.NoError(r.t, r.blobs.Put(context.Background(), "default", digest, raw))
	return r.replace(r.key("J#0000000000"), l.State.Definition, digest)
}

// TestWhatCannotBeReadIsLeftAlone is a deployment that is rolled back, or under way: of a run that this version cannot
// read, it writes nothing, enters no tool, neither fails nor cancels it, and says what it met; once it can be read, the
// run goes on to its end (R12).
func TestWhatCannotBeReadIsLeftAlone(t *testing.T) {
	for name, write := range otherForms {
		t.Run(name, func(t *testing.T) {
			withParkedRun(t, func(r *rolledBack) {
				was := write(r)
				r.open()
				before := r.table.All()
				r.refuses("step", "")
				r.refuses("step", `,"failure":{"Error":"Countersign.Internal","Cause":""}`)
				r.refuses("tool", "")
				_, err := r.machine.Canceller.Cancel(context.Background(), "default", r.run, "user:ana", "")
				require.ErrorIs(t, err, store.ErrDamaged)
				if name != "a definition" { // whose run reads: its execution is started, and fails by itself
					_, err = r.machine.Sweeper.Repair(context.Background(), "default", r.run)
					require.ErrorIs(t, err, store.ErrDamaged)
				}
				require.NoError(t, r.machine.Resume(context.Background(), "default", ""), "other runs are not kept from going on")
				require.Equal(t, before, r.table.All(), "nothing is written")
				require.Zero(t, r.entered)

				r.put(was) // what can be read is there again
				r.open()
				require.NoError(t, r.machine.Resume(context.Background(), "default", ""))
				r.until(func(h store.Head) bool { return h.Token != "" && h.Status == run.RunWaiting })
				_, err = r.machine.Desk.Decide(context.Background(), approval.DecisionInput{
					Tenant: "default", ID: r.asked, Action: approval.Approve, By: clerks,
				})
				require.NoError(t, err)
				h := r.until(func(h store.Head) bool { return h.Status == run.RunDone })
				require.Equal(t, run.ReasonNaturalEnd, h.Reason)
				require.Equal(t, 1, r.entered)
			})
		})
	}
}

// refuses wants a function to fail by an error that names the run and says what to do, and that leaves the run to another
// version: that of the attempt that was woken, or of the one that records a failure.
func (r *rolledBack) refuses(function, failure string) {
	r.t.Helper()
	d := &lambdafn.Deployment{Ports: r.machine.Ports, Definitions: r.machine.Definitions, Agents: r.machine.Agents}
	_, err := d.Compose().Invoke(context.Background(), function, fmt.Appendf(nil,
		`{"execution":"e","name":%q,"state":{"tenant":"default","run":%q,"woken":2,"at":0%s}}`, r.owner, r.run, failure))
	var e *lambdafn.Error
	require.ErrorAs(r.t, err, &e, function)
	require.Equal(r.t, lambdafn.KindOtherVersion, e.Kind, function)
	require.ErrorIs(r.t, err, store.ErrDamaged)
	require.ErrorContains(r.t, err, r.run)
	require.ErrorContains(r.t, err, "deploy the version that wrote it")
}
