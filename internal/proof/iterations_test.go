package proof

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// iteration is what one iteration asked of the table, and what the run was after it.
type iteration struct {
	fault.Counts
	live int // messages
}

// meter reads the counts at every reply.
type meter struct {
	lab *lab

	mu   sync.Mutex
	last fault.Counts
	all  []iteration // by inference
}

func (m *meter) Committed(_ context.Context, e run.Entry, s *run.AgentState) {
	for _, fact := range e.Events {
		if _, ok := fact.(run.Replied); ok {
			m.replied(s)
		}
	}
}

func (m *meter) replied(s *run.AgentState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.lab.table.Counts()
	m.all = append(m.all, iteration{Counts: now.Sub(m.last), live: s.Messages.Len()})
	m.last = now
}

// most is the largest of a figure over some iterations, a..b both included, from 1. The first iteration holds the start.
func (m *meter) most(a, b int, figure func(iteration) int64) int64 {
	var out int64
	for _, i := range m.all[a-1 : min(b, len(m.all))] {
		out = max(out, figure(i))
	}
	return out
}

// small is a window that a conversation of 2 KB results fills in about forty messages.
func small(d *agent.Definition) {
	d.Context.Window, d.Context.EvictBelow, d.Context.RoundMinimum, d.Context.Keep, d.Context.Summary = 16_000, 4000, 1000, 11, 256
	d.Context.CompressAfter = 0
}

// endless is a window that nothing fills.
func endless(d *agent.Definition) { d.Context = agent.Context{} }

// TestAgeOfARun: what an iteration costs, after ten of them and after ten thousand.
func TestAgeOfARun(t *testing.T) {
	for _, c := range []struct {
		store        string
		window       string
		warm         int
		small, large int
	}{
		{"memory", "small", 0, 150, 10_000},
		{"memory", "small", 8, 0, 10_000},
		{"memory", "endless", 8, 400, 3_000},
		{"memory", "endless", 0, 60, 300},
		{"bolt", "small", 8, 0, 10_000},
		{"dynamo", "small", 0, 0, 300},
	} {
		t.Run(fmt.Sprintf("%s, window %s, %d warm", c.store, c.window, c.warm), func(t *testing.T) {
			n := sized(c.small, c.large)
			if n == 0 {
				onlyWhole(t)
			}
			m := &meter{}
			define := small
			if c.window == "endless" {
				define = endless
			}
			l := newLab(t, setup{table: stores[c.store](t), model: WorkModel{N: n, Tool: "work_read"}, define: define, warm: c.warm, sink: m})
			m.lab = l
			runID := l.start(t, "age").Run
			require.Equal(t, run.ReasonNaturalEnd, l.untilOver(t, runID).Reason)
			require.Len(t, l.ended.entered, n, "every call was entered")
			require.Len(t, m.all, n+1)
			l.assertItems(t)
			l.assertHandOvers(t, runID)
			m.assertFlat(t, c.window == "small", c.warm > 0)
		})
	}
}

// assertFlat: 2 queries and 2 puts an iteration, and what they read is bounded by the window.
func (m *meter) assertFlat(t *testing.T, evicts, warm bool) {
	t.Helper()
	n := len(m.all) - 1
	young := [2]int{min(60, n/2), min(120, n)} // the window is full by then
	for _, age := range []int{100, 1000, n} {
		if age > n {
			continue
		}
		from := young[0] // all of them, those that hand over among them
		over := m.most(from, age, func(i iteration) int64 { return i.Queries + i.Gets + i.Writes + i.Transactions })
		require.LessOrEqual(t, over, int64(4+12), "requests in one iteration around %d: 4, and in one that hands over those of the executions", age)
		require.LessOrEqual(t, m.most(from, age, func(i iteration) int64 { return i.ItemsWritten }), int64(10), "around %d", age)
		require.LessOrEqual(t, m.most(from, age, func(i iteration) int64 { return i.BytesWritten }), int64(32_000), "around %d", age)
		read := m.most(from, age, func(i iteration) int64 { return i.BytesRead })
		items := m.most(from, age, func(i iteration) int64 { return i.ItemsRead })
		switch {
		case evicts:
			first := m.most(young[0], young[1], func(i iteration) int64 { return i.BytesRead })
			require.LessOrEqual(t, read, first*5/2, "bytes read up to %d: no more than around 100, once more where the successor begins", age)
			require.LessOrEqual(t, items, m.most(young[0], young[1], func(i iteration) int64 { return i.ItemsRead })*5/2, "items read up to %d", age)
			require.LessOrEqual(t, m.most(from, age, func(i iteration) int64 { return int64(i.live) }), int64(60), "live messages around %d", age)
		case warm:
			require.LessOrEqual(t, read, int64(16_000), "bytes read around %d by a process that knows the run", age)
		default: // the conversation is what the model reads, too
			require.LessOrEqual(t, read, int64(age)*2*3000, "bytes read around %d: the live conversation, twice", age)
		}
	}
}

// assertItems: nothing that is written comes near an item's limit, and a view is small however old its run.
func (l *lab) assertItems(t *testing.T) {
	t.Helper()
	require.LessOrEqual(t, l.items.size("HEAD"), 600)
	require.LessOrEqual(t, l.items.size("J"), store.MaxItem/8)
	require.LessOrEqual(t, l.items.size("execution"), 2000)
}

// mostEvents is how long an execution's history may grow before another one takes over (R10).
const mostEvents = 10_000

// assertHandOvers: an execution for each generation, each of them ended well and below 10,000 events.
func (l *lab) assertHandOvers(t *testing.T, run string) {
	t.Helper()
	generation := l.state(t, run).Generation
	all := l.Engine.List(t.Context(), "")
	require.Len(t, all, int(generation)+1, "one execution a generation")
	var names, want []string
	for _, x := range all {
		require.Equal(t, "SUCCEEDED", string(x.Status), x.Name)
		require.Less(t, x.Events, mostEvents, x.Name)
		names, want = append(names, x.Name), append(want, fmt.Sprintf("%s-%d", run, len(want)))
	}
	require.ElementsMatch(t, want, names)
}
