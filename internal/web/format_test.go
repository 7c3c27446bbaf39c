package web_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/internal/web/stream"
)

// streamEvent is one event of a stream, as it was sent.
type streamEvent struct{ id, data string }

func (b *bench) streamEvents(run, format, after string) []streamEvent {
	b.t.Helper()
	var all []streamEvent
	require.NoError(b.t, b.client.FollowEncoded(b.t.Context(), run, format, after, func(id string, e json.RawMessage) error {
		all = append(all, streamEvent{id, string(e)})
		return nil
	}))
	return all
}

// approved is a run that waited, went on and is done, and a run that continues it.
func (b *bench) approved() (first, second string) {
	b.t.Helper()
	one := b.decided(b.start("k"), approval.Approve)
	require.Equal(b.t, run.RunDone, one.Status)
	next, err := b.client.Start(b.t.Context(), web.Start{Agent: "payer", Message: json.RawMessage(`"again"`), Key: "k2", Continues: one.ID})
	require.NoError(b.t, err)
	require.Equal(b.t, run.RunDone, b.decided(b.waitUntilParked(next.ID), approval.Deny).Status)
	return one.ID, next.ID
}

// Whoever resumes behind any event, in the middle of an entry too, gets exactly the rest, as pages and as a stream;
// pages of any size hold the same. A run that goes on with another one's conversation says so.
func TestFormatsResumeAnywhere(t *testing.T) {
	b := newBench(t, pay)
	first, second := b.approved()
	for _, format := range append(stream.Formats(), "") { // that of the journal
		for _, run := range []string{first, second} {
			whole := b.streamEvents(run, format, "")
			require.NotEmpty(t, whole)
			for i, e := range whole {
				require.Equal(t, whole[i+1:], append([]streamEvent{}, b.streamEvents(run, format, e.id)...), "%s behind %s", format, e.id)
			}
			var data []json.RawMessage
			for _, e := range whole {
				data = append(data, json.RawMessage(e.data))
			}
			for _, size := range []int{1, 2, 7, 200} {
				require.Equal(t, data, everyPage(t, func(after string) (web.Page[json.RawMessage], error) {
					p, err := b.client.EncodedEvents(t.Context(), run, format, after, size)
					require.LessOrEqual(t, len(p.Items), size)
					return p, err
				}), "%s in pages of %d", format, size)
			}
			p := must(b.client.EncodedEvents(t.Context(), run, format, "999", 9))
			require.Empty(t, p.Items, "behind the end there is nothing")
		}
	}
	events := b.streamEvents(second, "canonical", "")
	require.Contains(t, events[0].data, `"parent_run_id":"`+first+`"`)
	require.Contains(t, events[1].data, `"text":"Paid."`, "the conversation it goes on with")
	require.Contains(t, b.streamEvents(second, "arvo", "")[0].data, `"initiatorId":"`+first+`"`)
}

// While a model writes, a stream of a format tells its text, without ids; the entry tells all of it again, and once it is
// there nothing is told of it any more. TestLivePieces in package stream has the form in every format.
func TestLiveText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, `{"text": "Hello world"}`)
		id := b.begun()
		b.backend.Journal = cut{b.backend.Journal, 1}
		for format, wants := range map[string][]string{
			"canonical": {
				"event: reasoning_delta\n", `"data":{"delta":"hm","attempt":0}`, "event: text_delta\n", `"data":{"delta":"lo","attempt":0}`,
				"event: tool_call_delta\n", `"data":{"delta":":1}","attempt":0,"index":0,"id":"c1","name":"pay"}`,
			},
			"arvo": {
				"event: agent.llm.delta\n", `"data":{"delta":"hm","content":"hm"}`, "event: agent.llm.delta.text\n", `"data":{"delta":"lo","content":"Hello"}`,
				"event: agent.llm.delta.tool\n", `"data":{"toolname":"pay","toolUseId":"c1","input":"{\"a\":1}","meta":{"error":null}}`,
			},
			"cowork":  {"event: stream-token\n", `"data":{"token":"lo","attempt":0}`}, // and nothing of the rest
			"journal": nil,
		} {
			w := httptest.NewRecorder()
			done := b.followed(id, "format="+format, w)
			synctest.Wait()
			of := agent.Request{Tenant: "default", Run: id, Inference: 1}
			b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaReasoning, Text: "hm"})
			b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaText, Text: "Hel"})
			synctest.Wait()
			b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaCall, Text: `{"a"`, Call: "c1", Name: "pay"})
			b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaText, Text: "lo"})
			b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaCall, Text: `:1}`, Call: "c1", Name: "pay"})
			later, other := of, of
			later.Inference, other.Run = 2, "rother"
			b.feed.ReceiveDelta(later, agent.Delta{Kind: agent.DeltaText, Text: "LATER"})
			b.feed.ReceiveDelta(other, agent.Delta{Kind: agent.DeltaText, Text: "OTHER"})
			<-done
			text := w.Body.String()
			require.NotContains(t, text, "LATER")
			require.NotContains(t, text, "OTHER")
			require.NotContains(t, text, "event: \n")
			if wants == nil {
				require.NotContains(t, text, "Hel")
				require.NotContains(t, text, `:"hm"`)
			}
			for _, want := range wants {
				i := strings.Index(text, want)
				require.GreaterOrEqual(t, i, 0, "%s in %s", want, text)
				if strings.HasPrefix(want, "event: ") {
					require.True(t, i == 0 || strings.HasSuffix(text[:i], "\n\n"), "a piece has no id")
				}
			}
		}
	})
}

// A client that is slower than the model has the next reply from its beginning, behind the entry that it belongs behind.
func TestLiveTextBehindAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, pay)
		id := b.begun()
		journal := &cut{b.backend.Journal, 1}
		b.backend.Journal = journal
		w := httptest.NewRecorder()
		done := b.followed(id, "format=arvo", w)
		synctest.Wait()
		of := agent.Request{Tenant: "default", Run: id, Inference: 2}
		journal.entries = 9
		b.feed.Committed(t.Context(), run.Entry{}, &run.AgentState{Tenant: "default", Run: id, Inferences: 1})
		b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaText, Text: "Hel"}) // before the stream has read the entry
		synctest.Wait()
		b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaText, Text: "lo"})
		<-done
		require.Regexp(t, `(?s)agent\.tool\.request.*"delta":"Hel","content":"Hel".*"delta":"lo","content":"Hello"`, w.Body.String())
	})
}

// What is committed in this process is told at once, in every format.
func TestEntriesAreToldAtOnce(t *testing.T) {
	for format, last := range map[string]string{"journal": "event: finished", "canonical": "event: run_finish", "arvo": "event: agent.output\n",
		"cowork": "event: stream-complete\n", "forge": "event: turn_end\n", "agui": "event: RUN_FINISHED\n", "aisdk": "\n\ndata: [DONE]\n\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newUnserved(t, pay)
			id, w := b.begun(), httptest.NewRecorder()
			done := b.followed(id, "format="+format, w)
			synctest.Wait()
			of := agent.Request{Tenant: "default", Run: id, Inference: 2}
			b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaText, Text: "Pai"})
			synctest.Wait() // a wake-up without an entry
			begin := time.Now()
			b.approvedAtTheDesk(id)
			<-done
			require.Less(t, time.Since(begin), time.Second, format)
			require.Contains(t, w.Body.String(), last)
			require.Equal(t, format == "aisdk", w.Header().Get("x-vercel-ai-ui-message-stream") == "v1")
		})
	}
}

// approvedAtTheDesk approves a run's call.
func (b *bench) approvedAtTheDesk(id string) {
	_, err := b.backend.Desk.Decide(b.t.Context(), approval.DecisionInput{
		Tenant: "default", ID: run.ApprovalID(id, "c1", 1), Action: approval.Approve,
		By: policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}},
	})
	require.NoError(b.t, err)
}

// takenBy are the pieces of a reply that a watcher of run r takes now.
func takenBy(w web.Watch) (all []stream.Delta, text string) {
	all, _ = w.(interface {
		TakeDeltas() ([]stream.Delta, bool)
	}).TakeDeltas()
	for _, d := range all {
		text += d.Text
	}
	return all, text
}

// cut is a journal of which only so many entries are there yet.
type cut struct {
	web.Journal
	entries int64
}

func (j cut) Load(ctx context.Context, tenant, run string) (l store.Loaded, err error) {
	if l, err = j.Journal.Load(ctx, tenant, run); err == nil {
		l.State, err = j.Before(ctx, tenant, run, j.entries)
	}
	return l, err
}

func (j cut) Entries(ctx context.Context, tenant, run string, from int64, count int) ([]run.Entry, error) {
	all, err := j.Journal.Entries(ctx, tenant, run, from, count)
	for i, e := range all {
		if e.Seq >= j.entries {
			return all[:i], err
		}
	}
	return all, err
}

// A watcher that never takes what it is told holds no more than it may, and does not hold up who tells it.
func TestDeafWatcher(t *testing.T) {
	b := newUnserved(t, pay)
	w := b.feed.Watch("default", "r")
	defer w.Stop()
	of, piece := agent.Request{Tenant: "default", Run: "r", Inference: 1}, strings.Repeat("x", 1<<14)
	for range 4 << 6 {
		b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaText, Text: piece})
	}
	said, text := takenBy(w)
	require.LessOrEqual(t, len(said), 64)
	require.Len(t, text, 1<<20)

	for i := range 4 << 10 { // pieces of different calls cannot be joined
		b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaCall, Text: "x", Place: i % 2})
	}
	said, _ = takenBy(w)
	require.Len(t, said, 1024)
}

// A stream that begins while a model writes has all of the newest attempt, until the reply is an entry.
func TestLateWatcher(t *testing.T) {
	b := newUnserved(t, pay)
	of := agent.Request{Tenant: "default", Run: "r", Inference: 2}
	write := func(attempt int, text string) {
		of.Attempt = attempt
		b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaText, Text: text})
	}
	said := func() string {
		w := b.feed.Watch("default", "r")
		defer w.Stop()
		_, text := takenBy(w)
		return text
	}
	write(0, "Failed")
	write(1, "Hel")
	write(1, "lo")
	require.Equal(t, "Hello", said())
	b.feed.Committed(t.Context(), run.Entry{}, &run.AgentState{Tenant: "default", Run: "r", Inferences: 1}) // a message comes
	require.Equal(t, "Hello", said())
	b.feed.Committed(t.Context(), run.Entry{}, &run.AgentState{Tenant: "default", Run: "r", Inferences: 2})
	require.Empty(t, said())
	write(1, "Stopped")
	ended := run.AgentState{Tenant: "default", Run: "r", Inferences: 1, Status: run.RunDone}
	runtime.Sinks{broken{}, b.feed}.Committed(t.Context(), run.Entry{}, &ended)
	require.Empty(t, said(), "one that panics keeps nobody else from hearing")
}

func (broken) Committed(context.Context, run.Entry, *run.AgentState) { panic("a listener that fails") }

// What the planner and the router write is nobody's answer; what is made of their results is, and is told as it comes.
func TestPlannersAreNotHeard(t *testing.T) {
	b := newUnserved(t, pay)
	w := b.feed.Watch("default", "r")
	defer w.Stop()
	for _, of := range []run.Lifecycle{run.LifecyclePlan, run.LifecycleRoute, run.LifecycleSynthesis, run.LifecycleInit} {
		b.feed.ReceiveDelta(agent.Request{Tenant: "default", Run: "r", Inference: 1, Lifecycle: of}, agent.Delta{Kind: agent.DeltaText, Text: "<" + string(of) + ">"})
	}
	_, text := takenBy(w)
	require.Equal(t, "<synthesis><init>", text)
}
