package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"

	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web/api"
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
	one := b.start("k")
	_, err := b.client.Decide(b.t.Context(), one.Waiting[0].Approval, api.Verdict{Action: approval.Approve})
	require.NoError(b.t, err)
	require.Equal(b.t, run.RunDone, b.waitUntilParked(one.ID).Status)
	next, err := b.client.Start(b.t.Context(), api.Start{Agent: "payer", Message: json.RawMessage(`"again"`), Key: "k2", Continues: one.ID})
	require.NoError(b.t, err)
	_, err = b.client.Decide(b.t.Context(), b.waitUntilParked(next.ID).Waiting[0].Approval, api.Verdict{Action: approval.Deny})
	require.NoError(b.t, err)
	require.Equal(b.t, run.RunDone, b.waitUntilParked(next.ID).Status)
	return one.ID, next.ID
}

// Whoever resumes behind any event, in the middle of an entry too, gets exactly the rest, as pages and as a stream; pages of any size hold
// the same.
func TestFormatsResumeAnywhere(t *testing.T) {
	b := newBench(t, pay)
	first, second := b.approved()
	for _, format := range stream.Formats() {
		for _, run := range []string{first, second} {
			whole := b.streamEvents(run, format, "")
			require.NotEmpty(t, whole)
			for i, e := range whole {
				require.Equal(t, whole[i+1:], append([]streamEvent{}, b.streamEvents(run, format, e.id)...), "%s behind %s", format, e.id)
			}
			for _, size := range []int{1, 2, 7, 200} {
				require.Equal(t, dataOf(whole), b.pages(run, format, size), "%s in pages of %d", format, size)
			}
			require.Empty(t, b.pages(run, format, 9, "999"), "behind the end there is nothing")
		}
	}
}

func dataOf(all []streamEvent) (out []string) {
	for _, e := range all {
		out = append(out, e.data)
	}
	return out
}

func (b *bench) pages(run, format string, size int, from ...string) (all []string) {
	b.t.Helper()
	for after := strings.Join(from, ""); ; {
		p, err := b.client.EncodedEvents(b.t.Context(), run, format, after, size)
		require.NoError(b.t, err)
		require.LessOrEqual(b.t, len(p.Items), size)
		for _, e := range p.Items {
			all = append(all, string(e))
		}
		if after = p.Cursor; after == "" {
			return all
		}
	}
}

func TestContinuationTellsItsParent(t *testing.T) {
	b := newBench(t, pay)
	first, second := b.approved()
	events := b.streamEvents(second, "canonical", "")
	require.Contains(t, events[0].data, `"parent_run_id":"`+first+`"`)
	require.Contains(t, events[1].data, `"text":"Paid."`, "the conversation it goes on with")
	require.Contains(t, b.streamEvents(second, "arvo", "")[0].data, `"initiatorId":"`+first+`"`)
}

// While a model writes, a stream of a format tells its text, without ids; the entry tells all of it again, and once it is there nothing
// is told of it any more.
func TestLiveText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, `{"text": "Hello world"}`)
		d, _ := b.Agents("payer")
		run, err := b.Starter.Start(t.Context(), runtime.Start{
			Tenant: "default", Agent: d, Message: []run.UserBlock{{Block: run.Text{Text: "hi"}}},
		})
		require.NoError(t, err)
		synctest.Wait()
		running := cut{b.backend.Journal, 1}
		b.backend.Journal = running
		for format, wants := range map[string][]string{
			"canonical": {
				"event: reasoning_delta\n", `"data":{"delta":"hm","attempt":0}`, "event: text_delta\n", `"data":{"delta":"lo","attempt":0}`,
				"event: tool_call_delta\n", `"data":{"delta":":1}","attempt":0,"index":0,"id":"c1","name":"pay"}`,
			},
			"arvo": {
				"event: agent.llm.delta\n", `"data":{"delta":"hm","content":"hm"}`, "event: agent.llm.delta.text\n", `"data":{"delta":"lo","content":"Hello"}`,
				"event: agent.llm.delta.tool\n", `"data":{"toolname":"pay","toolUseId":"c1","input":"{\"a\":1}","meta":{"error":null}}`,
			},
			"cowork": {"event: stream-token\n", `"data":{"token":"lo","attempt":0}`},
			"forge": {
				"event: thinking_content\n", `"data":{"content":"hm","live":true}`, "event: message_content\n", `"data":{"content":"lo","live":true}`,
				"event: tool_call_content\n", `"data":{"content":":1}","live":true}`,
			},
			"agui":    {"event: CUSTOM\n", `{"delta":"lo","attempt":0}`},
			"aisdk":   {"event: data-text-delta\n", `"data":{"delta":"lo","attempt":0}`},
			"journal": nil,
		} {
			r := httptest.NewRequest(http.MethodGet, "/v1/runs/"+run.Run+"/events?format="+format, nil)
			r.Header.Set("Accept", "text/event-stream")
			w := httptest.NewRecorder()
			done := make(chan bool)
			go func() {
				api.Handler(b.backend).ServeHTTP(w, r)
				close(done)
			}()
			synctest.Wait()
			of := agent.Request{Tenant: "default", Run: run.Run, Inference: 1}
			said := func(kind agent.DeltaKind, text string) agent.Delta { return agent.Delta{Kind: kind, Text: text} }
			b.feed.ReceiveDelta(of, said(agent.DeltaReasoning, "hm"))
			b.feed.ReceiveDelta(of, said(agent.DeltaText, "Hel"))
			synctest.Wait()
			b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaCall, Text: `{"a"`, Call: "c1", Name: "pay"})
			b.feed.ReceiveDelta(of, said(agent.DeltaText, "lo"))
			b.feed.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaCall, Text: `:1}`, Call: "c1", Name: "pay"})
			later, other := of, of
			later.Inference, other.Run = 2, "rother"
			b.feed.ReceiveDelta(later, said(agent.DeltaText, "LATER"))
			b.feed.ReceiveDelta(other, said(agent.DeltaText, "OTHER"))
			<-done
			text := w.Body.String()
			require.NotContains(t, text, "LATER")
			require.NotContains(t, text, "OTHER")
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

// What is committed in this process is told at once, in every format.
func TestEntriesAreToldAtOnce(t *testing.T) {
	for format, last := range map[string]string{"journal": "event: finished", "canonical": "event: run_finish", "arvo": "event: agent.output\n",
		"cowork": "event: stream-complete\n", "forge": "event: turn_end\n", "agui": "event: RUN_FINISHED\n", "aisdk": "\n\ndata: [DONE]\n\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newUnserved(t, pay)
			d, _ := b.Agents("payer")
			state, err := b.Starter.Start(t.Context(), runtime.Start{
				Tenant: "default", Agent: d, Message: []run.UserBlock{{Block: run.Text{Text: "pay"}}},
			})
			require.NoError(t, err)
			synctest.Wait()
			r := httptest.NewRequest(http.MethodGet, "/v1/runs/"+state.Run+"/events?format="+format, nil)
			r.Header.Set("Accept", "text/event-stream")
			w := httptest.NewRecorder()
			done := make(chan bool)
			go func() {
				api.Handler(b.backend).ServeHTTP(w, r)
				close(done)
			}()
			synctest.Wait()
			b.feed.ReceiveDelta(agent.Request{Tenant: "default", Run: state.Run, Inference: 2}, agent.Delta{Kind: agent.DeltaText, Text: "Pai"}) // a wake-up without an entry
			synctest.Wait()
			begin := time.Now()
			_, err = b.backend.Desk.Decide(t.Context(), approval.DecisionInput{
				Tenant: "default", ID: run.ApprovalID(state.Run, "c1", 1), Action: approval.Approve,
				By: policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}},
			})
			require.NoError(t, err)
			<-done
			require.Less(t, time.Since(begin), time.Second, format)
			require.Contains(t, w.Body.String(), last)
			require.Equal(t, format == "aisdk", w.Header().Get("x-vercel-ai-ui-message-stream") == "v1")
		})
	}
}

// cut is a journal of which only so many entries are there yet.
type cut struct {
	api.Journal
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
	piece := strings.Repeat("x", 1<<10)
	for range 4 << 10 {
		b.feed.ReceiveDelta(agent.Request{Tenant: "default", Run: "r", Inference: 1}, agent.Delta{Kind: agent.DeltaText, Text: piece})
	}
	said, _ := w.(interface {
		TakeDeltas() ([]stream.Delta, bool)
	}).TakeDeltas()
	require.LessOrEqual(t, len(said), 64)
	size := 0
	for _, d := range said {
		size += len(d.Text)
	}
	require.Equal(t, 1<<20, size)

	for i := range 4 << 10 { // pieces of different calls cannot be joined
		b.feed.ReceiveDelta(agent.Request{Tenant: "default", Run: "r", Inference: 1}, agent.Delta{Kind: agent.DeltaCall, Text: "x", Place: i % 2})
	}
	said, _ = w.(interface {
		TakeDeltas() ([]stream.Delta, bool)
	}).TakeDeltas()
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
	said := func() (text string) {
		w := b.feed.Watch("default", "r")
		defer w.Stop()
		pieces, _ := w.(interface {
			TakeDeltas() ([]stream.Delta, bool)
		}).TakeDeltas()
		for _, d := range pieces {
			text += d.Text
		}
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
	b.feed.Committed(t.Context(), run.Entry{}, &run.AgentState{Tenant: "default", Run: "r", Inferences: 1, Status: run.RunDone})
	require.Empty(t, said())
}

// What the planner and the router write is nobody's answer; what is made of their results is, and is told as it comes.
func TestPlannersAreNotHeard(t *testing.T) {
	b := newUnserved(t, pay)
	w := b.feed.Watch("default", "r")
	defer w.Stop()
	for _, of := range []run.Lifecycle{run.LifecyclePlan, run.LifecycleRoute, run.LifecycleSynthesis, run.LifecycleInit} {
		b.feed.ReceiveDelta(agent.Request{Tenant: "default", Run: "r", Inference: 1, Lifecycle: of}, agent.Delta{Kind: agent.DeltaText, Text: "<" + string(of) + ">"})
	}
	said, _ := w.(interface {
		TakeDeltas() ([]stream.Delta, bool)
	}).TakeDeltas()
	text := ""
	for _, d := range said {
		text += d.Text
	}
	require.Equal(t, "<synthesis><init>", text)
}

// bad is a listener that panics.
type bad struct{ heard atomic.Int64 }

func (l *bad) Committed(context.Context, run.Entry, *run.AgentState) {
	l.heard.Add(1)
	panic(errors.New("a listener that fails"))
}

// A listener that panics does not hurt a run, nor those behind it: not its entries, and not its end.
func TestBadListenersHurtNoRun(t *testing.T) {
	c, throws := clock.System(), &bad{}
	s, err := script.Parse("model.jsonl", []byte(`{"text": "Done."}`))
	require.NoError(t, err)
	blobs, err := bolt.OpenFolder(t.TempDir())
	require.NoError(t, err)
	feed := api.NewFeed(c)
	d := definition(t)
	m, err := local.New(local.Config{
		Table: store.NewMemory(), Blobs: blobs, Model: script.New(s), Tools: noTools{}, Clock: c, IDs: ids.System(c),
		Agents:     func(string) (*agent.Definition, bool) { return &d, true },
		Executions: &asl.MemoryStore{}, Sink: runtime.Sinks{throws, feed},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Engine.Close()) }()
	text := []run.UserBlock{{Block: run.Text{Text: "go"}}}
	state, err := m.Starter.Start(t.Context(), runtime.Start{Tenant: "default", Agent: &d, Message: text})
	require.NoError(t, err)
	watch := feed.Watch("default", state.Run)
	defer watch.Stop()
	for {
		l, err := m.Ports.Journal.Load(t.Context(), "default", state.Run)
		require.NoError(t, err)
		if l.State.Status == run.RunDone {
			require.Equal(t, `"Done."`, string(l.State.Output))
			break
		}
		require.NoError(t, watch.Wait(t.Context(), 0))
	}
	require.Positive(t, throws.heard.Load())
}

// noTools has no tool.
type noTools struct{}

func (noTools) Lookup(string) (tool.Tool, bool) { return nil, false }
