package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// narrow gives the run a window that its fourth round fills, in the arithmetic of fixed terms: 224 tokens a round and
// little else.
func (w *world) narrow(change func(x *agent.Context)) {
	zero := 0
	w.def.Context = agent.Context{
		Window: 1000, Reserve: agent.Reserve{System: &zero, Tools: &zero}, EvictBelow: 300, RoundMinimum: 50, Keep: 4, Summary: 500,
	}
	if change != nil {
		change(&w.def.Context)
	}
	for i := range 6 {
		w.model.replies = append(w.model.replies, calls(fmt.Sprintf("look c%d", i)))
	}
	w.gives(func(int) string { return strings.Repeat("r", 640) })
}

// gives has the read tool give a text for each time it is entered.
func (w *world) gives(text func(n int) string) {
	n := 0
	w.tool("look").work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
		n++
		return agent.ToolResultData{Content: text(n)}, nil
	}
}

// evictions are the evictions of the journal, each with the stored names of its entry's facts.
func (w *world) evictions() (evicted []run.Evicted, beside [][]string) {
	for _, e := range w.entries() {
		var names []string
		for _, fact := range e.Events {
			names = append(names, run.EventType(fact))
		}
		for _, fact := range e.Events {
			if fact, ok := fact.(run.Evicted); ok {
				evicted, beside = append(evicted, fact), append(beside, names)
			}
		}
	}
	return evicted, beside
}

// counter is a provider that counts.
type counter struct {
	n     int64
	fail  error
	hangs bool
	asked []agent.Request
}

func (c *counter) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	c.asked = append(c.asked, r)
	if c.hangs {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return c.n, c.fail
}

// A provider is asked to count only where that could turn what is done, and its word counts.
func TestCountTokens(t *testing.T) {
	measured := func(window int) func(x *agent.Context) { // the fourth round leaves 891 and what the tools take
		return func(x *agent.Context) { x.Reserve = agent.Reserve{}; x.EvictBelow, x.Window = 100, window }
	}
	for name, c := range map[string]struct {
		counter counter
		change  func(x *agent.Context)
		evicts  bool
		asks    bool
	}{
		"more than was estimated": {counter{n: 1250}, measured(1300), true, true},
		"less":                    {counter{n: 500}, measured(1000), false, true},
		"it fails":                {counter{fail: errBlown}, measured(1000), true, true},
		"it hangs":                {counter{hangs: true, fail: context.DeadlineExceeded}, measured(1000), true, true},
		"it fails, with room":     {counter{fail: errBlown}, measured(1300), false, true},
		"far from the end":        {counter{n: 1}, measured(100_000), false, false},
		"fixed terms":             {counter{n: 1}, nil, true, false},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.narrow(c.change)
			w.model.replies = w.model.replies[:4]
			var warned []error
			w.ports.Warn = func(_ string, err error) { warned = append(warned, err) }
			w.ports.Count = &c.counter
			w.start()
			require.Equal(t, runtime.NextDone, w.drive(0).Next)
			require.Equal(t, c.evicts, w.state().EvictedMessages > 0)
			require.Equal(t, c.asks, len(c.counter.asked) > 0)
			require.Less(t, len(c.counter.asked), 5, "not while there is room by any estimate")
			if c.counter.fail != nil {
				require.ErrorIs(t, warned[0], c.counter.fail)
			}
		})
	}
}

// What is in a blob is measured by its size, and read once a request.
func TestBlobsAreMeasured(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.narrow(func(x *agent.Context) { x.Window, x.EvictBelow, x.RoundMinimum, x.Keep = 100_000, 5000, 1500, 2 })
		w.model.replies = w.model.replies[:4]
		w.gives(func(n int) string { return strings.Repeat(fmt.Sprint(n), 100_000) })
		b := w.watch()
		w.start()
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		evicted, _ := w.evictions()
		require.Len(t, evicted, 1, "31,250 tokens a result")
		require.EqualValues(t, 7, evicted[0].Total)
		read := map[string]int{}
		for _, digest := range b.got {
			read[digest]++
		}
		for digest, n := range read {
			require.LessOrEqual(t, n, 4, digest)
		}
		require.Len(t, w.model.asked[4].Messages[1].Block.(run.ToolResult).Content, 100_000)
	})
}

// building gives the world's agent a builder, which counts how often it is asked, and a run that begins with data.
func (w *world) building(build hook.Builder) {
	w.t.Helper()
	w.def.Builder, w.def.System = "b", ""
	w.ports.Hooks = hook.Set{Builders: map[string]hook.Builder{"b": build}}
	r := runtime.Start{Tenant: tenant, Agent: w.def, Key: "k1", Input: json.RawMessage(`{"n":1}`)}
	w.follow(w.starter().Start(w.ctx, r))
}

// A builder that runs out of time has said nothing: the step is tried again and the run goes on.
func TestContextOutOfTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(w.ctx)
		first := true
		w.building(func(ctx context.Context, _ hook.BuildInput) (hook.Built, error) {
			if first {
				first = false
				cancel()
			}
			return hook.Built{}, ctx.Err()
		})
		require.ErrorIs(t, errOf(w.stepper().Step(ctx, w.inv(0))), context.Canceled)
		require.Equal(t, run.RunRunning, w.state().Status)
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		require.Equal(t, run.Text{Text: `{"n":1}`}, w.model.asked[0].Messages[0].Block)
	})
}

// The same key and body are the same run, though an agent got a builder in between.
func TestBuilderIsNoPartOfTheBody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := runtime.Start{Tenant: tenant, Agent: w.def, Key: "k1", Input: json.RawMessage(`{"n":1}`)}
		before, err := w.starter().Start(w.ctx, r)
		require.NoError(t, err)
		built := *w.def
		built.Builder = "b"
		r.Agent = &built
		after, err := w.starter().Start(w.ctx, r)
		require.NoError(t, err)
		require.Equal(t, before.Run, after.Run)
		require.Equal(t, 1, after.Messages.Len())
		r.Input = json.RawMessage(`{"n":2}`)
		require.ErrorIs(t, errOf(w.starter().Start(w.ctx, r)), runtime.ErrKeyReused)
	})
}

// A reply that an entry holds is kept, though its text is stored twice as the run's output. A larger one is a model's
// failure. Reasoning that does not fit is left out.
func TestLargestReplies(t *testing.T) {
	text := func(kib int) string { return strings.Repeat("t", kib<<10) }
	thought := []run.RepliedReasoning{{Reasoning: run.Reasoning{Text: text(190)}}}
	call := func(kib int) agent.Reply { return calls(fmt.Sprintf(`refund c1 {"m":%q}`, text(kib))) }
	asks := func(context.Context, tool.Call) (agent.ToolResultData, error) {
		return agent.ToolResultData{Suspend: &run.Ticket{Message: "Which?"}}, nil
	}
	for name, c := range map[string]struct {
		reply   agent.Reply
		reason  run.Reason
		asked   int
		waiting int
	}{
		"text":           {agent.Reply{Text: text(380), Reasoning: thought}, run.ReasonNaturalEnd, 1, 0},
		"larger text":    {agent.Reply{Text: text(390)}, run.ReasonError, 1, 0},
		"pieces":         {agent.Reply{Text: text(125), Truncated: true, StopReason: "length"}, run.ReasonNaturalEnd, 2, 0},
		"arguments":      {agent.Reply{Calls: call(255).Calls, Reasoning: thought}, run.ReasonSuspended, 1, 1},
		"a question":     {calls(fmt.Sprintf(`pay c1 {"m":%q}`, text(255))), run.ReasonSuspended, 1, 1},
		"more arguments": {agent.Reply{Text: text(200), Calls: call(255).Calls}, run.ReasonError, 1, 0},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.def.Model.Continuations = 5
			w.tool("pay").work = asks
			w.startWith(c.reply, c.reply, c.reply)
			w.drive(0)
			s := w.state()
			require.Equal(t, c.reason, s.Reason)
			require.Len(t, w.model.asked, c.asked)
			require.Len(t, s.Waits(), c.waiting)
			if c.reason == run.ReasonError {
				require.Equal(t, run.CodeModelFailed, s.Error.Code)
			}
		})
	}
}
