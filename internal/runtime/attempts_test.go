package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/policy"
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

func since(began time.Time, at []time.Time) []time.Duration {
	out := make([]time.Duration, len(at))
	for i, t := range at {
		out[i] = t.Sub(began)
	}
	return out
}

// An attempt that runs out of its tool's time is given up on and tried again, as long as the invocation has time to
// start another.
func TestAttemptsThatRunOutOfTime(t *testing.T) {
	var mu sync.Mutex
	hang := func(at *[]time.Time) func(context.Context, tool.Call) (agent.ToolResultData, error) {
		return func(ctx context.Context, _ tool.Call) (agent.ToolResultData, error) {
			mu.Lock()
			*at = append(*at, time.Now())
			mu.Unlock()
			<-ctx.Done()
			return agent.ToolResultData{}, ctx.Err()
		}
	}
	for name, c := range map[string]struct {
		limit time.Duration // of the invocation
		want  []time.Duration
		says  string
	}{
		"time enough": {
			5 * time.Minute, []time.Duration{0, 11 * time.Second, 23 * time.Second},
			"look ran out of time.\n[It was tried 3 times.]",
		},
		"time for one more": {
			21 * time.Second, []time.Duration{0, 11 * time.Second}, "look ran out of time.\n[It was tried 2 times.]",
		},
		"and not quite": {21*time.Second - 1, []time.Duration{0}, "look ran out of time."},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.spec("look", func(s *agent.ToolSpec) {
				s.Retry = agent.ToolRetry{Attempts: 3, Backoff: time.Second, MaxBackoff: 3 * time.Second}
				s.Timeout = 10 * time.Second
			})
			var at []time.Time
			w.tool("look").work = hang(&at)
			w.startRound(calls("look c1"))
			began := time.Now()
			w.within(c.limit)
			mu.Lock() // of calls that were given up
			require.Equal(t, c.want, since(began, at))
			mu.Unlock()
			w.drive(0)
			require.Equal(t, c.says, w.result("c1").Content)
			require.Equal(t, len(c.want), w.call("c1").Executions)
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
			var got time.Duration
			w.tool("look").work = func(ctx context.Context, _ tool.Call) (agent.ToolResultData, error) {
				at, ok := ctx.Deadline()
				require.True(t, ok)
				got = time.Until(at)
				return tool.Text("ok"), nil
			}
			w.startRound(calls("look c1"))
			w.within(c.limit)
			require.Equal(t, c.want, got)
		})
	}
}

// Once the run has ended, or another execution owns it, nothing is tried again, and nobody waits for the next try.
func TestNothingIsTriedAgainBehindAnEnd(t *testing.T) {
	for next, during := range map[string]func(w *world){
		runtime.NextDone: func(w *world) { w.cancel() },
		runtime.NextContinue: func(w *world) {
			w.commit(w.ids.Writer(), run.HandedOver{Owner: runtime.ExecutionName(w.run, 1)})
		},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			w.spec("note", func(s *agent.ToolSpec) { s.Retry = agent.ToolRetry{Attempts: 9, Backoff: time.Hour} })
			w.tool("note").work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
				return agent.ToolResultData{}, errBlown
			}
			w.startRound(calls("note c1"))
			began := time.Now()
			go func() {
				time.Sleep(time.Minute)
				during(w)
			}()
			require.Equal(t, next, w.batchRun(0).Next)
			require.Equal(t, 1, w.tool("note").times())
			require.Less(t, time.Since(began), 2*time.Minute)
		})
	}
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

// What had no room before the invocation's time was up is neither claimed nor lost.
func TestCallsThatHadNoRoomAreLeftToTheNextInvocation(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.spec("pay", func(s *agent.ToolSpec) { s.Concurrency = 1 })
		n := newWidth()
		n.watch(w.tool("pay"), 9*time.Second)
		w.startRound(calls("pay p1", "pay p2", "pay p3"))
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
		n := newWidth()
		n.watch(w.tool("pay"), 10*time.Second)
		w.startRound(calls("pay p1", "refund r1", "pay p2"))
		go func() {
			time.Sleep(5 * time.Second)
			require.Equal(t, run.StatusSuspended, w.call("r1").Status)
			w.cancel()
		}()
		require.Equal(t, runtime.NextDone, w.batchRun(0).Next)
		n.mu.Lock() // the call was given up
		require.Equal(t, []string{"p1"}, n.order)
		n.mu.Unlock()
		require.Equal(t, run.StatusCancelled, w.call("p2").Status)
		require.Zero(t, w.call("p2").Executions)
	})
}

// A claim whose answer was lost keeps its room: a call before it that a person has approved meanwhile is not started
// beside it.
func TestALostClaimKeepsItsRoomBehindAnApproval(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.def.Limits.Parallel = 1
		n := newWidth()
		n.watch(w.tool("pay"), time.Second)
		n.watch(w.tool("refund"), time.Second)
		w.startRound(calls("refund r1", "pay p1"))
		w.table.Once(fault.WriteOf(entry("call_claimed")), fault.After(func() error {
			w.decide("r1")
			return errBlown
		}))
		w.batchRun(0)
		require.Equal(t, 1, n.most["all"])
		require.Equal(t, []string{"p1", "r1"}, n.order)
	})
}

// A lost answer is nobody's knowledge where the call cannot be repeated, and an error the model reads where it can. So is a panic, which may
// come behind the effect. Any other error says that the call was not carried out.
func TestALostAnswer(t *testing.T) {
	reset := errors.New("connection reset")
	for name, c := range map[string]struct {
		tool    string
		err     error
		unknown bool
		says    string
	}{
		"not to be repeated": {tool: "pay", err: fmt.Errorf("call server bank: %w", &tool.LostError{Err: reset}), unknown: true},
		"not sent":           {tool: "pay", err: reset, says: "pay failed: connection reset"},
		"changed":            {tool: "pay", err: &tool.ChangedError{Server: "bank", Tool: "pay"}, says: "pay failed: the server bank no longer has the tool pay; the call was not made"},
		"idempotent":         {tool: "note", err: &tool.LostError{Err: reset}, says: "note failed: the answer was lost: connection reset"},
		"panics":             {tool: "pay", unknown: true},
		"idempotent, panics": {tool: "note", says: "note failed: it panicked"},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.tool(c.tool).work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
				if c.err == nil {
					panic("secret")
				}
				return agent.ToolResultData{}, c.err
			}
			w.startWith(calls(c.tool + " c1"))
			r := w.drive(0)
			require.Equal(t, 1, w.tool(c.tool).times())
			if c.unknown {
				require.Equal(t, runtime.NextWait, r.Next)
				require.Equal(t, run.ForOutcome, w.call("c1").Wait.For)
				return
			}
			require.Equal(t, runtime.NextDone, r.Next)
			require.Equal(t, c.says, w.call("c1").Result.Content)
			require.Equal(t, run.WhyToolError, w.call("c1").Reason)
		})
	}
}

// hung is a model that never answers.
type hung struct{}

func (hung) Ask(ctx context.Context, _ agent.Request) (agent.Reply, int, error) {
	<-ctx.Done()
	return agent.Reply{}, 1, fmt.Errorf("ask model: %w", ctx.Err())
}

// A model that hangs holds a run no longer than the run has time, and a minute where it has none; nor does it hold the
// function until that is killed.
func TestHungModel(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.ports.Model, w.def.Stop.Timeout = hung{}, 40*time.Minute
		w.start()
		began := time.Now()
		for _, at := range []time.Duration{15 * time.Minute, 30 * time.Minute} {
			ctx, cancel := context.WithTimeout(w.ctx, 15*time.Minute)
			require.ErrorIs(t, errOf(w.stepper().Step(ctx, w.inv(0))), runtime.ErrModelBusy)
			require.NoError(t, ctx.Err())
			time.Sleep(time.Until(began.Add(at)))
			cancel()
		}
		require.Equal(t, runtime.NextDone, w.step(0).Next)
		require.Equal(t, run.Stopped(policy.StopTimeout), w.state().Reason)
		require.Equal(t, 40*time.Minute, time.Since(began))
	})
}
