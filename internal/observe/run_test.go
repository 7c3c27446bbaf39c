package observe_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

var update = flag.Bool("update", false, "write golden files")

// payAna lets the model ask for a payment and a look-up, and then end.
func (w *world) payAna() {
	w.script.say(agent.Reply{
		Model: "m-1-0625", Text: "I pay.", StopReason: "tool_use", Usage: run.Usage{Input: 10, Output: 5, CacheRead: 90},
		Calls: []agent.ReplyCall{
			{ID: "c1", Name: "pay", Input: json.RawMessage(`{"to":"Ana"}`)}, {ID: "c2", Name: "lookup", Input: json.RawMessage(`{"who":"Ana"}`)},
		},
	})
	w.script.fail(agent.ModelThrottled)
	w.script.say(agent.Reply{Model: "m-1-0625", Text: "Done.", StopReason: "end_turn", Usage: run.Usage{Input: 20, Output: 2}})
}

// runTo starts a run by the API and walks it to its approval.
func (w *world) runTo(headers map[string]string) runtime.Route {
	w.t.Helper()
	s := w.post("Pay Ana.", headers)
	return w.walk(w.must("step", `{"tenant":"default","run":"`+s.Run+`"}`))
}

// The whole story of a run with an approval, over four functions that share nothing but the table, and its metrics:
// each fact once, per agent, never per run.
func TestRunIsOneTrace(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hide = observe.Hide{}
		epoch := w.clock.Now()
		w.payAna()
		r := w.runTo(map[string]string{"traceparent": callerHeader, "tracestate": "vendor=1"})
		require.Equal(t, runtime.NextWait, r.Next)
		require.Empty(t, ofKind(w.spans(), "AGENT"), "the run has not ended")
		time.Sleep(20 * time.Minute)
		w.decide(approval.Approve)
		require.Equal(t, runtime.NextDone, w.walk(w.must("step", asJSON(t, r))).Next)

		spans := w.spans()
		for _, s := range spans {
			require.Equal(t, callerTrace, s.SpanContext.TraceID().String(), s.Name)
			require.Equal(t, "vendor=1", s.SpanContext.TraceState().String(), s.Name)
		}
		agents := ofKind(spans, "AGENT")
		require.Len(t, agents, 1)
		require.Equal(t, callerSpan, agents[0].Parent.SpanID().String())
		require.True(t, agents[0].StartTime.Equal(epoch), "its true start")
		golden(t, "run.txt", strings.ReplaceAll(tree(spans, epoch), w.state().Run, "RUN"))
		require.NoError(t, w.fn("api").watch.Metrics.Flush())
		require.NotContains(t, w.metrics.String(), r.Run)
		golden(t, "metrics.jsonl", w.metrics.String())
	})
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// Whether a run is sampled is decided once, when it starts: its AGENT span is written if and only if the others are.
func TestSamplingIsDecidedOnce(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
	written := map[bool]bool{}
	for seed := range uint64(8) {
		inWorld(t, func(w *world) {
			w.ids = clock.SeededIDs(w.clock, seed)
			w.payAna()
			r := w.runTo(nil)
			time.Sleep(20 * time.Hour)
			w.decide(approval.Approve)
			require.Equal(t, runtime.NextDone, w.walk(w.must("step", asJSON(t, r))).Next)
			sampled := strings.HasSuffix(w.state().Trace.Traceparent, "-01")
			written[sampled] = true
			if !sampled {
				require.Empty(t, w.spans())
				return
			}
			agents := ofKind(w.spans(), "AGENT")
			require.Len(t, agents, 1, "a long wait begins no new trace")
			require.False(t, agents[0].Parent.IsValid(), "a root")
			require.Len(t, ofKind(w.spans(), "LLM"), 3)
			requireWhole(t, w.spans())
		})
	}
	require.Len(t, written, 2, "some runs are sampled and some are not")
}

// requireWhole says that every span's parent was written, too, unless it is a root.
func requireWhole(t *testing.T, spans tracetest.SpanStubs) {
	t.Helper()
	have := map[trace.SpanID]bool{}
	for _, s := range spans {
		have[s.SpanContext.SpanID()] = true
	}
	for _, s := range spans {
		require.False(t, s.SpanContext.IsRemote(), "%s %s is ours", kind(s), s.Name)
		require.True(t, !s.Parent.IsValid() || have[s.Parent.SpanID()], "%s %s has a parent that was never written", kind(s), s.Name)
	}
}

// An attempt that another has overtaken writes nothing of its own but its CHAIN; the AGENT span is written once. A
// decision that is told twice, because an answer was lost, is one span.
func TestDuplicatesAndZombies(t *testing.T) {
	inWorld(t, func(w *world) {
		w.payAna()
		r := w.runTo(nil)
		w.must("step", `{"tenant":"default","run":"`+r.Run+`"}`) // a zombie: the run is parked
		w.must("tool", `{"tenant":"default","run":"`+r.Run+`"}`)
		time.Sleep(2 * time.Hour)
		w.decide(approval.Approve)
		w.decide(approval.Approve) // again
		require.Equal(t, runtime.NextDone, w.walk(w.must("step", asJSON(t, r))).Next)
		w.must("step", asJSON(t, r)) // delivered again
		w.must("tool", asJSON(t, r))
		require.Len(t, ofKind(w.spans(), "AGENT"), 1)
		a, err := approval.Get(context.Background(), w.table, "default", run.ApprovalID(r.Run, "c1", 1))
		require.NoError(t, err)
		api := w.fn("api")
		api.watch.Trace.Decided(api.Ports.Journal)(context.Background(), a) // again
		said := map[trace.SpanID]bool{}
		for _, s := range ofKind(w.spans(), "GUARDRAIL") {
			said[s.SpanContext.SpanID()] = true
		}
		require.Len(t, said, 2, "one gate, one decision")
		require.Len(t, ofKind(w.spans(), "TOOL"), 2)
		requireWhole(t, w.spans())
	})
}

// What gates say is told where it is committed: nobody decided in time, a rule refuses.
func TestGates(t *testing.T) {
	inWorld(t, func(w *world) {
		w.payAna()
		r := w.runTo(nil)
		time.Sleep(25 * time.Hour)
		require.Equal(t, runtime.NextDone, w.walk(w.must("step", asJSON(t, r))).Next)
		require.Equal(t, []string{"gate pay: ask", "gate pay: expire"}, verdicts(w))
		requireWhole(t, w.spans())
	})
	inWorld(t, func(w *world) {
		w.def.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictDeny}}
		w.payAna()
		require.Equal(t, runtime.NextDone, w.runTo(nil).Next)
		require.Equal(t, []string{"gate pay: deny"}, verdicts(w))
	})
}

func verdicts(w *world) []string {
	var out []string
	for _, s := range ofKind(w.spans(), "GUARDRAIL") {
		out = append(out, s.Name+": "+attr(s, "countersign.verdict"))
	}
	return out
}

// A run whose end was written though nobody was told has its AGENT span, too.
func TestLostAnswerOfTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.payAna()
		r := w.runTo(nil)
		time.Sleep(2 * time.Hour)
		w.decide(approval.Deny)
		w.table.Once(fault.IsWrite, fault.Lose(errors.New("connection reset"))) // written, but nobody is told
		require.Equal(t, runtime.NextDone, w.walk(w.must("step", asJSON(t, r))).Next)
		agents := ofKind(w.spans(), "AGENT")
		last := agents[len(agents)-1]
		require.Equal(t, "natural_end", attr(last, "countersign.reason"))
		for _, s := range ofKind(w.spans(), "LLM")[1:] {
			require.Equal(t, last.SpanContext.TraceID(), s.SpanContext.TraceID())
		}
	})
}

// What the caller does not sample is not sent, but everybody is told the trace, and nobody else decides to sample it.
func TestUnsampledTraceIsPassedOn(t *testing.T) {
	inWorld(t, func(w *world) {
		var seen []string
		w.payroll = func(ctx context.Context, _ tool.Call) (agent.ToolResultData, error) {
			seen = append(seen, observe.TraceCarrier(ctx)["traceparent"])
			return agent.ToolResultData{Content: "paid"}, nil
		}
		w.payAna()
		r := w.runTo(map[string]string{"traceparent": "00-" + callerTrace + "-" + callerSpan + "-00"})
		time.Sleep(2 * time.Hour)
		w.decide(approval.Approve)
		require.Equal(t, runtime.NextDone, w.walk(w.must("step", asJSON(t, r))).Next)
		require.Empty(t, w.spans())
		require.Regexp(t, "^00-"+callerTrace+"-[0-9a-f]{16}-00$", w.state().Trace.Traceparent)
		require.Len(t, seen, 1)
		require.Contains(t, seen[0], callerTrace, "the tool is in the run's trace")
	})
}

// Tools and what they start find their own span in the context, also where several run at once. A tool that is somewhere
// else is recorded and measured as one that is not, beside it.
func TestToolsFindTheirSpan(t *testing.T) {
	inWorld(t, func(w *world) {
		w.def.Tools = append(w.def.Tools, agent.ToolSpec{
			Name: "rates", Kind: agent.KindHTTP, Description: "Asks.", Effect: run.EffectRead, Schema: json.RawMessage(`{"type":"object"}`),
			HTTP: &agent.HTTPTool{Method: "GET", URL: "https://rates.example/"},
		})
		seen := map[string]string{}
		var mu sync.Mutex
		w.lookup = func(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
			mu.Lock()
			defer mu.Unlock()
			seen[c.ID] = trace.SpanContextFromContext(ctx).SpanID().String()
			return agent.ToolResultData{Content: "1.10", IsError: c.Name == "rates"}, nil
		}
		w.script.say(agent.Reply{Calls: []agent.ReplyCall{{ID: "c1", Name: "lookup"}, {ID: "c2", Name: "lookup"}, {ID: "c3", Name: "rates"}}})
		w.script.say(agent.Reply{Text: "Done."})
		require.Equal(t, runtime.NextDone, w.runTo(nil).Next)
		tools := ofKind(w.spans(), "TOOL")
		require.Len(t, tools, 3)
		for _, s := range tools {
			id := attr(s, "tool.id")
			require.Equal(t, seen[id], s.SpanContext.SpanID().String())
			require.Equal(t, tools[0].Parent.SpanID(), s.Parent.SpanID(), "the invocation's CHAIN")
			if id == "c3" {
				require.Equal(t, []string{"execute_tool rates", "tool_error"}, []string{s.Name, s.Status.Description})
			}
		}
		require.Equal(t, 1, strings.Count(w.metrics.String(), `"Tool":"rates"`))
		requireWhole(t, w.spans())
	})
}

// A tool that fails, panics or hangs ends its span, with the class of what was wrong.
func TestToolTroubles(t *testing.T) {
	inWorld(t, func(w *world) {
		w.def.Tools[1].Timeout = time.Second
		w.lookup = func(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
			switch c.ID {
			case "c1":
				return agent.ToolResultData{}, errors.New(canary)
			case "c2":
				panic(canary)
			case "c3":
				time.Sleep(time.Hour) // does not listen
				return agent.ToolResultData{}, nil
			default:
				return agent.ToolResultData{Content: canary, IsError: true}, nil
			}
		}
		w.script.say(agent.Reply{Calls: []agent.ReplyCall{
			{ID: "c1", Name: "lookup"}, {ID: "c2", Name: "lookup"}, {ID: "c3", Name: "lookup"}, {ID: "c4", Name: "lookup"},
		}})
		w.script.say(agent.Reply{Text: "Done."})
		require.Equal(t, runtime.NextDone, w.runTo(nil).Next)
		got := map[string]string{}
		for _, s := range ofKind(w.spans(), "TOOL") {
			got[attr(s, "tool.id")] = s.Status.Description
			require.LessOrEqual(t, s.EndTime.Sub(s.StartTime), time.Second)
		}
		require.Equal(t, map[string]string{"c1": "error", "c2": "panic", "c3": "timeout", "c4": "tool_error"}, got)
		require.Regexp(t, `^could not call lookup of run \w+: it panicked at .*/run_test\.go:\d+$`, <-w.logged)
		time.Sleep(2 * time.Hour)
	})
}

// Where content is hidden, nothing that anybody said, gave or failed with is in any span.
func TestHiddenContentIsNowhere(t *testing.T) {
	shown := map[bool]bool{}
	for _, hide := range []observe.Hide{{Inputs: true, Outputs: true}, {}} {
		inWorld(t, func(w *world) {
			w.hide = hide
			w.def.System = "You keep " + canary
			w.def.Tools[1].Description = canary
			w.payroll = func(context.Context, tool.Call) (agent.ToolResultData, error) {
				return agent.ToolResultData{}, errors.New("no such account " + canary)
			}
			w.lookup = func(context.Context, tool.Call) (agent.ToolResultData, error) {
				return agent.ToolResultData{Content: canary, Media: []run.Media{{Name: canary, MediaType: "image/png", Data: "QUJD"}}}, nil
			}
			args := json.RawMessage(`{"to":"` + canary + `"}`)
			w.script.fail(agent.ModelThrottled)
			w.script.say(agent.Reply{Text: canary, Calls: []agent.ReplyCall{
				{ID: "c1", Name: "pay", Input: args}, {ID: "c2", Name: "lookup", Input: args}, {ID: "c3", Name: canary, Input: args},
			}})
			w.script.say(agent.Reply{Text: canary})
			s := w.post("Pay "+canary, nil)
			r := w.walk(w.must("step", `{"tenant":"default","run":"`+s.Run+`"}`))
			w.decide(approval.Approve)
			require.Equal(t, runtime.NextDone, w.walk(w.must("step", asJSON(t, r))).Next)
			require.Len(t, ofKind(w.spans(), "AGENT"), 1)
			all := asJSON(t, w.spans()) + tree(w.spans(), w.clock.Now())
			shown[hide.Inputs] = strings.Contains(all, canary)
			require.NotContains(t, all, "QUJD", "no bytes of media, shown or hidden")
		})
	}
	require.Equal(t, map[bool]bool{true: false, false: true}, shown)
}

// Without a tracer a run carries nothing.
func TestUntracedRunCarriesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.functions["api"] = w.start(&untraced)
		w.functions["step"], w.functions["tool"], w.functions["approve"] = w.functions["api"], w.functions["api"], w.functions["api"]
		w.payAna()
		r := w.runTo(map[string]string{"traceparent": callerHeader})
		w.decide(approval.Approve)
		require.Equal(t, runtime.NextDone, w.walk(w.must("step", asJSON(t, r))).Next)
		entries, err := w.functions["api"].Ports.Journal.Entries(context.Background(), "default", r.Run, 0, 0)
		require.NoError(t, err)
		for _, e := range entries {
			stored, err := run.MarshalEntry(e)
			require.NoError(t, err)
			require.NotContains(t, string(stored), "trace")
		}
		require.Nil(t, w.state().Trace)
	})
}

// A client that repeats its start in another trace gets the run it has started: the trace is no part of what it asked for.
func TestTraceIsNoPartOfTheStart(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.post("Pay Ana.", map[string]string{"traceparent": callerHeader})
		again := w.post("Pay Ana.", nil)
		require.Equal(t, first.Run, again.Run)
		require.Equal(t, first.Trace.Traceparent, again.Trace.Traceparent)
	})
}

// An event starts a run in the trace of the X-Ray segment that invoked the function, if X-Ray samples it; the CHAIN spans of later
// invocations link to theirs.
func TestXRay(t *testing.T) {
	const sampled = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1;Lineage=a:0"
	for name, c := range map[string]struct {
		header string
		joined bool
	}{"sampled": {sampled, true}, "not sampled": {strings.Replace(sampled, "Sampled=1", "Sampled=0", 1), false}, "none": {"", false}, "broken": {"Root=1-x", false}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.script.say(agent.Reply{Text: "Done."})
				ctx := context.WithValue(context.Background(), "x-amzn-trace-id", c.header) //nolint:staticcheck // the key of the Lambda runtime's client
				r, err := w.invoke(ctx, "step", `{"agent":"clerk","message":"Pay Ana.","key":"k"}`)
				require.NoError(t, err)
				require.Equal(t, runtime.NextDone, r.Next)
				own := ofKind(w.spans(), "AGENT")[0]
				chain := ofKind(w.spans(), "CHAIN")[0]
				require.Equal(t, own.SpanContext.SpanID(), chain.Parent.SpanID())
				require.Equal(t, c.joined, own.SpanContext.TraceID().String() == "5759e988bd862e3fe1be46a994272793")
				require.Equal(t, c.joined, own.Parent.SpanID().String() == "53995c3f42cd8ad8")
				require.Equal(t, c.joined, len(chain.Links) == 1)
			})
		})
	}
}

// An event that makes no sense is a CHAIN span with the error's name and without its text.
func TestBadEvent(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.invoke(context.Background(), "step", `{"agent":"clerk","message":"","key":"`+canary+`"}`)
		require.Error(t, err)
		require.Len(t, w.spans(), 1)
		require.Equal(t, "Countersign.Invalid", w.spans()[0].Status.Description)
		require.NotContains(t, asJSON(t, w.spans()), canary)
	})
}

// What an AGENT span says the run was started with is its own, also where the conversation began in another run; a fork was started with
// nothing but that.
func TestChildrenAreTracedByTheirOwnBeginning(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hide = observe.Hide{}
		w.script.say(agent.Reply{Text: "Hello."})
		first := w.post("Greet Ana.", nil)
		next := func(run string) {
			require.Equal(t, runtime.NextDone, w.walk(w.must("step", `{"tenant":"default","run":"`+run+`"}`)).Next)
		}
		next(first.Run)
		st := runtime.Starter{Ports: w.fn("api").Ports}
		w.script.say(agent.Reply{Text: "Hello, Bob."})
		goOn, err := st.Start(context.Background(), runtime.Start{Tenant: "default", Agent: &w.def, Key: "k2", Continues: first.Run,
			Message: []run.UserBlock{{Block: run.Text{Text: "Greet Bob."}}}})
		require.NoError(t, err)
		next(goOn.Run)
		w.script.say(agent.Reply{Text: "Hello again."})
		fork, err := st.Fork(context.Background(), runtime.Fork{Tenant: "default", Run: goOn.Run, At: 0, Key: "k3"})
		require.NoError(t, err)
		next(fork.Run)
		require.NotEqual(t, first.Trace.Traceparent, goOn.Trace.Traceparent, "a trace of its own")
		var inputs []string
		for _, s := range ofKind(w.spans(), "AGENT") {
			inputs = append(inputs, attr(s, "input.value"))
		}
		require.Equal(t, []string{"Greet Ana.", "Greet Bob.", "Greet Ana."}, inputs)
	})
}
