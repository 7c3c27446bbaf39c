package lambdafn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/aws/aws-lambda-go/lambda/messages"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign"
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// deployed is the functions over honest fakes.
type deployed struct {
	*Deployment
	t      *testing.T
	rows   *store.Memory
	blobs  *store.MemoryBlobs
	replys []agent.Reply
	asked  int
	paid   int
	woken  []string
}

// payC1 is a model that calls pay once, as c1.
var payC1 = []agent.Reply{{Calls: []agent.ReplyCall{{ID: "c1", Name: "pay"}}}}

func inBubble(t *testing.T, f func(t *testing.T, d *deployed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		d := &deployed{t: t, rows: store.NewMemory(), blobs: store.NewMemoryBlobs()}
		blobs := d.blobs
		def := must(agent.PresetDefaults(agent.PresetCountersign))
		def.Name, def.System = "clerk", "You work."
		def.Model.Provider, def.Model.ID = "demo", "m"
		def.Tools = []agent.ToolSpec{{
			Name: "pay", Kind: agent.KindInternal, Description: "Pays.", Effect: run.EffectNonIdempotent, Schema: json.RawMessage(`{"type":"object"}`),
		}}
		d.Deployment = &Deployment{
			Ports: runtime.Ports{
				Table: d.rows, Journal: store.NewJournal(d.rows, 0), Blobs: blobs, Model: d, Tools: d,
				Valid: tool.Validate, Waiter: d, Clock: c, IDs: clock.SeededIDs(c, 1),
			},
			Definitions: runtime.PinnedDefinitions(blobs),
			Agents: func(name string) (*agent.Definition, bool) {
				return &def, name == def.Name
			},
		}
		d.Compose()
		f(t, d)
	})
}

func (d *deployed) Ask(context.Context, agent.Request) (agent.Reply, int, error) {
	d.asked++
	if d.asked <= len(d.replys) {
		return d.replys[d.asked-1], 1, nil
	}
	return agent.Reply{Model: "m", Text: "Done."}, 1, nil
}

func (d *deployed) Lookup(name string) (tool.Tool, bool) { return d, name == "pay" }

func (d *deployed) Spec() agent.ToolSpec { return agent.ToolSpec{Name: "pay"} }

func (d *deployed) Call(context.Context, tool.Call) (agent.ToolResultData, error) {
	d.paid++
	return agent.ToolResultData{Content: "paid"}, nil
}

func (d *deployed) Success(_ context.Context, token string) error {
	d.woken = append(d.woken, token)
	return nil
}

func (d *deployed) Start(context.Context, string, string, string) error { return nil }

func (d *deployed) Stop(context.Context, string, string) error { return nil }

func (d *deployed) Status(context.Context, string) (runtime.ExecutionStatus, error) {
	return runtime.ExecutionRunning, nil
}

// invoke sends a function the payload that its state makes of the execution's name and the state's input.
func (d *deployed) invoke(function, execution, state string) (runtime.Route, error) {
	payload := fmt.Sprintf(
		`{"execution":"arn:aws:states:eu-west-1:1:execution:m:%s","name":%q,"state":%s}`, execution, execution, state,
	)
	out, err := d.Invoke(context.Background(), function, []byte(payload))
	var r runtime.Route
	if err == nil {
		require.NoError(d.t, json.Unmarshal(out, &r))
	}
	return r, err
}

func (d *deployed) must(function, state string) runtime.Route {
	d.t.Helper()
	r, err := d.invoke(function, "exec-1", state)
	require.NoError(d.t, err)
	return r
}

func (d *deployed) state(run string) run.AgentState {
	d.t.Helper()
	l, err := d.Ports.Journal.Load(context.Background(), "default", run)
	require.NoError(d.t, err)
	return l.State
}

// must is the value of a call that has to succeed.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func asState(t *testing.T, r runtime.Route) string {
	t.Helper()
	b := must(json.Marshal(r))
	return string(b)
}

func requireKind(t *testing.T, want Kind, err error) {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Kind, "%v", err)
}

// An event starts a run under its own key, or under the execution's name; what it carried is not passed on.
func TestStartByEvent(t *testing.T) {
	for name, c := range map[string]struct{ event, key, said string }{
		"a message with a key": {`{"agent":"clerk","message":"Pay Ana.","key":"evt-1"}`, "evt-1", "Pay Ana."},
		"input with a key": {
			`{"agent":"clerk","input":{"amount":1e400,"parentSubject$$":"s"},"key":"evt-1"}`, "evt-1", `{"amount":1e400}`,
		},
		"a message without a key": {`{"agent":"clerk","message":[{"type":"text","text":"Pay Ana."}]}`, "exec-1", "Pay Ana."},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *deployed) {
				r := d.must("step", c.event)
				runID := agent.RunID("default", "clerk", c.key)
				require.Equal(t, runtime.Route{Tenant: "default", Run: runID, Next: runtime.NextDone}, r)
				s := d.state(runID)
				require.Equal(t, "exec-1", s.Owner)
				require.Equal(t, run.Text{Text: c.said}, s.Messages.At(0).Block)
			})
		})
	}
}

// Whom an event says that its run is for is not known: under four eyes it takes two people, and none of them is that
// one.
func TestAnEventsSubjectIsNoStarter(t *testing.T) {
	inBubble(t, func(t *testing.T, d *deployed) {
		def, _ := d.Agents("clerk")
		def.Permission.Approvers = []string{"group:finance"}
		def.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAsk, FourEyes: true}}
		d.replys = payC1
		r := d.must("step", `{"agent":"clerk","message":"Pay Ana.","key":"evt-1","subject":"user:nobody"}`)
		d.must("tool", asState(t, r))
		asked := must(approval.Get(t.Context(), d.rows, "default", run.ApprovalID(r.Run, "c1", 1)))
		require.True(t, asked.StarterUnknown)
		require.Equal(t, 2, asked.Quorum)
		require.Equal(t, []string{"user:nobody"}, asked.Requesters)
	})
}

// What TestBadTasks does not have: keys that are right, and not together.
func TestBadEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, d *deployed) {
		for state, want := range map[string]string{
			`{"agent":"clerk"}`:                                                            "want message or input",
			`{"agent":"clerk","message":"Hi.","input":1}`:                                  "want one of them",
			`{"agent":"clerk","input":{"a":1,"a":2}}`:                                      "a",
			`{"tenant":"default","run":"rnone"}`:                                           "no such run",
			`{"agent":"clerk","message":[{"type":"tool_result","id":"c1","content":"x"}]}`: "message: ",
		} {
			_, err := d.invoke("step", "exec-1", state)
			requireKind(t, KindInvalid, err)
			require.ErrorContains(t, err, want)
			require.Zero(t, d.asked)
		}
	})
}

// From start to end as the state machine goes: what travels leads from function to function.
func TestThreeFunctionsMakeARun(t *testing.T) {
	inBubble(t, func(t *testing.T, d *deployed) {
		d.replys = payC1
		r := d.must("step", `{"agent":"clerk","message":"Pay Ana."}`)
		r = d.must("tool", asState(t, r))
		r = d.must("step", asState(t, r))
		require.Equal(t, runtime.NextWait, r.Next)
		require.Equal(t, int64(2), r.Woken)
		require.Equal(t, int64(24*3600), r.WaitSeconds)
		approve := func(token string, retries, redrives int) {
			payload := fmt.Sprintf(
				`{"name":"exec-1","state":%s,"token":%q,"retries":%d,"redrives":%d}`, asState(t, r), token, retries, redrives,
			)
			require.NoError(t, errOf(d.Invoke(context.Background(), "approve", []byte(payload))))
		}
		approve("t-redriven", 0, 1)
		approve("t-slow", 3, 0)
		h := must(d.Ports.Journal.Head(context.Background(), "default", r.Run))
		require.Equal(t, "t-redriven", h.Token, "a redrive is later than every retry before it")
		require.Equal(t, []string{"t-slow"}, d.woken)
		approve("t-retried", 1, 1)
		h = must(d.Ports.Journal.Head(context.Background(), "default", r.Run))
		require.Equal(t, "t-retried", h.Token)
	})
}

// A step that gave up is recorded as the run's end, with the error's name and without its text.
func TestFailureIsRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, d *deployed) {
		d.replys = payC1
		r := d.must("step", `{"agent":"clerk","message":"Pay Ana."}`)
		failed := fmt.Sprintf(`{"tenant":"default","run":%q,"failure":{"Error":"Sandbox.Timedout","Cause":"secret"}}`, r.Run)
		require.Equal(t, runtime.NextFailed, d.must("step", failed).Next)
		s := d.state(r.Run)
		require.Equal(t, run.ReasonError, s.Reason)
		require.Contains(t, s.Error.Message, "Sandbox.Timedout")
		require.NotContains(t, s.Error.Message, "secret")
		require.Equal(t, runtime.NextFailed, d.must("step", failed).Next, "again")
	})
}

// Each error has one kind, and its name is what the state machine sees.
func TestClassify(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind Kind
	}{
		{store.ErrThrottled, KindThrottled}, {store.ErrConflict, KindThrottled},
		{fmt.Errorf("%w: %w", runtime.ErrContention, store.ErrSequenceTaken), KindContention},
		{store.ErrNoRun, KindInvalid}, {runtime.ErrKeyReused, KindInvalid},
		{&runtime.BadStart{Problem: "no"}, KindInvalid}, {&run.ApplyError{Event: "parked"}, KindInternal},
		{store.ErrTooLarge, KindInternal}, {store.ErrInvalid, KindInternal}, {store.ErrNoBlob, KindInternal},
		{errors.New("connection reset"), KindUnavailable}, {context.DeadlineExceeded, KindUnavailable},
		{&Error{KindInvalid, store.ErrThrottled}, KindInvalid},
	} {
		err := classify(fmt.Errorf("step run r: %w", c.err))
		requireKind(t, c.kind, err)
		require.ErrorIs(t, err, c.err)
		var reported messages.InvokeResponse_Error
		require.ErrorAs(t, withErrorName(err), &reported, "what the Lambda runtime reports")
		require.Equal(t, string(c.kind), reported.Type)
	}
	require.NoError(t, classify(nil))
	require.NoError(t, withErrorName(nil))
}

// An agent that needs a program on the machine, or whose file is wrong, is left out, told once, and whoever starts it
// is told why; the others work. What the registry says of one that is left out holds for its open runs all the same.
func TestAgentsThatNeedPrograms(t *testing.T) {
	all, files := registry.Must(registry.New()), fstest.MapFS{}
	for name, more := range map[string]string{
		"files": `mcp: [{name: web, url: "https://x.example"}, {name: fs, command: [server-filesystem, /data]}]`,
		"web":   `mcp: [{name: web, url: "https://x.example"}]`, "plain": "", "broken": "colour: red",
	} {
		files[name+"/agent.yaml"] = &fstest.MapFile{Data: []byte("name: " + name + "\nsystem: s\nmodel: {provider: bedrock, id: m}\n" + more)}
	}
	require.NoError(t, all.AddFS(files))
	const why = "agent files needs a program on this machine (mcp server fs has a command) and cannot run in a deployed function"
	const broken = "agent broken cannot be loaded: broken/agent.yaml:4: colour: got an unknown key"
	var told []string
	able := &deployable{all: all, log: func(text string) { told = append(told, text) }}
	require.Equal(t, []string{"plain", "web"}, able.Agents())
	for name, there := range map[string]bool{"files": false, "web": true, "plain": true, "ghost": false} {
		_, ok := able.Agent(name)
		require.Equal(t, there, ok, name)
	}
	require.Equal(t, why, able.Unfit("files"))
	require.Equal(t, []string{why}, told)
	require.Equal(t, "agent web has a model without a price and cannot run under a TenantBudget in USD",
		(&deployable{all: all, priced: true, log: func(string) {}}).Unfit("web"))
	require.Empty(t, able.Unfit("web"))
	require.Empty(t, able.Unfit("ghost"))

	h := &Deployment{Agents: able.Agent, Unfit: able.Unfit}
	for name, says := range map[string]string{"files": "start run: " + why, "broken": "start run: " + broken, "ghost": `start run: agent "ghost" is not known to this deployment`} {
		_, err := h.create(context.Background(), &event{Name: "x", State: state{Agent: name}})
		require.ErrorContains(t, err, says)
		require.ErrorAs(t, err, new(*Error))
	}

	pinned := readableDefinitions(runtime.WithCurrentPolicy(func(_ context.Context, _, name string) (*agent.Definition, error) {
		return &agent.Definition{Name: name, Delegators: map[string][]string{"web": {"broken"}}[name],
			Builder: map[string]string{"newer": "brief"}[name]}, nil
	}, all.Agent), all)
	def := must(pinned(t.Context(), "default", "files"))
	require.Len(t, def.Now.Servers, 2)
	for name, says := range map[string]string{"broken": broken, "web": broken, "newer": `agent newer: builder: got "brief"`} {
		_, err := pinned(t.Context(), "default", name)
		require.ErrorContains(t, err, says)
		require.Equal(t, KindOtherVersion, kindOf(err), "the execution ends and its run is left open")
	}
}

// machineState is a state of the state machine, as far as errors go.
type machineState struct {
	Type     string
	Resource string
	Retry    []struct{ ErrorEquals []string }
	Catch    []struct {
		ErrorEquals []string
		Next        string
	}
}

func states(t *testing.T) map[string]machineState {
	t.Helper()
	var m struct{ States map[string]machineState }
	require.NoError(t, json.Unmarshal(countersign.StateMachine, &m))
	return m.States
}

// The kinds that pass by themselves are those that the state machine's functions are retried for, no more and no fewer.
func TestRetriedKindsAreTheStateMachines(t *testing.T) {
	functions := 0
	for name, s := range states(t) {
		if !strings.Contains(s.Resource, "lambda:invoke") {
			continue
		}
		functions++
		named := map[Kind]bool{}
		for _, r := range s.Retry {
			for _, e := range r.ErrorEquals {
				if strings.HasPrefix(e, "Countersign.") {
					named[Kind(e)] = true
				}
			}
		}
		want := retried
		if name == "Step" {
			want = append(slices.Clone(retried), KindTooManyRuns)
		}
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(named)), "state %s", name)
	}
	require.Equal(t, 4, functions, "Step, Tools, Approve, RecordFailure")
}

// No error, retried in vain or not retried at all, leaves an execution without its end on record.
func TestEveryTaskCatchesEverything(t *testing.T) {
	for name, s := range states(t) {
		if s.Type != "Task" {
			continue
		}
		last := s.Catch[len(s.Catch)-1]
		require.Equal(t, []string{"States.ALL"}, last.ErrorEquals, name)
		want := "RecordFailure"
		if name == want {
			want = "Failed"
		}
		require.Equal(t, want, last.Next, name)
	}
}
