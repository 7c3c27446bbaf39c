package repotest

// This file feeds every sample event, functions/*/events/*.json, to the function it is a sample for, and holds
// it to what the README says of it. Samples are what people copy: one that has drifted from the code is worse than
// none.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"

	"github.com/countersign/countersign/internal/store"

	"github.com/countersign/countersign/internal/tool"
)

const (
	sampleRoot = "../.."
	tenant     = "default"
	agentN     = "refunds"
	key        = "order-1002" // of the run that the samples are about
)

var runSample = agent.RunID(tenant, agentN, key)

func readSample(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(sampleRoot, "functions", file))
	require.NoError(t, err)
	return b
}

// samples lists the files of functions, as step/events/first-step.json.
func samples(t *testing.T, functions ...string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(sampleRoot, "functions/*/events/*"))
	require.NoError(t, err)
	var out []string
	for _, path := range found {
		file, err := filepath.Rel(filepath.Join(sampleRoot, "functions"), path)
		require.NoError(t, err)
		if slices.Contains(functions, strings.Split(file, "/")[0]) {
			out = append(out, filepath.ToSlash(file))
		}
	}
	return out
}

// world is a deployment in memory. Each function may do what its role in template.yaml allows, and nothing else.
type world struct {
	t         *testing.T
	table     *store.Memory
	ports     runtime.Ports
	functions map[string]*lambdafn.Deployment
	replies   []agent.Reply
	asked     int
	entered   []string // tools
	woken     []string // task tokens
	emitted   []policy.Outgoing
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		w := &world{t: t, table: store.NewMemory(), functions: map[string]*lambdafn.Deployment{}, replies: replies()}
		blobs := store.NewMemoryBlobs()
		w.ports = w.at(w.table, blobs, c)
		for _, name := range []string{"step", "tool", "approve"} {
			p := w.within(grantsOf(t, strings.ToUpper(name[:1])+name[1:]+"Role"), blobs, c)
			p.Model = w
			d := &lambdafn.Deployment{Ports: p, Definitions: runtime.PinnedDefinitions(p.Blobs), Agents: agents.Registry().Agent}
			w.functions[name] = d.Compose()
		}
		f(t, w)
	})
}

func (w *world) at(table store.Table, blobs store.Blobs, c clock.Clock) runtime.Ports {
	return runtime.Ports{
		Table: table, Journal: store.NewJournal(table, 0), Blobs: blobs, Model: w, Tools: w, Valid: tool.Validate, Waiter: w, Clock: c, IDs: ids.Seeded(c, 1),
		Hooks: agents.Registry().Hooks(), Emit: w,
	}
}

// replies are what the model says in the run: it looks the order up, asks for a refund that a person must countersign, and ends.
func replies() []agent.Reply {
	return []agent.Reply{
		{Model: "m", Calls: []agent.ReplyCall{
			{ID: "c1", Name: "orders_get", Input: json.RawMessage(`{"order":"1002"}`)},
			{ID: "c2", Name: "refunds_create", Input: json.RawMessage(`{"order":"1002","amount":120,"reason":"A wheel is broken."}`)},
		}},
		{Model: "m", Text: "Refunded."},
	}
}

func (w *world) Ask(context.Context, agent.Request) (agent.Reply, int, error) {
	w.asked++
	return w.replies[w.asked-1], 1, nil
}

// Lookup finds the tools of the agent, as they are deployed but for what they do.
func (w *world) Lookup(name string) (tool.Tool, bool) {
	t, ok := agents.Registry().Tools().Lookup(name)
	if !ok {
		return nil, false
	}
	return entered{w, t.Spec()}, true
}

type entered struct {
	w    *world
	spec agent.ToolSpec
}

func (e entered) Spec() agent.ToolSpec { return e.spec }

func (e entered) Call(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
	e.w.entered = append(e.w.entered, e.spec.Name)
	return agent.ToolResultData{Content: "done"}, nil
}

func (w *world) Success(_ context.Context, token string) error {
	w.woken = append(w.woken, token)
	return nil
}

func (w *world) Start(context.Context, string, string, string) error { return nil }

func (w *world) Stop(context.Context, string, string) error { return nil }

func (w *world) Status(context.Context, string) (runtime.ExecutionStatus, error) {
	return runtime.ExecutionRunning, nil
}

// started is POST /v1/runs with the key of the samples.
func (w *world) started() {
	w.t.Helper()
	def, ok := agents.Registry().Agent(agentN)
	require.True(w.t, ok)
	st := runtime.Starter{Ports: w.ports}
	s, err := st.Start(context.Background(), runtime.Start{
		Tenant: tenant, Agent: def, Key: key, Message: []run.UserBlock{{Block: run.Text{Text: "The chair of order 1002 is broken."}}},
	})
	require.NoError(w.t, err)
	require.Equal(w.t, runSample, s.Run, "the samples' run")
	require.Equal(w.t, runSample+"-0", s.Owner, "the samples' execution")
}

// approved is somebody's decision on the request that waits.
func (w *world) approved() {
	w.t.Helper()
	list, _, err := approval.List(context.Background(), w.table, tenant, approval.Query{Status: approval.Pending})
	require.NoError(w.t, err)
	require.Len(w.t, list, 1)
	require.NoError(w.t, w.decide(list[0].ID, "group:operators"))
}

// decide approves a request as somebody of a group.
func (w *world) decide(id, group string) error {
	desk := &approval.Desk{
		Table: w.table, Journal: w.ports.Journal, Clock: w.ports.Clock, Definitions: runtime.PinnedDefinitions(w.ports.Blobs),
		ValidateArgs: tool.Validate, ResumeRun: (&runtime.Waits{Ports: w.ports}).Wake,
	}
	_, err := desk.Decide(context.Background(), approval.DecisionInput{
		Tenant: tenant, ID: id, Action: approval.Approve, By: policy.Principal{ID: "user:ana", Groups: []string{group}},
	})
	return err
}

// feed gives a sample to its function.
func (w *world) feed(file string) []byte {
	w.t.Helper()
	function := strings.Split(file, "/")[0]
	out, err := w.functions[function].Invoke(context.Background(), function, readSample(w.t, file))
	require.NoError(w.t, err, file)
	return out
}

// call is a call of the run.
func (w *world) call(id string) run.Call { return w.callOf(runSample, id) }

func (w *world) callOf(run, id string) run.Call {
	w.t.Helper()
	s := w.state(run)
	c, ok := s.Call(id)
	require.True(w.t, ok, "no such call: %s", id)
	return c
}

func (w *world) state(id string) run.AgentState {
	w.t.Helper()
	l, err := w.ports.Journal.Load(context.Background(), tenant, id)
	require.NoError(w.t, err)
	return l.State
}

// grants are what a role allows in a deployment.
type grants struct {
	lines  []Line
	values Values
}

func grantsOf(t *testing.T, role string) grants {
	t.Helper()
	p, err := Read(sampleRoot, nil)
	require.NoError(t, err)
	values := p.Deployed(nil)
	lines, err := p.Lines(role, values)
	require.NoError(t, err)
	return grants{lines, values}
}

func (g grants) check(action, resource string, leading ...string) error {
	q := Request{Action: action, Resource: resource, Context: map[string][]string{"dynamodb:LeadingKeys": leading}}
	if _, ok := Permit(g.lines, q); !ok {
		return fmt.Errorf("the role in template.yaml does not allow %s on %s %s", action, resource, leading)
	}
	return nil
}

// allow is a hook that refuses what IAM does not let the role do.
func (g grants) allow(_ context.Context, c fault.Call, call func() error) error {
	v := g.values
	table, blob := v["RunsTable.Arn"], v["BlobsBucket.Arn"]+"/T/default/digest"
	execution := strings.Replace(v["AgentStateMachine"], ":stateMachine:", ":execution:", 1) + ":x"
	var err error
	switch {
	case fault.IsIndexQuery(c):
		err = g.check("dynamodb:Query", table+"/index/lists", c.Key.PK)
	case c.Port == fault.TableGet:
		err = g.check("dynamodb:GetItem", table, c.Key.PK)
	case c.Port == fault.TableQuery:
		err = g.check("dynamodb:Query", table, c.Key.PK)
	default:
		for port, on := range map[string][2]string{
			fault.BlobsGet: {"s3:GetObject", blob}, fault.BlobsPut: {"s3:PutObject", blob}, "blobs.Delete": {"s3:DeleteObject", blob},
			fault.WaiterStart: {"states:StartExecution", v["AgentStateMachine"]},
			"waiter.Success":  {"states:SendTaskSuccess", v["AgentStateMachine"]},
			"waiter.Stop":     {"states:StopExecution", execution}, "waiter.Status": {"states:DescribeExecution", execution},
		} {
			if c.Port == port {
				err = g.check(on[0], on[1])
			}
		}
	}
	for _, op := range c.Ops {
		action := map[store.OpKind]string{store.Put: "PutItem", store.Update: "UpdateItem", store.Check: "ConditionCheckItem", store.Delete: "DeleteItem"}[op.Kind]
		if op.Kind == store.Check && len(c.Ops) == 1 {
			action = "GetItem" // as package dynamo does it
		}
		err = errors.Join(err, g.check("dynamodb:"+action, table, op.Item.PK))
	}
	if err != nil {
		return err
	}
	return call()
}

// within returns the ports of a function with that role.
func (w *world) within(g grants, blobs store.Blobs, c clock.Clock) runtime.Ports {
	table := fault.NewTable(w.table)
	table.Use(g.allow)
	p := w.at(table, fault.NewBlobs(blobs, g.allow), c)
	p.Waiter = fault.NewWaiter(w, g.allow)
	return p
}
