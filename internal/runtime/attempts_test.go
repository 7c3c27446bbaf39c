package runtime_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// spec changes what the definition says of a tool.
func (w *world) spec(name string, change func(*agent.ToolSpec)) {
	for i := range w.def.Tools {
		if w.def.Tools[i].Name == name {
			change(&w.def.Tools[i])
		}
	}
}

// flaky makes a tool fail so often, by infrastructure, before it works, and notes when it was entered.
func (f *fake) flaky(fails int, at *[]time.Time) {
	n := 0
	f.work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
		*at = append(*at, time.Now())
		if n++; n <= fails {
			return agent.ToolResultData{}, errBlown
		}
		return tool.Text("ok"), nil
	}
}

// result is what the model was told of a call.
func (w *world) result(call string) run.ToolResult {
	s := w.state()
	for _, m := range s.Messages.All() {
		if r, ok := m.Block.(run.ToolResult); ok && r.ID == call {
			return r
		}
	}
	w.t.Fatalf("the model was told nothing of call %s", call)
	return run.ToolResult{}
}

// within runs a batch whose invocation ends after so long.
func (w *world) within(limit time.Duration) runtime.Route {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	r, err := w.batch().Run(ctx, w.inv(0))
	require.NoError(w.t, err)
	return r
}

func retried(attempts int) func(*agent.ToolSpec) {
	return func(t *agent.ToolSpec) {
		t.Retry = agent.ToolRetry{Attempts: attempts, Backoff: time.Second, MaxBackoff: 3 * time.Second}
	}
}

func TestErrorsOfInfrastructureAreTriedAgainUnderOneKey(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.spec("note", retried(5))
		w.model.replies = []agent.Reply{calls("note c1")}
		var at []time.Time
		w.tool("note").flaky(4, &at)
		w.start()
		began := time.Now()
		w.drive(0)
		require.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 6 * time.Second, 9 * time.Second}, since(began, at), "doubled, and at most 3 s")
		require.Equal(t, run.StatusSucceeded, w.call("c1").Status)
		require.Equal(t, 5, w.call("c1").Executions)
		require.Equal(t, "ok", w.result("c1").Content)
		for i, c := range w.tool("note").entered {
			require.Equal(t, w.run+"/c1", c.Key)
			require.Equal(t, i+1, c.Attempt)
		}
	})
}

func since(began time.Time, at []time.Time) []time.Duration {
	out := make([]time.Duration, len(at))
	for i, t := range at {
		out[i] = t.Sub(began)
	}
	return out
}

func TestTheModelHearsTheLastErrorAndHowOftenItWasTried(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.spec("look", retried(3))
		w.model.replies = []agent.Reply{calls("look c1")}
		var at []time.Time
		w.tool("look").flaky(9, &at)
		w.start()
		w.drive(0)
		require.Len(t, at, 3)
		require.Equal(t, "look failed: connection reset\n[It was tried 3 times.]", w.result("c1").Content)
		require.True(t, w.result("c1").IsError)
		require.Equal(t, 3, w.call("c1").Executions)
	})
}

func TestNobodyTriesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		tool  string
		retry func(*agent.ToolSpec)
		fail  func(context.Context, tool.Call) (agent.ToolResultData, error)
	}{
		"what may not be repeated": {"pay", retried(3), func(context.Context, tool.Call) (agent.ToolResultData, error) {
			return agent.ToolResultData{}, errBlown
		}},
		"a tool's own word": {"look", retried(3), func(context.Context, tool.Call) (agent.ToolResultData, error) {
			return tool.Errorf("no such order"), nil
		}},
		"without a policy": {"look", func(*agent.ToolSpec) {}, func(context.Context, tool.Call) (agent.ToolResultData, error) {
			return agent.ToolResultData{}, errBlown
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.spec(c.tool, c.retry)
				w.model.replies = []agent.Reply{calls(c.tool + " c1")}
				w.tool(c.tool).work = c.fail
				w.start()
				w.drive(0)
				require.Equal(t, 1, w.tool(c.tool).times())
				require.Equal(t, 1, w.call("c1").Executions)
				require.NotContains(t, w.result("c1").Content, "tried")
			})
		})
	}
}

// An attempt that runs out of its tool's time is given up on and tried again, as long as the invocation has time to start another.
func TestAttemptsThatRunOutOfTime(t *testing.T) {
	hang := func(at *[]time.Time) func(context.Context, tool.Call) (agent.ToolResultData, error) {
		return func(ctx context.Context, _ tool.Call) (agent.ToolResultData, error) {
			*at = append(*at, time.Now())
			<-ctx.Done()
			return agent.ToolResultData{}, ctx.Err()
		}
	}
	for name, c := range map[string]struct {
		limit time.Duration // of the invocation
		want  []time.Duration
		says  string
	}{
		"time enough":       {5 * time.Minute, []time.Duration{0, 11 * time.Second, 23 * time.Second}, "look ran out of time.\n[It was tried 3 times.]"},
		"time for two":      {30 * time.Second, []time.Duration{0, 11 * time.Second}, "look ran out of time.\n[It was tried 2 times.]"},
		"time for one more": {21 * time.Second, []time.Duration{0, 11 * time.Second}, "look ran out of time.\n[It was tried 2 times.]"},
		"and not quite":     {21*time.Second - 1, []time.Duration{0}, "look ran out of time."},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.spec("look", func(s *agent.ToolSpec) { retried(3)(s); s.Timeout = 10 * time.Second })
				w.model.replies = []agent.Reply{calls("look c1")}
				var at []time.Time
				w.tool("look").work = hang(&at)
				w.start()
				w.step(0)
				began := time.Now()
				w.within(c.limit)
				require.Equal(t, c.want, since(began, at))
				w.drive(0)
				require.Equal(t, c.says, w.result("c1").Content)
				require.Equal(t, len(c.want), w.call("c1").Executions)
			})
		})
	}
}

// A tool's own deadline, and that of everything it calls, lies before the invocation's (R7).
func TestAToolsDeadlineLiesBeforeTheInvocations(t *testing.T) {
	for _, c := range []struct{ timeout, limit, want time.Duration }{
		{0, 15 * time.Minute, 5 * time.Minute},                 // the runtime's own
		{20 * time.Second, 15 * time.Minute, 20 * time.Second}, // the tool's
		{20 * time.Second, 18 * time.Second, 13 * time.Second}, // what the invocation has left, less 5 s
	} {
		inBubble(t, func(t *testing.T, w *world) {
			w.spec("look", func(s *agent.ToolSpec) { s.Timeout = c.timeout })
			w.model.replies = []agent.Reply{calls("look c1")}
			var got time.Duration
			w.tool("look").work = func(ctx context.Context, _ tool.Call) (agent.ToolResultData, error) {
				at, ok := ctx.Deadline()
				require.True(t, ok)
				got = time.Until(at)
				return tool.Text("ok"), nil
			}
			w.start()
			w.step(0)
			w.within(c.limit)
			require.Equal(t, c.want, got)
		})
	}
}

// Once the run has ended nothing is tried again, and the invocation does not wait for the next try.
func TestNothingIsTriedAgainBehindAnEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.spec("note", func(s *agent.ToolSpec) { s.Retry = agent.ToolRetry{Attempts: 9, Backoff: time.Hour} })
		w.model.replies = []agent.Reply{calls("note c1")}
		w.tool("note").work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
			return agent.ToolResultData{}, errBlown
		}
		w.start()
		w.step(0)
		began := time.Now()
		go func() {
			time.Sleep(time.Minute)
			w.cancel()
		}()
		require.Equal(t, runtime.NextDone, w.batchRun(0).Next)
		require.Equal(t, 1, w.tool("note").times())
		require.Less(t, time.Since(began), 2*time.Minute)
	})
}

// Nor is it once another execution owns the run, and this one waits for what it has in the air.
func TestNothingIsTriedAgainForAnotherOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.spec("note", func(s *agent.ToolSpec) { s.Retry = agent.ToolRetry{Attempts: 9, Backoff: time.Hour} })
		w.model.replies = []agent.Reply{calls("note c1")}
		w.tool("note").work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
			return agent.ToolResultData{}, errBlown
		}
		w.start()
		w.step(0)
		began := time.Now()
		go func() {
			time.Sleep(time.Minute)
			l, err := w.ports.Journal.Load(w.ctx, tenant, w.run)
			require.NoError(t, err)
			d := run.NewDraft(l.State, w.ids.Writer(), time.Now())
			require.NoError(t, d.Add(run.HandedOver{Owner: runtime.ExecutionName(w.run, 1)}))
			require.NoError(t, w.ports.Journal.Append(w.ctx, l.State, d))
		}()
		require.Equal(t, runtime.NextContinue, w.batchRun(0).Next)
		require.Equal(t, 1, w.tool("note").times())
		require.Less(t, time.Since(began), 2*time.Minute)
	})
}

// What ran under a person's word and may be repeated is tried again under that very claim, and a late word says how often.
func TestAttemptsUnderAClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.spec("note", retried(3))
		w.def.Permission.Rules = append(w.def.Permission.Rules, agent.Rule{Tool: "note", Verdict: agent.VerdictAsk})
		w.model.replies = []agent.Reply{calls("note c1")}
		var at []time.Time
		w.tool("note").flaky(2, &at)
		w.start()
		r := w.drive(0)
		_, err := w.decide("c1", approval.Approve)
		require.NoError(t, err)
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		require.Equal(t, 1, w.written("call_claimed"))
		require.Equal(t, 3, w.call("c1").Executions)
		require.Equal(t, "ok", w.result("c1").Content)
	})
}

// width notes the most calls that a tool, and all tools, were inside of at a time.
type width struct {
	mu        sync.Mutex
	now, most map[string]int
	order     []string
	began     []time.Time
}

func (n *width) watch(f *fake, hold time.Duration) {
	f.work = func(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
		n.step(c, 1)
		defer n.step(c, -1)
		select {
		case <-ctx.Done():
			return agent.ToolResultData{}, ctx.Err()
		case <-time.After(hold):
			return tool.Text("ok " + c.ID), nil
		}
	}
}

func (n *width) step(c tool.Call, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if by > 0 {
		n.order, n.began = append(n.order, c.ID), append(n.began, time.Now())
	}
	for _, k := range []string{c.Name, "all"} {
		n.now[k] += by
		n.most[k] = max(n.most[k], n.now[k])
	}
}

func newWidth() *width { return &width{now: map[string]int{}, most: map[string]int{}} }

func TestCallsWaitForRoom(t *testing.T) {
	for _, executor := range []agent.Executor{agent.ExecutorParallelStreaming, agent.ExecutorParallelBatch} {
		inBubble(t, func(t *testing.T, w *world) {
			w.def.Executor = executor
			w.def.Limits.Parallel = 4
			w.spec("look", func(s *agent.ToolSpec) { s.Concurrency = 2; s.Timeout = 15 * time.Second })
			w.spec("pay", func(s *agent.ToolSpec) { s.Concurrency = 1 })
			w.model.replies = []agent.Reply{calls("look l1", "look l2", "look l3", "look l4", "pay p1", "pay p2", "note n1", "note n2")}
			n := newWidth()
			for _, name := range []string{"look", "pay", "note"} {
				n.watch(w.tool(name), 9*time.Second) // no moment at which the batch looks into the inbox
			}
			w.start()
			w.step(0)
			began := time.Now()
			w.batchRun(0)
			require.Equal(t, map[string]int{"look": 2, "pay": 1, "note": 1, "all": 4}, n.most)
			require.ElementsMatch(t, []string{"l1", "l2", "p1", "n1"}, n.order[:4], "the first in the order of the request that have room")
			require.ElementsMatch(t, []string{"l3", "l4", "p2", "n2"}, n.order[4:])
			require.Equal(t, []time.Duration{0, 0, 0, 0}, since(began, n.began[:4]))
			require.Equal(t, []time.Duration{9 * time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second}, since(began, n.began[4:]), "as soon as there is room")
			for _, id := range n.order {
				require.Equal(t, run.StatusSucceeded, w.call(id).Status, "%s: its time begins when it is entered", id)
				require.Equal(t, 1, w.call(id).Executions)
			}
			require.Equal(t, 2, w.written("call_claimed"), "one that waits is not claimed")
		})
	}
}

// What had no room before the invocation's time was up is neither claimed nor lost.
func TestCallsThatHadNoRoomAreLeftToTheNextInvocation(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.spec("pay", func(s *agent.ToolSpec) { s.Concurrency = 1 })
		w.model.replies = []agent.Reply{calls("pay p1", "pay p2", "pay p3")}
		n := newWidth()
		n.watch(w.tool("pay"), 9*time.Second)
		w.start()
		w.step(0)
		require.Equal(t, runtime.NextStep, w.within(25*time.Second).Next)
		require.Equal(t, []string{"p1", "p2"}, n.order, "with less than 10 s left nothing is started")
		require.Equal(t, run.StatusNew, w.call("p3").Status)
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		require.Equal(t, []string{"p1", "p2", "p3"}, n.order)
		require.Zero(t, w.written("call_unknown"))
	})
}

// People are asked about calls that have no room yet, and a cancel ends what waits.
func TestCallsThatWaitForRoomAreGatedAndCancelled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.def.Limits.Parallel = 1
		w.model.replies = []agent.Reply{calls("pay p1", "refund r1", "pay p2")}
		n := newWidth()
		n.watch(w.tool("pay"), 10*time.Second)
		w.start()
		w.step(0)
		go func() {
			time.Sleep(5 * time.Second)
			require.Equal(t, run.StatusSuspended, w.call("r1").Status)
			w.cancel()
		}()
		require.Equal(t, runtime.NextDone, w.batchRun(0).Next)
		require.Equal(t, []string{"p1"}, n.order)
		require.Equal(t, run.StatusCancelled, w.call("p2").Status)
		require.Zero(t, w.call("p2").Executions)
	})
}

// A claim whose answer was lost keeps its room: a call before it that a person has approved meanwhile is not started beside it.
func TestALostClaimKeepsItsRoomBehindAnApproval(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.def.Limits.Parallel = 1
		w.model.replies = []agent.Reply{calls("refund r1", "pay p1")}
		n := newWidth()
		n.watch(w.tool("pay"), time.Second)
		n.watch(w.tool("refund"), time.Second)
		w.start()
		w.step(0)
		w.table.Once(fault.WriteOf(entry("call_claimed")), fault.After(func() error {
			_, err := w.decide("r1", approval.Approve)
			require.NoError(t, err)
			return errBlown
		}))
		w.batchRun(0)
		require.Equal(t, 1, n.most["all"])
		require.Equal(t, []string{"p1", "r1"}, n.order)
	})
}

// Nor is the call behind it.
func TestALostClaimKeepsItsRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.spec("pay", func(s *agent.ToolSpec) { s.Concurrency = 1 })
		w.model.replies = []agent.Reply{calls("pay p1", "pay p2")}
		n := newWidth()
		n.watch(w.tool("pay"), time.Second)
		w.start()
		w.step(0)
		w.table.Once(lost(entry("call_claimed")))
		w.batchRun(0)
		require.Equal(t, 1, n.most["pay"])
		require.Equal(t, []string{"p1", "p2"}, n.order)
	})
}

func TestLongResultsAreCapped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.def.Context.TruncateResult = 0
		w.spec("look", func(s *agent.ToolSpec) { s.MaxResult = 10 })
		w.model.replies = []agent.Reply{calls("look c1", "note c2")}
		w.tool("look").says(strings.Repeat("é", 8))
		w.tool("note").says(strings.Repeat("x", agent.MaxResult+1))
		w.start()
		w.drive(0)
		require.Equal(t, strings.Repeat("é", 5)+"\n[The first 10 of 16 bytes of this result were taken, and the rest is lost: look gives at most 10.]", w.result("c1").Content)
		body, err := w.ports.Blobs.Get(w.ctx, tenant, w.result("c2").Blob)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(body), "x\n[The first 8388608 of "+strconv.Itoa(agent.MaxResult+1)+" bytes of this result were taken, and the rest is lost: note gives at most 8388608.]"))
	})
}
