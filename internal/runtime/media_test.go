package runtime_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// page is a picture of so many bytes, each the same.
func page(of byte, bytes int) run.Media {
	return run.Media{
		Name: string(of) + ".png", MediaType: "image/png", Data: base64.StdEncoding.EncodeToString(
			[]byte(strings.Repeat(string(of), bytes)),
		),
	}
}

// digestOf is the name of what a picture holds.
func digestOf(t *testing.T, m run.Media) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(m.Data)
	require.NoError(t, err)
	return store.BlobDigest(raw)
}

// gives makes a tool give these media.
func (f *fake) gives(text string, media ...run.Media) {
	f.work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
		return agent.ToolResultData{Content: text, Media: media}, nil
	}
}

// watched notes what of blobs was put and read, in order, and makes them go wrong on demand.
type watched struct {
	put    []string
	got    []string
	broken error // of everything; nil = works
}

// watch puts a watched store before the world's blobs.
func (w *world) watch() *watched {
	b := &watched{}
	w.ports.Blobs = fault.NewBlobs(w.ports.Blobs, func(_ context.Context, c fault.Call, call func() error) error {
		switch {
		case b.broken != nil:
			return b.broken
		case c.Port == fault.BlobsPut:
			b.put = append(b.put, c.Target)
		case c.Port == fault.BlobsGet:
			b.got = append(b.got, c.Target)
		}
		return call()
	})
	return b
}

// What cannot be kept is left out, one by one, and the model is told; what the tool did stays done. What can be kept is:
// data, or a blob that the tenant has.
func TestToolMediaThatCannotBeKept(t *testing.T) {
	good := run.Media{Name: "ok", MediaType: "image/png", Data: "AAAA"}
	const atMost = "is left out: one result gives at most 100000000 bytes of media]"
	for name, c := range map[string]struct {
		text  string
		media []run.Media
		want  string
		kept  int
	}{
		"no base64": {
			"did", []run.Media{{Name: "a.png", MediaType: "image/png", Data: "?"}, good},
			"did\n[a.png (image/png) is left out: its data is not base64]", 1,
		},
		"no type": {
			"did", []run.Media{{Name: "a", Data: "AAAA"}, good},
			"did\n" + `[a () is left out: mediaType: got "", want one such as image/png]`, 1,
		},
		"no such blob": {
			"did", []run.Media{{MediaType: "image/png", Blob: store.BlobDigest([]byte("x"))}, good},
			"did\n[(image/png) is left out: there is no such blob]", 1,
		},
		"a blob": {"did", []run.Media{{MediaType: "text/plain", Blob: store.BlobDigest([]byte("whole"))}}, "did", 1},
		"too many": {
			"did", slices.Repeat([]run.Media{good}, 103), "did\n[3 more media are left out: one result has at most 100]", 100,
		},
		"too much": {
			"", []run.Media{page('x', store.MaxBlob-1), page('y', 2), good},
			"The tool gave x.png (image/png).\n[y.png (image/png) " + atMost + "\n[ok (image/png) " + atMost, 1,
		},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.has("whole")
			w.tool("pay").gives(c.text, c.media...)
			w.startWith(calls("pay c1"))
			require.Equal(t, runtime.NextDone, w.drive(0).Next)
			require.Equal(t, run.StatusSucceeded, w.call("c1").Status)
			require.Equal(t, c.want, w.call("c1").Result.Content)
			require.Len(t, w.call("c1").Result.Media, c.kept)
		})
	}
}

// has puts a blob and gives its digest.
func (w *world) has(content string) string {
	w.t.Helper()
	digest := store.BlobDigest([]byte(content))
	require.NoError(w.t, w.ports.Blobs.Put(w.ctx, tenant, digest, []byte(content)))
	return digest
}

// A store that fails leaves the tool's effect and no entry that points at nothing.
func TestToolMediaThatCannotBeStored(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.tool("pay").gives("did", page('x', 400<<10))
		w.startRound(calls("pay c1"))
		b := w.watch()
		b.broken = errBlown
		w.batchRun(0)
		require.Equal(t, "The tool ran, but its result could not be stored.", w.call("c1").Result.Content)
		require.Empty(t, w.call("c1").Result.Media)
	})
}

// A result that comes late, and a tool's word on a call that was interrupted, are kept as well: media, and a long text of
// which the model is shown the beginning.
func TestLateAndReconciledMediaAreKept(t *testing.T) {
	large, long := page('x', 400<<10), strings.Repeat("日本", 5000)
	want := []run.Media{{Name: "x.png", MediaType: "image/png", Blob: digestOf(t, large)}}
	for name, reconciled := range map[string]bool{"late": false, "reconciled": true} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.tool("pay").gives(long, large)
			if reconciled {
				w.tool("pay").reconcile = func(tool.Call) (tool.Outcome, agent.ToolResultData, error) {
					return tool.OutcomeDone, agent.ToolResultData{Content: long, Media: []run.Media{large}}, nil
				}
			}
			r := w.lateResult(func() runtime.Route { return w.batchRun(0) })
			require.Equal(t, reconciled, w.written("answered") == 1)
			w.drive(r.Woken)
			if !reconciled {
				require.EqualValues(t, 1, w.state().Drained, "through the inbox")
			}
			c := w.call("c1")
			require.Equal(t, want, c.Result.Media)
			text, err := w.ports.Blobs.Get(w.ctx, tenant, c.Result.Whole.Blob)
			require.NoError(t, err)
			require.Equal(t, long, string(text))
			require.Equal(t, 10_000, c.Result.Whole.Chars)
			last := w.model.asked[len(w.model.asked)-1].Messages
			require.Equal(t, want[0], last[len(last)-1].Block)
		})
	}
}

// A message that names a blob which its tenant does not have is refused before anything is written.
func TestUnknownBlobsAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		known, nobodys := w.has("known"), store.BlobDigest([]byte("nobody's"))
		rivals := store.BlobDigest([]byte("the rival's"))
		require.NoError(t, w.ports.Blobs.Put(w.ctx, "rival", rivals, []byte("the rival's")))
		require.NoError(t, w.ports.Blobs.Put(w.ctx, tenant, store.BlobDigest(nil), nil))
		blobs := w.watch()
		names := func(digest string) []run.UserBlock {
			return append(says("Look."), run.UserBlock{Block: run.Media{MediaType: "image/png", Blob: known}},
				run.UserBlock{Block: run.Media{MediaType: "image/png", Blob: digest}})
		}
		st, in := &runtime.Starter{Ports: w.ports}, &runtime.Inputs{Ports: w.ports, Definitions: w.pinned}
		request, untouched := w.request(""), w.counts.Counts()
		for name, digest := range map[string]string{
			"nobody's": nobodys, "the rival's": rivals, "no digest": "../x", "empty": store.BlobDigest(nil), "another spelling": strings.ToUpper(known),
		} {
			request.Message = names(digest)
			_, err := st.Start(w.ctx, request)
			require.ErrorIs(t, err, runtime.ErrUnknownBlob, name)
			require.ErrorContains(t, err, "block 2", name)
		}
		require.Empty(t, blobs.put, "not even the definition")
		require.Equal(t, untouched, w.counts.Counts())

		request.Message = names(known)
		w.follow(st.Start(w.ctx, request))
		request.Continues, request.Key = w.run, "another"
		require.ErrorIs(t, errOf(st.Start(w.ctx, request)), policy.ErrNotFinished)
		others, err := w.ports.Journal.HasOtherUsers(w.ctx, tenant, w.run, known)
		require.NoError(t, err)
		require.False(t, others, "or a run that never begins keeps the blob for ever")
		before := len(w.entries())
		require.ErrorIs(t, in.Send(w.ctx, tenant, w.run, "m1", "user:ana", names(rivals)), runtime.ErrUnknownBlob)
		require.ErrorIs(t, in.Check(w.ctx, tenant, w.run, names(rivals)), runtime.ErrUnknownBlob)
		require.NoError(t, in.Check(w.ctx, tenant, w.run, names(known)))
		require.NoError(t, in.Send(w.ctx, tenant, w.run, "m1", "user:ana", names(known)))
		require.Len(t, w.entries(), before)
		blobs.broken = errBlown
		require.ErrorIs(t, in.Check(w.ctx, tenant, w.run, names(known)), errBlown, "a store that fails is not one without the blob")
	})
}

// A run that takes in a blob which is being deleted waits for the deletion, for two seconds.
func TestBlobInDeletionIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		known := w.has("known")
		st, request := &runtime.Starter{Ports: w.ports}, w.request("")
		request.Message = append(says("Look."), run.UserBlock{Block: run.Media{MediaType: "image/png", Blob: known}})
		until := time.Now().Add(time.Minute)
		require.NoError(t, w.ports.Journal.LockBlob(w.ctx, tenant, known, time.Now(), until))
		require.ErrorIs(t, errOf(st.Start(w.ctx, request)), store.ErrConflict)
		unlocked := make(chan error, 1)
		go func() {
			time.Sleep(time.Second)
			unlocked <- w.ports.Journal.UnlockBlob(w.ctx, tenant, "rother", known, until)
		}()
		require.NoError(t, errOf(st.Start(w.ctx, request)))
		require.NoError(t, <-unlocked)
	})
}

// asked is a provider's adapter that keeps what it was asked, and takes no media that are not resolved.
type asked struct {
	t        *testing.T
	requests []agent.Request
}

func (a *asked) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	for _, m := range r.Messages {
		if b, ok := m.Block.(run.Media); ok {
			require.Empty(a.t, b.Blob)
			require.NotEmpty(a.t, b.Data)
		}
	}
	a.requests = append(a.requests, r)
	return agent.Reply{Model: "m", Text: "Done."}, nil
}

func blobMessage(digest string) run.Message {
	return run.Message{Role: run.RoleUser, Block: run.Media{Name: "p.png", MediaType: "image/png", Blob: digest}}
}

// Media in blobs are resolved for the provider, as far as a request may hold them; what is on record stays as it is.
func TestWithMedia(t *testing.T) {
	ctx, blobs, next := context.Background(), store.NewMemoryBlobs(), &asked{t: t}
	put := func(content []byte) run.Message {
		digest := store.BlobDigest(content)
		require.NoError(t, blobs.Put(ctx, tenant, digest, content))
		return blobMessage(digest)
	}
	whole, over := make([]byte, prompt.MaxRequestMedia-5), make([]byte, prompt.MaxRequestMedia+1)
	inline := run.Message{Role: run.RoleUser, Block: run.Media{MediaType: "image/png", Data: "AAAA"}}
	messages := []run.Message{put(over), inline, put([]byte("small")), put(whole)}
	before := slices.Clone(messages)
	_, err := runtime.WithMedia(next, blobs).Generate(ctx, agent.Request{Tenant: tenant, Messages: messages})
	require.NoError(t, err)
	require.Equal(t, before, messages)
	got := next.requests[0].Messages
	require.Contains(t, got[0].Block.(run.Text).Text, "p.png (image/png) is not shown: it has 15000001 bytes")
	require.Equal(t, inline, got[1])
	require.Equal(t, run.Media{Name: "p.png", MediaType: "image/png", Data: "c21hbGw="}, got[2].Block)
	require.Equal(t, base64.StdEncoding.EncodeToString(whole), got[3].Block.(run.Media).Data)
}

// A blob that is gone, or another tenant's, is the end of the request, and no adapter is asked.
func TestWithMediaOfNobody(t *testing.T) {
	ctx, blobs, next := context.Background(), store.NewMemoryBlobs(), &asked{t: t}
	digest := store.BlobDigest([]byte("x"))
	require.NoError(t, blobs.Put(ctx, "rival", digest, []byte("x")))
	_, err := runtime.WithMedia(next, blobs).Generate(
		ctx, agent.Request{Tenant: tenant, Messages: []run.Message{blobMessage(digest)}},
	)
	var failed *agent.ModelError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, agent.ModelInvalid, failed.Class)
	require.Contains(t, failed.Message, digest)
	require.Empty(t, next.requests)
}

// A store that asks for patience ends nothing, and whoever comes later goes on.
func TestRunWithMediaInBlobs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		next, request := &asked{t: t}, w.request("")
		request.Message = append(says("Look."), run.UserBlock{Block: run.Media{MediaType: "image/png", Blob: w.has("shot")}})
		w.follow(w.starter().Start(w.ctx, request))
		b := w.watch()
		w.ports.Model = modelretry.New(runtime.WithMedia(next, w.ports.Blobs), w.ports.Clock, nil)
		b.broken = store.ErrThrottled
		_, err := w.stepper().Step(w.ctx, w.inv(0))
		require.ErrorIs(t, err, store.ErrThrottled, "for the state machine to retry")
		require.Equal(t, run.RunRunning, w.state().Status)
		b.broken = nil
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		require.Len(t, next.requests, 1)
	})
}

// TestAResultThatCannotBeKept is shown all the same: the tool has run, and what it said first is what matters most.
func TestAResultThatCannotBeKept(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		long := strings.Repeat("x", 7000)
		isLong := func(c fault.Call) bool { return c.Port == fault.BlobsPut && c.Target == store.BlobDigest([]byte(long)) }
		w.ports.Blobs = fault.NewBlobs(w.ports.Blobs, fault.OnlyIf(isLong, fault.Fail(errors.New("no room"))))
		var warned []string
		w.ports.Warn = func(what string, err error) { warned = append(warned, what+": "+err.Error()) }
		w.tool("pay").gives(long)
		w.startWith(calls("pay c1"))
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		c := w.call("c1")
		require.Equal(t, run.StatusSucceeded, c.Status)
		require.Nil(t, c.Result.Whole)
		require.Equal(
			t, long[:6000]+"\n\n[The first 6000 of 7000 characters of this result are shown. The rest was left out.]", c.Result.Content,
		)
		require.Equal(
			t, []string{"keep a long result of run " + w.run + ": store the whole result of call c1: no room"}, warned,
		)
	})
}

// TestAPageThatIsGone is an error of the call's, and the run goes on.
func TestAPageThatIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		gone := false
		isGone := func(c fault.Call) bool { return gone && c.Port == fault.BlobsGet }
		w.ports.Blobs = fault.NewBlobs(w.ports.Blobs, fault.OnlyIf(isGone, fault.Fail(store.ErrNoBlob)))
		w.model.replies = []agent.Reply{calls("look c1"), calls("read_more c2")}
		w.model.replies[1].Calls[0].Input = []byte(`{"call":"c1","from":6000}`)
		w.tool("look").gives(strings.Repeat("x", 7000))
		w.start()
		w.step(0)
		w.batchRun(0)
		w.step(0)
		gone = true
		require.Equal(t, runtime.NextStep, w.batchRun(0).Next)
		c := w.call("c2")
		require.Equal(t, run.WhyToolError, c.Reason)
		require.Contains(t, c.Result.Content, "read_more failed: the rest of the result of call c1 cannot be read")
	})
}

// The largest result of a call whose run went on elsewhere is a late result: the inbox takes it.
func TestLargestLateResult(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m := run.Media{Name: strings.Repeat("\u2028", 200), MediaType: "image/png", Data: strings.Repeat("iVBO", 327)}
		patch := []run.Patch{{Path: "/x", Value: json.RawMessage(`"` + strings.Repeat("v", 64_000) + `"`)}}
		w.tool("pay").work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
			w.commit("another", run.HandedOver{Owner: "another"})
			return agent.ToolResultData{
				Content: strings.Repeat("x", 48_000), Media: slices.Repeat([]run.Media{m}, 100), Patch: patch,
			}, nil
		}
		w.startRound(calls("pay c1"))
		w.batchRun(0)
		l, err := w.ports.Journal.Load(w.ctx, tenant, w.run)
		require.NoError(t, err)
		require.IsType(t, run.LateResult{}, l.Inbox[0])
	})
}
