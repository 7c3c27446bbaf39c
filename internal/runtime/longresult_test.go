package runtime_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

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
