package repotest

// This file counts what a run asks of AWS and writes docs/costs.md of it: its test fails when the document is no
// longer true.

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/template"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/proof"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

var update = flag.Bool("update", false, "write docs/costs.md and testdata/roles.txt again")

const document = "../../docs/costs.md"

// Row is what one run costs, from its start by the API to its end.
type Row struct {
	N, Inferences, Transitions, Invocations int
	Writes, Transactions, Reads             int64 // requests
	Events                                  int64 // on the bus
	WCU, IndexWCU                           int64
	RCU                                     float64
	StoredKB                                int64
	Dollars, PerIteration                   float64
}

// List prices in USD, us-east-1, on demand, arm64; docs/costs.md says so. What one has to check before believing a bill.
const (
	perTransition = 25.0 / 1e6
	perWCU        = 0.625 / 1e6
	perRCU        = 0.125 / 1e6
	perInvocation = 0.20 / 1e6
	perEvent      = 1.00 / 1e6
	perGBSecond   = 0.0000133334
	perLogged     = 0.50 / 1e6 // a KB
	ownSeconds    = 0.010      // of an invocation, less the wait for the model or the tool
)

// price prices a run whose functions were invoked so often; each invocation and transition logs a KB.
func (r *Row) price(p *Project, invoked map[string]int) {
	r.Dollars = float64(r.Transitions)*(perTransition+perLogged) + float64(r.WCU+r.IndexWCU)*perWCU + r.RCU*perRCU + float64(r.Events)*perEvent
	for name, n := range invoked {
		r.Invocations += n
		r.Dollars += float64(n) * (perInvocation + perLogged + p.memoryGB(name)*ownSeconds*perGBSecond)
	}
	r.PerIteration = r.Dollars / float64(r.N)
}

// memoryGB is the memory of a function as it is deployed.
func (p *Project) memoryGB(function string) float64 {
	for _, r := range p.Resources(functionType) {
		if strings.EqualFold(r.ID, function+"Function") {
			memory := p.Property(r, "MemorySize")
			if set := p.Template.Get("Parameters", memory.Short(), "Default"); set != nil {
				memory = set
			}
			mb, err := strconv.Atoi(memory.String())
			if err == nil {
				return float64(mb) / 1024
			}
		}
	}
	panic("no memory of function " + function)
}

// Idle is what something costs in a month in which nothing runs.
type Idle struct {
	What    string
	Count   int
	Dollars float64
}

// idle prices the stack itself. Each time it runs, the sweep writes five metrics and its lease twice, reads its place,
// and queries 28 partitions of the index at half a unit: what is due, and of a tenant requests, ends, deletions, and
// eight each of running runs, waiting runs and unsent events.
func idle(p *Project) (all []Idle, sum float64) {
	watched := 0
	for _, a := range p.Resources("AWS::CloudWatch::Alarm") {
		metrics := 0
		for _, m := range a.Properties.Get("Metrics").Each() {
			if m.Get("MetricStat") != nil {
				metrics++
			}
		}
		watched += max(metrics, 1)
	}
	const sweeps = 30 * 24 * 60 / 5
	sweep := sweeps * (perInvocation + perLogged + p.memoryGB("Sweep")*0.1*perGBSecond + (1+28*0.5)*perRCU + 2*perWCU)
	all = []Idle{
		{"metrics that alarms watch", watched, 0.10 * float64(watched)},
		{"metrics that the sweep writes", 5, 0.30 * 5},
		{"keys of KMS", len(p.Resources("AWS::KMS::Key")), float64(len(p.Resources("AWS::KMS::Key")))},
		{"secrets", len(p.Resources("AWS::SecretsManager::Secret")), 0.40 * float64(len(p.Resources("AWS::SecretsManager::Secret")))},
		{"sweeps", sweeps, sweep},
	}
	for _, i := range all {
		sum += i.Dollars
	}
	return all, sum
}

// index counts what the list index costs: a new or changed entry is written, and one whose place changes is also deleted.
type index struct {
	store.Table
	mu  sync.Mutex
	at  map[store.Key]string
	wcu int64
}

func (x *index) Write(ctx context.Context, ops ...store.Op) error {
	if err := x.Table.Write(ctx, ops...); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, op := range ops {
		before, known := x.at[op.Item.Key]
		switch op.Kind {
		case store.Put:
			if op.Item.Index != "" {
				x.at[op.Item.Key] = op.Item.Index + "\x00" + op.Item.IndexSort
			}
		case store.Update:
			if !known {
				continue
			}
		default:
			continue
		}
		now, is := x.at[op.Item.Key]
		if !is {
			continue
		}
		x.wcu++
		if known && before != now {
			x.wcu++
		}
	}
	return nil
}

// lab is a deployment whose functions each keep a cache of their own, as processes do.
type lab struct {
	*local.Machine
	table       *fault.Table
	index       *index
	executions  *local.Executions
	handlers    map[string]*lambdafn.Deployment
	invocations map[string]int // by function
	events      int64          // on the bus
	mu          sync.Mutex
}

// Emit takes an event for the bus.
func (l *lab) Emit(context.Context, policy.Outgoing) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events++
	return nil
}

func newLab(t *testing.T, m runtime.Model, warm int) *lab {
	t.Helper()
	c := clock.System()
	l := &lab{index: &index{Table: store.NewMemory(), at: map[store.Key]string{}}, executions: local.NewExecutions(store.NewMemory()), invocations: map[string]int{}}
	l.table = fault.NewTable(l.index)
	tools, err := tool.NewSet(proof.Workload(nil)...)
	require.NoError(t, err)
	l.Machine, err = local.New(local.Config{
		Table: l.table, Blobs: store.NewMemoryBlobs(), Model: m, Tools: tools, Agents: func(string) (*agent.Definition, bool) { return nil, false },
		Clock: c, IDs: clock.SeededIDs(c, 1), Executions: l.executions, Publish: l, Wrap: func(local.Invoker) local.Invoker { return l.invoke },
	})
	require.NoError(t, err)
	l.handlers = map[string]*lambdafn.Deployment{}
	for _, name := range []string{"step", "tool", "approve"} {
		p := l.Ports
		p.Journal = store.NewJournal(l.table, warm)
		l.handlers[name] = (&lambdafn.Deployment{Ports: p, Definitions: l.Definitions, Agents: l.Agents}).Compose()
	}
	return l
}

func (l *lab) invoke(ctx context.Context, function string, payload []byte) ([]byte, error) {
	l.mu.Lock()
	l.invocations[function]++
	l.mu.Unlock()
	return l.handlers[function].Invoke(ctx, function, payload)
}

// counted are the rows that were counted, by what was run.
var counted = map[string]Row{}

// runAgent counts a whole run; every wait is approved.
func runAgent(t *testing.T, n int, toolName string, warm int) (row Row) {
	t.Helper()
	key := fmt.Sprint(n, toolName, warm)
	if row, ok := counted[key]; ok {
		return row
	}
	defer func() { counted[key] = row }()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, proof.WorkModel{N: n, Tool: toolName}, warm)
		d, err := proof.WorkAgent("costs", n)
		require.NoError(t, err)
		s, err := l.Starter.Start(t.Context(), proof.StartWork(d, "k"))
		require.NoError(t, err)
		reader := store.NewJournal(l.index, 0) // not counted
		var state run.AgentState
		for {
			synctest.Wait()
			loaded, err := reader.Load(t.Context(), local.Tenant, s.Run)
			require.NoError(t, err)
			if state = loaded.State; state.Status == run.RunDone {
				break
			}
			require.Equal(t, run.RunWaiting, state.Status)
			_, err = l.Desk.Decide(t.Context(), approval.DecisionInput{
				Tenant: local.Tenant, ID: state.Waits()[0].Wait.Approval, Action: approval.Approve,
				By: policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}},
			})
			require.NoError(t, err)
		}
		require.Equal(t, run.ReasonNaturalEnd, state.Reason)
		c := l.table.Counts()
		row = Row{
			N: n, Inferences: int(state.Inferences), Writes: c.Writes, Transactions: c.Transactions,
			Reads: c.Gets + c.Queries, WCU: c.WCU, IndexWCU: l.index.wcu, RCU: c.RCU, StoredKB: (c.BytesWritten + 1023) / 1024,
		}
		l.mu.Lock()
		row.Events = l.events
		l.mu.Unlock()
		for _, x := range l.Engine.List(t.Context(), "") {
			row.Transitions += x.Transitions
		}
		row.price(project(t, nil), l.invocations)
		require.NoError(t, l.Engine.Close())
	})
	return row
}

//go:embed costs.md.tmpl
var text string

// The document says what is counted; -update writes it.
func TestDocument(t *testing.T) {
	var data struct {
		Cold, Warm, Approved []Row
		Idle                 []Idle
		IdleDollars          float64
	}
	data.Idle, data.IdleDollars = idle(project(t, nil))
	for _, n := range []int{10, 50, 100} {
		data.Cold = append(data.Cold, runAgent(t, n, "work_read", 0))
		data.Warm = append(data.Warm, runAgent(t, n, "work_read", 8))
	}
	data.Approved = append(data.Approved, runAgent(t, 1, "work_pay", 8), runAgent(t, 10, "work_pay", 8))
	var out bytes.Buffer
	require.NoError(t, template.Must(template.New("costs").Parse(text)).Execute(&out, data))
	if *update {
		require.NoError(t, os.WriteFile(document, out.Bytes(), 0o600))
	}
	got, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, out.String(), string(got), "docs/costs.md is not what is counted; go test ./internal/repotest -update writes it, and its diff is read")
}

// A plain iteration is three transitions, two writes, at most four units, and no transaction; none grows with the run.
func TestPlainIteration(t *testing.T) {
	short, long := runAgent(t, 10, "work_read", 8), runAgent(t, 50, "work_read", 8)
	per := func(a, b int64) float64 { return float64(b-a) / 40 }
	require.InDelta(t, 3, per(int64(short.Transitions), int64(long.Transitions)), 0)
	require.InDelta(t, 2, per(short.Writes, long.Writes), 0)
	require.LessOrEqual(t, per(short.WCU, long.WCU), 4.0)
	require.Equal(t, short.Transactions, long.Transactions)
	require.Equal(t, short.IndexWCU, long.IndexWCU)
	require.InDelta(t, 2, per(short.Reads, long.Reads), 0, "one for each function, warm")
	require.LessOrEqual(t, (long.RCU-short.RCU)/40, 2.0, "a warm function reads only what is new")
}
