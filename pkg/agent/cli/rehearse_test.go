package cli

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

const rehearsedTenant = "default"

var rehearsedAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rehearsedWorld is a store in which runs are parked.
type rehearsedWorld struct {
	t     *testing.T
	table *store.Memory
	blobs *store.MemoryBlobs
	tools map[string]agent.ToolSpec
	run   string
}

func (w *rehearsedWorld) Lookup(name string) (tool.Tool, bool) {
	spec, ok := w.tools[name]
	return enteredTool{w.t, spec}, ok
}

// enteredTool is a tool that is not to be entered by a rehearsal; in the run itself it never gets so far.
type enteredTool struct {
	t    *testing.T
	spec agent.ToolSpec
}

func (e enteredTool) Spec() agent.ToolSpec { return e.spec }

func (e enteredTool) Call(context.Context, tool.Call) (agent.ToolResultData, error) {
	e.t.Error("a tool was entered")
	return agent.ToolResultData{}, nil
}

// onceModel is a model that calls something and is never asked again.
type onceModel struct {
	t     *testing.T
	asked *bool
	calls []agent.ReplyCall
}

func (o onceModel) Generate(context.Context, agent.Request) (agent.Reply, error) {
	if *o.asked {
		o.t.Error("the model was asked again")
	}
	*o.asked = true
	return agent.Reply{Model: "m", Calls: o.calls}, nil
}

func payTool() agent.ToolSpec {
	return agent.ToolSpec{
		Name: "pay", Kind: agent.KindInternal, Effect: run.EffectNonIdempotent, Description: "Pays.",
		Schema: json.RawMessage(`{"type":"object","properties":{"amount":{"type":"number"}},"required":["amount"]}`), Timeout: time.Minute,
	}
}

func payer() agent.Definition {
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	if err != nil {
		panic(err)
	}
	d.Name, d.Version, d.System = "payer", "1", "You pay."
	d.Model.Provider, d.Model.ID = "demo", "m"
	d.Tools = []agent.ToolSpec{payTool()}
	d.Permission.Default, d.Permission.Approvers = agent.DefaultAsk, []string{"group:operators"}
	return d
}

// parkedRun is a world in which one run of the agent waits, for whatever its calls wait for.
func parkedRun(t *testing.T, def agent.Definition, calls ...agent.ReplyCall) *rehearsedWorld {
	t.Helper()
	w := &rehearsedWorld{t: t, table: store.NewMemory(), blobs: store.NewMemoryBlobs(), tools: map[string]agent.ToolSpec{"pay": payTool()}}
	v := clock.NewVirtual(rehearsedAt)
	asked := false
	m, err := local.New(local.Config{
		Table: w.table, Blobs: w.blobs, Model: onceModel{t, &asked, calls}, Tools: w, Clock: v, IDs: ids.Seeded(v, 7), Executions: &asl.MemoryStore{},
		Agents: func(string) (*agent.Definition, bool) { return &def, true },
	})
	require.NoError(t, err)
	require.NoError(t, v.Run(func() {
		s, err := m.Starter.Start(context.Background(), runtime.Start{Tenant: rehearsedTenant, Agent: &def, Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "Pay."}}}})
		require.NoError(t, err)
		w.run = s.Run
		for range 10 {
			require.NoError(t, v.Sleep(context.Background(), time.Second))
		}
		h, err := m.Ports.Journal.Head(context.Background(), rehearsedTenant, w.run)
		require.NoError(t, err)
		require.Equal(t, run.RunWaiting, h.Status)
	}))
	return w
}

func pay() agent.ReplyCall {
	return agent.ReplyCall{ID: "c1", Name: "pay", Input: json.RawMessage(`{"amount":40}`)}
}

// rehearse rehearses as if now were deployed; nil = the agent is not known any more.
func (w *rehearsedWorld) rehearse(now *agent.Definition) rehearsalReport {
	w.t.Helper()
	before := w.table.All()
	r := rehearsal{
		Table: w.table, Blobs: w.blobs, Tenant: rehearsedTenant, Tools: w, Now: rehearsedAt.Add(time.Hour),
		Agents: func(name string) (*agent.Definition, bool) { return now, now != nil && name == now.Name },
	}
	rep, err := r.All(context.Background())
	require.NoError(w.t, err)
	require.Equal(w.t, before, w.table.All(), "nothing is written")
	return rep
}

// TestNewDefinitions: what each change of a definition does to a run that waits for a person (A17, R12).
func TestNewDefinitions(t *testing.T) {
	const asks = "call c1: people are asked about pay: group:operators"
	for name, c := range map[string]struct {
		change  func(d *agent.Definition)
		next    string
		breaks  string // a part of it; "" = nothing breaks
		changes bool
	}{
		"the same":        {func(*agent.Definition) {}, asks, "", false},
		"another prompt":  {func(d *agent.Definition) { d.System = "You pay well." }, asks, "", false},
		"a looser policy": {func(d *agent.Definition) { d.Permission.Default = agent.DefaultAllow }, asks, "", false},
		"other approvers": {func(d *agent.Definition) { d.Permission.Approvers = []string{"group:finance"} }, asks + ", and group:finance", "", true},
		"a quorum": {func(d *agent.Definition) {
			d.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAsk, Approvers: []string{"group:operators"}, Quorum: 2}}
		}, asks + ", 2 of them", "", true},
		"a deny rule":            {denies("pay"), "call c1: pay is not carried out (denied)", "pay is not carried out (denied), whatever people say", true},
		"the tool is gone":       {func(d *agent.Definition) { d.Tools = nil }, "call c1: pay is not carried out (denied)", "whatever people say", true},
		"a rule for other tools": {denies("send"), asks, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := parkedRun(t, payer(), pay())
			now := payer()
			c.change(&now)
			rep := w.rehearse(&now)
			require.Equal(t, []string{c.next}, rep.Runs[0].Next)
			if c.breaks == "" {
				require.Zero(t, rep.Breaks, "%+v", rep.Runs)
			} else {
				require.Contains(t, strings.Join(rep.Runs[0].Breaks, "\n"), c.breaks)
				require.Equal(t, 1, rep.Breaks)
			}
			require.Equal(t, c.changes, rep.Changes == 1, "%+v", rep.Runs)
		})
	}
}

func denies(tool string) func(*agent.Definition) {
	return func(d *agent.Definition) { d.Permission.Rules = []agent.Rule{{Tool: tool, Verdict: agent.VerdictDeny}} }
}

// TestNewBuilds: what a run needs of the code that is linked, and what this build does not read.
func TestNewBuilds(t *testing.T) {
	d := payer()
	const newer = "deploy the version that wrote it"
	for name, c := range map[string]struct {
		change func(w *rehearsedWorld)
		breaks string // parts of it
		also   string
	}{
		"a newer fact": {func(w *rehearsedWorld) {
			w.rewrite("J#0000000001", func(e map[string]any) {
				e["e"] = append(e["e"].([]any), map[string]any{"call_judged": map[string]any{}})
			})
		}, `"call_judged" is none that this version knows`, newer},
		"a newer definition": {func(w *rehearsedWorld) { w.pinTo([]byte(`{"name":"payer","oversight":"strict"}`)) },
			`definition: json: unknown field "oversight"`, newer},
		"the tool's code is gone": {func(w *rehearsedWorld) { delete(w.tools, "pay") }, "tool pay is not in this build, and call c1 is open", ""},
		"it takes other arguments": {func(w *rehearsedWorld) {
			other := payTool()
			other.Schema = json.RawMessage(`{"type":"object","properties":{"amount":{"type":"string"}},"required":["amount"]}`)
			w.tools["pay"] = other
		}, "the arguments of call c1 are not what tool pay takes in this build", ""},
		"a plugin is gone": {func(w *rehearsedWorld) {
			pinned := payer()
			pinned.Plugins = []agent.PluginSpec{{Name: "audit"}}
			raw, err := jsonx.MarshalVerbatim(pinned)
			require.NoError(t, err)
			w.pinTo(raw)
		}, "code that its definition names is not in this build", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := parkedRun(t, payer(), pay())
			c.change(w)
			rep := w.rehearse(&d)
			require.Equal(t, 1, rep.Breaks)
			require.Contains(t, strings.Join(rep.Runs[0].Breaks, "\n"), c.breaks)
			require.Contains(t, rep.Runs[0].Breaks[0], c.also)
		})
	}
	t.Run("the agent is gone", func(t *testing.T) {
		rep := parkedRun(t, payer(), pay()).rehearse(nil)
		require.Equal(t, []string{"call c1: people are asked about pay: group:operators"}, rep.Runs[0].Next, "it goes on with what it is pinned to")
		require.Equal(t, "unknown", rep.Runs[0].Deployed)
		require.Zero(t, rep.Breaks)
	})
}

// pinTo has the run's first entry name another definition.
func (w *rehearsedWorld) pinTo(raw []byte) {
	w.t.Helper()
	digest := store.BlobDigest(raw)
	require.NoError(w.t, w.blobs.Put(context.Background(), rehearsedTenant, digest, raw))
	w.rewrite("J#0000000000", func(e map[string]any) {
		e["e"].([]any)[0].(map[string]any)["run_started"].(map[string]any)["definition"] = digest
	})
}

// rewrite changes an entry, and the hashes of those behind it: the journal is one that another version wrote.
func (w *rehearsedWorld) rewrite(sk string, change func(map[string]any)) {
	w.t.Helper()
	key := store.Key{PK: "T#" + rehearsedTenant + "#RUN#" + w.run, SK: sk}
	it, found, err := w.table.Get(context.Background(), key)
	require.NoError(w.t, err)
	require.True(w.t, found)
	var e map[string]any
	require.NoError(w.t, json.Unmarshal(it.Body, &e))
	change(e)
	it.Body, err = json.Marshal(e)
	require.NoError(w.t, err)
	require.NoError(w.t, w.table.Write(context.Background(), store.Op{Kind: store.Put, Item: it}))
	behind, err := w.table.Query(context.Background(), store.Range{PK: key.PK, From: sk + "0", To: "J#9999999999"})
	require.NoError(w.t, err)
	if len(behind.Items) > 0 {
		w.rewrite(behind.Items[0].SK, func(e map[string]any) { e["h"] = run.HashBody(it.Body) })
	}
}

// TestServiceCall: a call that a service is to answer goes on waiting for it.
func TestServiceCall(t *testing.T) {
	d := payer()
	d.Tools = []agent.ToolSpec{{Name: "pay", Kind: agent.KindService, Effect: run.EffectNonIdempotent, Schema: payTool().Schema, Description: "Pays.", Timeout: 2 * time.Hour}}
	d.Permission.Default = agent.DefaultAllow
	rep := parkedRun(t, d, pay()).rehearse(&d)
	require.Equal(t, []string{"call c1: pay waits for an answer"}, rep.Runs[0].Next)
	require.Zero(t, rep.Breaks+rep.Changes, "%+v", rep.Runs)
}

// TestUnknownRun names a run that is not open.
func TestUnknownRun(t *testing.T) {
	w := parkedRun(t, payer(), pay())
	r := rehearsal{Table: w.table, Blobs: w.blobs, Tenant: rehearsedTenant, Tools: w, Now: rehearsedAt, Agents: func(string) (*agent.Definition, bool) { return nil, false }}
	_, err := r.All(context.Background(), "rnone")
	require.ErrorIs(t, err, store.ErrNoRun)
}
