package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// guarded has a plugin say what say says before every call.
func (w *world) guarded(say func(m *hook.BeforeTool)) {
	w.def.Plugins = []agent.PluginSpec{{Name: "guard"}}
	w.def.Permission.Approvers = []string{"user:ana"}
	w.ports.Hooks = hook.Set{Plugins: map[string]hook.Factory{"guard": func(json.RawMessage) (hook.Plugin, error) {
		return hook.Plugin{BeforeTool: func(_ context.Context, m *hook.BeforeTool) error {
			say(m)
			return nil
		}}, nil
	}}}
}

// answers approves what c1 waits for with a result, and goes on.
func (w *world) answers(r runtime.Route, result string) runtime.Route {
	w.t.Helper()
	require.Equal(w.t, runtime.NextWait, r.Next)
	w.decided(approval.DecisionInput{
		ID: w.call("c1").Wait.Approval, Action: approval.Approve, Result: json.RawMessage(result),
	})
	return w.drive(r.Woken)
}

// What people answer a plugin is none to the tool: that hears what it asked itself, with the memo that it asked with
// and nobody else reads, and what was said of the arguments it runs with, in whatever order the two ask.
func TestToolHearsItsOwnAnswer(t *testing.T) {
	ask := func(c run.Call, asks ...int) bool {
		for _, n := range asks {
			if c.Asks == n {
				return true
			}
		}
		return false
	}
	for name, c := range map[string]struct {
		mode    run.TicketMode
		before  []int // after how many questions the plugin asks
		tool    []int // and the tool, when it is entered
		answers []string
		hears   []string
		args    string
		result  string
	}{
		"plugin alone": {before: []int{0}, answers: []string{`"go"`}, hears: []string{""}},
		"tool alone":   {tool: []int{0}, answers: []string{`"mine"`}, hears: []string{"", `"mine"`}},
		"plugin, then tool": {
			before: []int{0}, tool: []int{1}, answers: []string{`"go"`, `"mine"`}, hears: []string{"", `"mine"`},
		},
		"tool, then plugin twice": {
			before: []int{1, 2}, tool: []int{0}, answers: []string{`"mine"`, `"go"`, `"on"`}, hears: []string{"", `"mine"`},
		},
		"tool, plugin, tool": {
			before: []int{1}, tool: []int{0, 2}, answers: []string{`"mine"`, `"go"`, `"new"`}, hears: []string{"", `"mine"`, `"new"`},
		},
		"other arguments than answered": {
			mode: run.TicketPass, before: []int{1}, tool: []int{0}, answers: []string{`"mine"`, `{"n":2}`},
			hears: []string{"", ""}, args: `{"n":2}`,
		},
		"a yes changes no arguments": {
			mode: run.TicketPass, before: []int{1}, tool: []int{0}, answers: []string{`"mine"`, `true`}, hears: []string{"", `"mine"`},
		},
		"a result by a plugin": {mode: run.TicketResult, before: []int{0}, answers: []string{`"enough"`}, result: "enough"},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.guarded(func(m *hook.BeforeTool) {
				if ask(m.Call(), c.before...) {
					m.Suspend(run.Ticket{Mode: c.mode})
				}
			})
			w.tool("pay").work = func(_ context.Context, in tool.Call) (agent.ToolResultData, error) {
				if ask(w.call("c1"), c.tool...) {
					return agent.ToolResultData{Suspend: &run.Ticket{Memo: "memo " + in.Memo}}, nil
				}
				return agent.ToolResultData{Content: "ok"}, nil
			}
			w.startWith(calls("pay c1"))
			r := w.drive(0)
			for _, a := range c.answers {
				pending, _, err := approval.List(w.ctx, w.table, tenant, approval.Query{Status: approval.Pending})
				require.NoError(t, err)
				require.Empty(t, pending[0].Ticket.Memo)
				r = w.answers(r, a)
			}
			require.Equal(t, runtime.NextDone, r.Next)
			var heard []string
			for i, in := range w.tool("pay").entered {
				heard = append(heard, string(in.Resume))
				if in.Resume == nil {
					i = 0 // a memo comes with its answer alone
				}
				require.Equal(t, strings.Repeat("memo ", i), in.Memo)
			}
			require.Equal(t, c.hears, heard)
			if c.args != "" {
				require.JSONEq(t, c.args, string(w.tool("pay").entered[len(heard)-1].Args))
			}
			if c.result != "" {
				require.Equal(t, c.result, w.call("c1").Result.Content)
			}
			require.Equal(t, run.StatusSucceeded, w.call("c1").Status)
		})
	}
}

// A call whose fate nobody knew, and that is to run again when a plugin has somebody asked about it, may still have
// happened.
func TestInDoubtAtTheGate(t *testing.T) {
	for name, answered := range map[string]bool{"asked": false, "answered": true} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.guarded(func(m *hook.BeforeTool) {
				if m.Resumed() && m.Call().Asks < 2 {
					m.Suspend(run.Ticket{})
				}
			})
			w.startRound(calls("pay c1"))
			w.interrupt("pay", 0)
			r := w.drive(0)
			require.Equal(t, run.ForOutcome, w.call("c1").Wait.For)
			w.decided(approval.DecisionInput{Action: approval.Rerun})
			require.Equal(t, runtime.NextWait, w.drive(r.Woken).Next)
			require.Equal(t, run.ForInput, w.call("c1").Wait.For)
			if answered {
				w.decide("c1")
			}
			w.cancel()
			require.Equal(t, run.WhyOutcomeUnknown, w.call("c1").Reason)
		})
	}
}

// A plugin's ticket whose answer nothing could be checked against is a failure of the plugin: nobody is asked what
// nobody could answer.
func TestPluginAsksUnanswerably(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.guarded(func(m *hook.BeforeTool) {
			m.Suspend(run.Ticket{ResponseSchema: json.RawMessage(`{"type":"nothing"}`)})
		})
		w.startWith(calls("pay c1"))
		require.Equal(t, runtime.NextFailed, w.drive(0).Next)
		s := w.state()
		require.Equal(t, run.CodeInternal, s.Error.Code)
		require.Contains(t, s.Error.Message, "plugin guard failed in before_tool_execute: responseSchema: ")
		require.Zero(t, w.written("call_suspended"))
		require.Zero(t, w.tool("pay").times())
	})
}

// A request about tools in the very entry that ends its run, because plugins fail there, waits for nobody.
func TestRequestInTheEntryThatEndsTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.guarded(func(*hook.BeforeTool) {})
		w.def.Permission.Mode = agent.ModeBlockAndRetry
		w.ports.Hooks.Plugins["guard"] = func(json.RawMessage) (hook.Plugin, error) {
			return hook.Plugin{
				AfterTool: func(context.Context, *hook.AfterTool) error { return nil }, RunEnd: func(context.Context, *hook.Moment) error { return errors.New("no") },
			}, nil
		}
		w.startWith(calls("refund c1"))
		require.Equal(t, runtime.NextFailed, w.drive(0).Next)
		pending, _, err := approval.List(w.ctx, w.table, tenant, approval.Query{Status: approval.Pending})
		require.NoError(t, err)
		require.Empty(t, pending)
		require.Equal(t, 1, w.written("permission_requested"))
	})
}

// Of two raises of a budget that two runs share, approved for the same exhaustion and claimed at once, one counts.
func TestRaisesOfASharedBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.def.Limits.Period, w.def.Limits.OnBudget = &agent.PeriodBudget{Every: agent.EveryMonth, Tokens: 10}, agent.OnBudgetAsk
		w.model.replies = []agent.Reply{{Text: "Done.", Usage: run.Usage{Input: 12}}}
		runs := []string{}
		for _, key := range []string{"k1", "k2", "k3"} {
			w.another(key)
			if runs = append(runs, w.run); w.drive(0).Next == runtime.NextWait {
				w.decide("budget-1")
			}
		}
		follow := func(i int) int64 {
			w.run, w.owner = runs[i], runtime.ExecutionName(runs[i], 0)
			return w.head().WaitSeq
		}
		w.table.Once(meanwhile(entry("call_claimed"), func() { w.batchRun(follow(2)); follow(1) }))
		w.batchRun(follow(1))
		require.Equal(t, run.WhyVoided, w.call("budget-1").Reason)
		follow(2)
		require.Equal(t, run.StatusSucceeded, w.call("budget-1").Status)
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		require.Equal(t, runtime.NextWait, func() runtime.Route { follow(1); return w.drive(0) }().Next, "24 of 20 are used")
		// the answer of a delegated run that the run knows no more takes nothing off what its agent has used
		late := run.Answered{Call: "c1", By: "run:r", Used: &run.ChildUsage{Usage: run.Usage{Input: 100}}}
		require.NoError(t, errOf(w.ports.Journal.Accept(w.ctx, tenant, w.run, "answer/c1", late)))
		w.drive(w.head().WaitSeq)
		w.another("k4")
		require.Equal(t, runtime.NextWait, w.drive(0).Next)
	})
}

// A reply that is lost because its run was cancelled meanwhile was paid for all the same: the budget that runs share
// counts it once, also if the write fails or its answer is lost.
func TestALostReplyIsCounted(t *testing.T) {
	count := func(ops []store.Op) bool { return strings.HasPrefix(ops[0].Item.SK, "2000-01#") }
	for name, goesWrong := range map[string]func(func([]store.Op) bool) (func(fault.Call) bool, fault.Hook){
		"nothing": nil, "the write": failed, "its answer": lost,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.def.Limits.Period, w.def.Limits.OnBudget = &agent.PeriodBudget{Every: agent.EveryMonth, Tokens: 20}, agent.OnBudgetAsk
				cancelled := agent.Reply{Text: "Done.", Usage: run.Usage{Input: 12}}
				w.startWith(cancelled, cancelled)
				if goesWrong != nil {
					w.table.Once(goesWrong(count))
				}
				w.model.during = func(agent.Request) error { w.cancel(); return nil }
				require.Equal(t, runtime.NextDone, w.drive(0).Next)
				require.Zero(t, w.state().Inferences)
				w.another("k2")
				require.Equal(t, runtime.NextDone, w.drive(0).Next, "12 of 20 are used")
				w.another("k3")
				require.Equal(t, runtime.NextWait, w.drive(0).Next, "24 of 20 are used")
				require.Len(t, w.model.asked, 2)
			})
		})
	}
}

// A model that reports no usage keeps within no budget. The log says so where there is a budget.
func TestAModelWithoutUsageIsWarnedOf(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var warned []string
		w.ports.Warn = func(what string, _ error) { warned = append(warned, what) }
		w.startWith(agent.Reply{Text: "Done."}, agent.Reply{Text: "Done."})
		w.drive(0)
		require.Empty(t, warned)
		w.def.Limits.Tokens = 10
		w.another("k2")
		w.drive(0)
		require.Equal(t, []string{"count the tokens of run " + w.run}, warned)
	})
}

// The log says where a tool's code panicked, and neither it nor the model what with.
func TestAPanicOfAToolHasItsPlaceInTheLog(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var warned []string
		w.ports.Warn = func(what string, err error) { warned = append(warned, what+" ("+err.Error()+")") }
		w.tool("look").work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
			return agent.ToolResultData{Content: []string{"secret"}[w.tool("look").times()]}, nil
		}
		w.startWith(calls("look c1"), agent.Reply{Text: "Done."})
		w.drive(0)
		require.Len(t, warned, 1)
		require.Regexp(t, `^call look of run `+w.run+`: it panicked at .*/gate_test\.go:\d+ \(it panicked\)$`, warned[0])
		require.Contains(t, w.call("c1").Result.Content, "it panicked")
	})
}

// What a plugin hid from a request that was not made, as people were asked for budget instead, it has not hidden from
// the next one.
func TestHiddenFromARequestThatWasNotMade(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		asked := 0
		w.guarded(func(*hook.BeforeTool) {})
		w.ports.Hooks.Plugins["guard"] = func(json.RawMessage) (hook.Plugin, error) {
			return hook.Plugin{BeforeInference: func(_ context.Context, m *hook.BeforeInference) error {
				if asked++; asked == 2 {
					m.Exclude("pay")
				}
				return nil
			}}, nil
		}
		w.def.Limits.Period, w.def.Limits.OnBudget = &agent.PeriodBudget{Every: agent.EveryMonth, Tokens: 10}, agent.OnBudgetAsk
		first := calls("look c1")
		first.Usage = run.Usage{Input: 12}
		w.startWith(first, calls("pay c2"))
		woken := w.drive(0).Woken
		w.decide("budget-1")
		require.Equal(t, runtime.NextDone, w.drive(woken).Next)
		require.Equal(t, run.StatusSucceeded, w.call("c2").Status)
	})
}
