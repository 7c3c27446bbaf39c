package stream_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/scenario"
	"github.com/countersign/countersign/internal/web/stream"
)

var update = flag.Bool("update", false, "write the golden files anew")

// scenarioStream is a scenario that was run.
type scenarioStream struct {
	name    string
	def     *agent.Definition
	seed    run.AgentState
	entries []run.Entry
}

// readScenarios runs scenarios of a pattern: all of them, or every n-th.
func readScenarios(t *testing.T, pattern string, n int) []scenarioStream {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []scenarioStream
	for i := 0; i < len(files); i += n {
		f := files[i]
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		s, err := scenario.Load(filepath.Base(f), data)
		require.NoError(t, err)
		r := s.Run(scenario.Options{})
		require.Empty(t, r.Failures, f)
		def := s.Agents()[0]
		all = append(all, scenarioStream{name: s.Name, def: &def, seed: r.Runs[0].Seed, entries: r.Runs[0].Journal})
	}
	return all
}

// allEvents is the story's events, by entry.
func (s scenarioStream) allEvents(t *testing.T) [][]stream.Event {
	t.Helper()
	var all [][]stream.Event
	state := s.seed
	for _, e := range s.entries {
		events, after, err := stream.Events(s.def, state, e)
		require.NoError(t, err)
		want, err := run.ApplyEntry(state, e)
		require.NoError(t, err)
		require.Equal(t, want.Entries, after.Entries)
		state = after
		all = append(all, events)
	}
	return all
}

// One run under each preset, in every format.
func TestPresets(t *testing.T) {
	for _, s := range readScenarios(t, "testdata/*.txtar", 1) {
		for _, format := range stream.Formats() {
			t.Run(s.name+"/"+format, func(t *testing.T) {
				var got bytes.Buffer
				for _, events := range s.allEvents(t) {
					encoded, err := stream.Format(format).Encode(events)
					require.NoError(t, err)
					for i, e := range encoded {
						require.Equal(t, i, e.Index)
						line, err := jsonx.MarshalVerbatim(e.Body)
						require.NoError(t, err)
						got.Write(append(line, '\n'))
					}
				}
				file := "testdata/" + strings.TrimSuffix(s.name, ".txtar") + "." + format + ".jsonl"
				if *update {
					require.NoError(t, os.WriteFile(file, got.Bytes(), 0o600))
				}
				want, err := os.ReadFile(file)
				require.NoError(t, err)
				require.Equal(t, string(want), got.String(), "if that is meant: go test ./internal/web/stream -update, and read the difference")
			})
		}
	}
}

// What the order of events promises holds of the scenarios of the repository: of every fourth, since all of them take
// long.
func TestOrder(t *testing.T) {
	seen := map[stream.Type]int{}
	all := append(readScenarios(t, "../../../scenarios/*.txtar", 4), readScenarios(t, "testdata/*.txtar", 1)...)
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			o := orderChecker{t: t, seen: seen, started: map[string]bool{}, done: map[string]bool{}}
			first, err := run.ApplyEntry(s.seed, s.entries[0])
			require.NoError(t, err)
			o.inherited = first
			for _, events := range s.allEvents(t) {
				o.checkEntry(events)
			}
			require.False(t, o.running && o.last == stream.RunFinish)
		})
	}
	for _, kind := range stream.Types() {
		switch kind {
		case stream.StateSnapshot, stream.EncryptedThought:
		default:
			require.Positive(t, seen[kind], kind)
		}
	}
}

// orderChecker holds a stream against what is promised of it.
type orderChecker struct {
	t             *testing.T
	seen          map[stream.Type]int
	running       bool // an attempt is under way
	step          string
	ended         bool
	last          stream.Type
	started, done map[string]bool // calls
	inherited     run.AgentState  // a fork begins with its calls: the snapshot of its messages has them
}

func (o *orderChecker) checkEntry(events []stream.Event) {
	doneHere := false
	for i, e := range events {
		require.Equal(o.t, i, e.Index)
		require.NotEmpty(o.t, e.Run)
		require.NotEmpty(o.t, e.Thread)
		require.Contains(o.t, stream.Types(), e.Type)
		require.Equal(o.t, e.Type != stream.RunStart, o.running, "%s: an attempt begins with run_start, and nothing stands behind its end", e.Type)
		switch d := e.Data.(type) {
		case stream.ToolCallReadyData:
			require.True(o.t, o.started[d.ID], "%s is ready and never started", d.ID)
			require.False(o.t, d.Pending != "" && doneHere, "%s: what came to wait stands before what is done", d.ID)
		case stream.ToolCallStartData:
			require.False(o.t, o.started[d.ID], "%s starts twice", d.ID)
			o.started[d.ID] = true
			if d.Pending != "" { // it asks about another, and has no result of its own
				o.done[d.ID] = true
			}
		case stream.ToolCallDoneData:
			_, inherited := o.inherited.Call(d.ID)
			require.True(o.t, inherited || o.started[d.ID], "%s is done and never started", d.ID)
			require.False(o.t, o.done[d.ID], "%s is done twice", d.ID)
			require.Contains(o.t, []run.CallStatus{run.StatusSucceeded, run.StatusFailed, run.StatusCancelled}, d.Outcome)
			require.Empty(o.t, o.step, "step_end stands before what becomes of the step's calls")
			o.done[d.ID], doneHere = true, true
		case stream.ToolCallResumedData:
			require.True(o.t, o.started[d.Target], "%s goes on and never waited", d.Target)
			require.Empty(o.t, o.step)
		case stream.RunFinishData:
			o.checkFinish(d)
		}
		o.checkEvent(e)
	}
}

func (o *orderChecker) checkEvent(e stream.Event) {
	o.seen[e.Type]++
	o.last = e.Type
	switch e.Type {
	case stream.RunStart:
		require.False(o.t, o.ended, "a run that is done starts again")
		o.running = true
	case stream.RunFinish:
		o.running = false
	case stream.StepStart:
		require.Empty(o.t, o.step)
		o.step = e.Step
	case stream.StepEnd:
		require.Equal(o.t, o.step, e.Step)
		o.step = ""
	case stream.InferenceDone:
		require.Equal(o.t, o.step, e.Step)
	}
}

func (o *orderChecker) checkFinish(d stream.RunFinishData) {
	o.ended = d.Termination != run.ReasonSuspended
	require.Equal(o.t, o.ended, len(d.Waiting) == 0)
	require.Equal(o.t, d.Termination == run.ReasonError, o.last == stream.Error)
	if d.Result != nil {
		require.Equal(o.t, run.ReasonNaturalEnd, d.Termination)
		require.NotEqual(o.t, `""`, string(d.Result.Response))
	}
	if o.ended {
		for id := range o.started {
			require.True(o.t, o.done[id], "%s has no result", id)
		}
	}
}

// A repeated entry says nothing, a gap is refused, and nobody's state is changed.
func TestOneEntryOnce(t *testing.T) {
	s := readScenarios(t, "testdata/countersign.txtar", 1)[0]
	state := run.AgentState{}
	_, after, err := stream.Events(s.def, state, s.entries[0])
	require.NoError(t, err)
	require.Zero(t, state.Entries)
	events, again, err := stream.Events(s.def, after, s.entries[0])
	require.NoError(t, err)
	require.Empty(t, events)
	require.Equal(t, after.Entries, again.Entries)
	_, _, err = stream.Events(s.def, after, s.entries[2])
	require.ErrorContains(t, err, "gap")
}

func types(events []stream.Event) (out []stream.Type) {
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}

// A call whose arguments the model did not write as they are says so.
func TestRepairedCallsSaySo(t *testing.T) {
	for name, want := range map[string]bool{"repair-shown": true, "repair-off": false} {
		ready := 0
		for _, entry := range readScenarios(t, "../../../scenarios/"+name+".txtar", 1)[0].allEvents(t) {
			for _, e := range entry {
				if d, ok := e.Data.(stream.ToolCallReadyData); ok && d.Pending == "" {
					require.Equal(t, want, d.Repaired)
					ready++
				}
			}
		}
		require.Equal(t, 1, ready)
	}
}

func TestFormats(t *testing.T) {
	require.Equal(t, []string{"agui", "aisdk", "arvo", "canonical", "cowork", "forge"}, stream.Formats())
	require.False(t, stream.Format("xml").Valid())
}

// Text, reasoning and calls are told live as pieces, which have no place in the stream; the id of a call is the model's
// own.
func TestLivePieces(t *testing.T) {
	s := run.AgentState{Run: "r", Subject: "order-1", Agent: "clerk", Version: "2"}
	const at, of = `"time":"0001-01-01T00:00:00Z"`, `"run":"r","subject":"order-1"`
	const frame = `"run_id":"r","thread_id":"order-1","timestamp_ms":-62135596800000,"step_id":"step_2"`
	const meta = `"metadata":{"subject":"order-1","initiatorId":"","selfId":"clerk","selfVersion":"2","runId":"r"}`
	const canonical = `{"type":"text_delta",` + frame + `,"data":{"delta":"lo","attempt":1}}`
	text := agent.Delta{Kind: agent.DeltaText, Text: "lo"}
	hm := agent.Delta{Kind: agent.DeltaReasoning, Text: "m"}
	begun := agent.Delta{Kind: agent.DeltaCall, Call: "c1", Name: "pay"}
	goesOn := agent.Delta{Kind: agent.DeltaCall, Name: "pay", Place: 2, Text: ":1}"}
	for _, c := range []struct {
		format  stream.Format
		piece   agent.Delta
		content string
		want    string
	}{
		{stream.Canonical, text, "Hello", canonical},
		{stream.Arvo, text, "Hello",
			`{"type":"agent.llm.delta.text",` + at + `,"data":{"delta":"lo","content":"Hello"},` + meta + `}`},
		{stream.Agui, text, "",
			`{"type":"CUSTOM","timestamp":-62135596800000,"name":"text_delta","value":` + canonical + `}`},
		{stream.Aisdk, text, "", `{"type":"data-text-delta","data":{"delta":"lo","attempt":1},"transient":true}`},
		{stream.Cowork, text, "", `{"type":"stream-token",` + at + `,` + of + `,"data":{"token":"lo","attempt":1}}`},
		{stream.Forge, text, "",
			`{"type":"message_content",` + at + `,` + of + `,"data":{"content":"lo","live":true,"attempt":1}}`},
		{stream.Canonical, hm, "", `{"type":"reasoning_delta",` + frame + `,"data":{"delta":"m","attempt":1}}`},
		{stream.Arvo, hm, "hm", `{"type":"agent.llm.delta",` + at + `,"data":{"delta":"m","content":"hm"},` + meta + `}`},
		{stream.Canonical, begun, "",
			`{"type":"tool_call_delta",` + frame + `,"data":{"delta":"","attempt":1,"index":0,"id":"c1","name":"pay"}}`},
		{stream.Arvo, begun, "",
			`{"type":"agent.llm.delta.tool",` + at + `,` +
				`"data":{"toolname":"pay","toolUseId":"c1","input":"","meta":{"error":null}},` + meta + `}`},
		{stream.Canonical, goesOn, "",
			`{"type":"tool_call_delta",` + frame + `,"data":{"delta":":1}","attempt":1,"index":2,"name":"pay"}}`},
		{stream.Arvo, goesOn, `{"a":1}`, `{"type":"agent.llm.delta.tool",` + at + `,` +
			`"data":{"toolname":"pay","toolUseId":"","input":"{\"a\":1}","meta":{"error":null}},` + meta + `}`},
	} {
		e := c.format.EncodeLive(&s, stream.Delta{Inference: 2, Attempt: 1, Delta: c.piece}, c.content, time.Time{})
		got, err := json.Marshal(e.Body)
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(got))
	}
	s.Status = run.RunWaiting // its next attempt begins with the reply's entry, and AG-UI allows nothing between two attempts
	require.Empty(t, stream.Agui.EncodeLive(&s, stream.Delta{Inference: 2, Delta: text}, "lo", time.Time{}).Type)
	for _, live := range []stream.Type{stream.TextDelta, stream.ReasoningDelta, stream.ToolCallDelta} {
		require.NotContains(t, stream.Types(), live)
	}
}
