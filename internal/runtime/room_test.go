package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// narrow gives the run a window that its fourth round fills, in the arithmetic of fixed terms: 224 tokens a round and little else.
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

func TestEvictionIsOfTheReplysEntry(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.narrow(nil)
		w.start()
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		evicted, beside := w.evictions()
		require.Len(t, evicted, 2)
		for _, names := range beside {
			require.Equal(t, []string{"evicted", "replied"}, names[:2])
		}
		s := w.state()
		require.EqualValues(t, evicted[1].Total, s.EvictedMessages)
		for i, r := range w.model.asked {
			require.Equal(t, i >= 4, strings.Contains(r.System, "Earlier in this conversation"), "request %d", i)
		}
	})
}

// A request that fails on the way, as often as that happens, evicts once: with the reply.
func TestEvictionOfALostAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.narrow(nil)
		lost := 0
		w.model.during = func(r agent.Request) error {
			if lost++; r.Inference == 5 && lost < 8 {
				require.NoError(t, w.send(fmt.Sprint("m", lost), "And?")) // another attempt finds something else
				return errBlown
			}
			return nil
		}
		w.start()
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		evicted, beside := w.evictions()
		require.EqualValues(t, 7, evicted[0].Total, "what came in meanwhile counts as newest")
		require.Equal(t, []string{"input_received", "input_received", "input_received", "evicted", "replied"}, beside[0])
		for i, e := range evicted {
			require.Equal(t, 1, strings.Count(e.Summary, "- user: Work."))
			require.True(t, i == 0 || e.Total > evicted[i-1].Total)
		}
	})
}

func TestFailedRequestEvictsNothing(t *testing.T) {
	for name, change := range map[string]func(x *agent.Context){
		"eviction": nil,
		"gate":     func(x *agent.Context) { x.Keep = 20; x.Window = 920 },
		"notes":    func(x *agent.Context) { x.SummaryBy = agent.SummaryModel },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.narrow(change)
				w.model.during = func(r agent.Request) error {
					if r.Inference == 5 {
						return &agent.ModelError{Class: agent.ModelAuth, Model: "m", Message: "no"}
					}
					return nil
				}
				w.start()
				require.Equal(t, runtime.NextFailed, w.drive(0).Next)
				s := w.state()
				require.Equal(t, run.CodeModelFailed, s.Error.Code)
				require.Zero(t, w.written("evicted")+w.written("context_full"))
				require.Equal(t, 9, s.Messages.Len())
				want := int64(5)
				if name == "notes" {
					want++ // that it was asked for is known all the same
				}
				require.Equal(t, want, s.ModelCalls)
			})
		})
	}
}

func TestSummaryByModel(t *testing.T) {
	usage := run.Usage{Input: 70, Output: 7}
	for name, c := range map[string]struct {
		say  string
		fail error
		want string
	}{
		"written":  {say: "  They want it done. \xff ", want: "They want it done. \uFFFD"},
		"too long": {say: strings.Repeat("é", 1000), want: strings.Repeat("é", 800)},
		"empty":    {say: " \n", want: "- user: Work.\n- assistant: [called look]\n- tool: rrr"},
		"failed":   {fail: &agent.ModelError{Class: agent.ModelServer, Model: "m", Message: "no"}, want: "- user: Work.\n- assistant: [called look]\n- tool: rrr"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.narrow(func(x *agent.Context) { x.SummaryBy = agent.SummaryModel })
				w.model.replies = w.model.replies[:4]
				notes := &notetaker{Asker: w.model, reply: agent.Reply{Text: c.say, Usage: usage}, fail: c.fail}
				w.ports.Model = notes
				w.start()
				require.Equal(t, runtime.NextDone, w.drive(0).Next)
				s := w.state()
				require.True(t, strings.HasPrefix(s.Summary, c.want), s.Summary)
				require.EqualValues(t, 5, s.Inferences, "notes quote the conversation and do not carry it")
				require.EqualValues(t, 5, s.Interactions.Current)
				require.EqualValues(t, 6, s.ModelCalls)
				if c.fail == nil {
					require.Equal(t, usage, s.Usage)
					require.EqualValues(t, 77, s.ExecutionUnits)
				}
				require.Len(t, notes.asked, 1)
				r := notes.asked[0]
				require.Empty(t, r.Tools)
				require.Equal(t, []string{
					`user: "Work."`, `call of "look": "{}"`, `result: "` + strings.Repeat("r", 640) + `"`, `call of "look": "{}"`, `result: "` + strings.Repeat("r", 640) + `"`,
				}, strings.Split(r.Messages[0].Block.(run.Text).Text, "\n"))
				require.Contains(t, w.model.asked[4].System, c.want)
			})
		})
	}
}

// notetaker answers requests for notes.
type notetaker struct {
	runtime.Asker
	reply agent.Reply
	fail  error
	asked []agent.Request
}

func (n *notetaker) Ask(ctx context.Context, r agent.Request) (agent.Reply, int, error) {
	if r.Lifecycle != run.LifecycleNotes {
		return n.Asker.Ask(ctx, r)
	}
	n.asked = append(n.asked, r)
	return n.reply, 1, n.fail
}

// counter is a provider that counts.
type counter struct {
	n     int64
	fail  error
	asked []agent.Request
}

func (c *counter) CountTokens(_ context.Context, r agent.Request) (int64, error) {
	c.asked = append(c.asked, r)
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
		"it fails, with room":     {counter{fail: errBlown}, measured(1300), false, true},
		"far from the end":        {counter{n: 1}, measured(100_000), false, false},
		"fixed terms":             {counter{n: 1}, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
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
					require.ErrorIs(t, warned[0], errBlown)
				}
			})
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

// Five megabytes of results go through one conversation: every request stays within the window, every entry within an item, and nothing of
// what was said is lost.
func TestLongConversation(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clock.System(), 1)
		const rounds, size = 125, 40 << 10
		w.def.Limits.Interactions = rounds + 1
		for i := range rounds {
			w.model.replies = append(w.model.replies, calls(fmt.Sprintf(`look c%d {"path":"%d.txt"}`, i, i)))
		}
		w.gives(func(n int) string { return fmt.Sprintf("%04d", n) + strings.Repeat("é", size/2) })
		w.def.Context.TruncateResult = 0
		w.start()
		before := w.counts.Counts()
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		read := w.counts.Counts().Sub(before)
		require.LessOrEqual(t, read.Queries, int64(2*rounds+2), "a warm step reads what is new")

		for i, r := range w.model.asked {
			bytes := len(r.System)
			for _, m := range r.Messages {
				if res, ok := m.Block.(run.ToolResult); ok {
					bytes += len(res.Content)
				}
			}
			require.Less(t, run.ProseTokens(bytes), w.def.Context.Window-w.def.Context.Reserve.Output-w.def.Context.Reserve.Safety-w.def.Context.RoundMinimum, "request %d", i)
			require.LessOrEqual(t, len(r.System), 2*1600+400)
		}
		for _, ops := range w.table.Written() {
			for _, op := range ops {
				require.LessOrEqual(t, store.Size(op.Item), 400<<10)
			}
		}
		s := w.state()
		require.Greater(t, s.EvictedMessages, int64(200))
		require.Contains(t, s.Files, fmt.Sprintf("%d.txt", (s.EvictedMessages-3)/2))
		all, err := w.ports.Journal.Conversation(w.ctx, tenant, &s)
		require.NoError(t, err)
		require.Len(t, all, 1+2*rounds+1)
		for i, m := range all {
			require.Equal(t, i < int(s.EvictedMessages), m.Evicted)
			require.Positive(t, m.SeenCount)
		}
		require.Equal(t, run.Text{Text: "Work."}, all[0].Block)
		require.Less(t, all[0].SeenCount, int64(rounds), "frozen")
	})
}

// Nothing of all this costs a run that is far from its window's end a byte.
func TestRoomCostsNothingFarFromTheEnd(t *testing.T) {
	sizes := func(change func(d *agent.Definition)) (sizes []int) {
		inBubble(t, func(t *testing.T, w *world) {
			change(w.def)
			w.model.replies = []agent.Reply{calls("look c1"), calls("look c2")}
			w.start()
			require.Equal(t, runtime.NextDone, w.drive(0).Next)
			for _, ops := range w.table.Written()[1:] { // the first holds the definition's digest
				for _, op := range ops {
					sizes = append(sizes, store.Size(op.Item))
				}
			}
		})
		return sizes
	}
	require.Equal(t, sizes(func(d *agent.Definition) { d.Context = agent.Context{Mask: true} }), sizes(func(*agent.Definition) {}))
}

var errNoCount = errors.New("no count")

// An invocation that runs out of time while a provider counts has done nothing.
func TestCountOutOfTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.narrow(func(x *agent.Context) { x.Reserve = agent.Reserve{} })
		s := run.AgentState{}
		w.def.Context.EvictBelow = prompt.BudgetOf(w.def, &s, run.Action{}, prompt.Measured{System: "You work."}).Remaining - 6
		ctx, cancel := context.WithCancel(w.ctx)
		w.ports.Count = cancelling{cancel}
		w.start()
		_, err := w.stepper().Step(ctx, w.inv(0))
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, w.model.asked)
		require.EqualValues(t, 1, w.state().Entries)
	})
}

type cancelling struct{ cancel func() }

func (c cancelling) CountTokens(context.Context, agent.Request) (int64, error) {
	c.cancel()
	return 0, errNoCount
}
