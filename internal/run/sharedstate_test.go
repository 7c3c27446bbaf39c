package run_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

func set(path, value string) run.Patch { return run.Patch{Path: path, Value: json.RawMessage(value)} }

func unset(path string) run.Patch { return run.Patch{Path: path} }

func TestApplyPatches(t *testing.T) {
	for _, c := range []struct {
		name, state string
		patches     []run.Patch
		want        string
	}{
		{"replaced, with its digits", `{"a":1}`, []run.Patch{set("/a", `100.10`)}, `{"a":100.10}`},
		{"no state yet", ``, []run.Patch{set("/a", `"<&>"`)}, `{"a":"<&>"}`},
		{"missing parents are objects", `{}`, []run.Patch{set("/a/b/0", `1`)}, `{"a":{"b":{"0":1}}}`},
		{"or lists where something is appended", `{}`, []run.Patch{set("/a/-", `1`), set("/a/-", `2`)}, `{"a":[1,2]}`},
		{"an index replaces", `{"a":[1,2]}`, []run.Patch{set("/a/1", `3`)}, `{"a":[1,3]}`},
		{"the length appends", `{"a":[1,2]}`, []run.Patch{set("/a/2", `3`)}, `{"a":[1,2,3]}`},
		{"inside an element", `{"a":[{"x":1}]}`, []run.Patch{set("/a/0/x", `2`), set("/a/0/y", `3`)}, `{"a":[{"x":2,"y":3}]}`},
		{"null is a value", `{"a":1}`, []run.Patch{set("/a", `null`)}, `{"a":null}`},
		{"what is not there", `{"a":{}}`, []run.Patch{unset("/a/b"), unset("/c/d"), unset("/a/b/c")}, `{"a":{}}`},
		{"under a scalar there is nothing", `{"a":1}`, []run.Patch{unset("/a/b")}, `{"a":1}`},
		{"out of an element", `{"a":[{"x":1}]}`, []run.Patch{unset("/a/0/x"), unset("/a/7/x")}, `{"a":[{}]}`},
		{"- is a key where there is an object", `{"a":{}}`, []run.Patch{set("/a/-", `1`)}, `{"a":{"-":1}}`},
		{"escapes", `{}`, []run.Patch{set("/a~1b/m~0n", `1`)}, `{"a/b":{"m~n":1}}`},
		{"the empty key", `{}`, []run.Patch{set("/", `1`)}, `{"":1}`},
		{"all of it", `{"a":1}`, []run.Patch{set("", `{"b":2}`)}, `{"b":2}`},
		{"nothing of it", `{"a":1}`, []run.Patch{unset("")}, `{}`},
		{"in order", `{}`, []run.Patch{set("/a", `1`), unset("/a"), set("/a/b", `2`)}, `{"a":{"b":2}}`},
	} {
		before := strings.Clone(c.state)
		got, err := run.ApplyPatches(json.RawMessage(c.state), c.patches)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, string(got), c.name)
		require.Equal(t, before, c.state, c.name)
		require.NoError(t, policy.CheckPatch(json.RawMessage(c.state), c.patches), c.name)
	}
}

// Whatever is wrong is said with the path, and no value of the state or the patch is.
func TestCheckPatchRefuses(t *testing.T) {
	view := json.RawMessage(`{"n":"secret","list":["secret"],"old":"` + strings.Repeat("o", 30_000) + `"}`)
	for want, patches := range map[string][]run.Patch{
		`at "n": json pointer: want a leading slash`:                              {set("n", `1`)},
		`at "/a~2": json pointer: want ~0 or ~1 where there is a tilde`:           {set("/a~2", `1`)},
		`at "/\xff": want a path in UTF-8`:                                        {set("/\xff", `1`)},
		`at "/n/x": what stands there is neither an object nor a list`:            {set("/n/x", `1`)},
		`at "/list/x": the list has no such place; want the index of an`:          {set("/list/x", `1`)},
		`at "/list/2": the list has no such place; want the index of an`:          {set("/list/2", `1`)},
		`at "/list/00": the list has no such place; want the index of an`:         {set("/list/00", `1`)},
		`at "/list/0": an element is not taken out of a list; patch the list`:     {unset("/list/0")},
		`want an object as the state`:                                             {set("", `"secret"`)},
		`at "/a": json at offset 5`:                                               {set("/a", `{"a":secret}`)},
		`at "/b": json at offset 0: want`:                                         {{Path: "/b", Value: json.RawMessage{}}},
		`at "/d": json at offset 7, "/a": want each key once`:                     {set("/d", `{"a":1,"a":2}`)},
		`a path of 33 parts, want at most 32`:                                     {set(strings.Repeat("/a", 33), `1`)},
		`101 patches, want at most 100`:                                           slices.Repeat([]run.Patch{set("/a", `1`)}, 101),
		`bytes, want at most 65536`:                                               {set("/a", `"`+strings.Repeat("s", 64<<10)+`"`)},
		`a state of 70040 bytes, want at most 65536`:                              {set("/a", `"`+strings.Repeat("s", 40_000)+`"`), set("/list", `[]`)},
		`at "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa`: {set("/"+strings.Repeat("a", 9000), `nope`)},
	} {
		err := policy.CheckPatch(view, patches)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
		require.Less(t, len(err.Error()), 400)
	}
}

// patchRun is a run whose first reply asked for calls c1 to cn.
func patchRun(t require.TestingT, sequential bool, n int) run.AgentState {
	first := run.Replied{Inference: 1, Model: "m", Requests: 1, Sequential: sequential}
	for i := range n {
		first.Calls = append(first.Calls, run.RepliedCall{ID: fmt.Sprintf("c%d", i+1), Name: "note", Effect: run.EffectRead, Input: json.RawMessage(`{}`)})
	}
	s, err := run.ApplyEntry(run.AgentState{}, run.Entry{Writer: "w1", Time: worldEpoch, Events: []run.Event{
		run.RunStarted{Tenant: "default", Run: "r1", Agent: "a", Definition: "d", Owner: "r1-0", MaxInteractions: 9, Messages: []run.UserBlock{{Block: run.Text{Text: "Go."}}}}, first,
	}})
	require.NoError(t, err)
	return s
}

func noted(call string, patches ...run.Patch) run.CallFinished {
	return run.CallFinished{Call: call, Ran: true, Content: "ok", Patch: patches}
}

// drawPatches are up to four patches on a few short paths, so that they meet.
func drawPatches(t *rapid.T, label string) []run.Patch {
	path := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "0", "1", "-"}), 0, 3), jsonx.FormatPointer)
	patch := rapid.Custom(func(t *rapid.T) run.Patch {
		p := run.Patch{Path: path.Draw(t, "path")}
		if v := rapid.SampledFrom([]string{"", "1", "null", "{}", `{"a":{"b":1}}`, "[]", "[1,2]"}).Draw(t, "value"); v != "" {
			p.Value = json.RawMessage(v)
		}
		return p
	})
	return rapid.SliceOfN(patch, 0, 4).Draw(t, label)
}

var drawnStates = []string{``, `{"a":{"a":1},"b":[1,{"a":2}]}`, `{"a":[[1],[2]],"0":{"1":null}}`, `{"a":{"-":1},"b":1}`}

// However the calls of a round finish, one by one or some together, the state comes to the same, or the same conflict ends the run.
// Where there is none, the changes applied in any order, one call after the other, give it.
func TestTheOrderOfFinishingDoesNotMatter(t *testing.T) {
	merged := 0
	rapid.Check(t, func(t *rapid.T) {
		start := patchRun(t, false, 4)
		start.Shared, _ = run.ApplyPatches(json.RawMessage(rapid.SampledFrom(drawnStates).Draw(t, "state")), nil)
		var events []run.Event
		for i := range 4 {
			patches := drawPatches(t, "patches")
			if policy.CheckPatch(start.SharedState(), patches) != nil { // the runtime lets none through that does not fit the view
				patches = nil
			}
			events = append(events, noted(fmt.Sprintf("c%d", i+1), patches...))
		}
		d := worldDefinition()
		one := then(t, start, events...)
		shuffled := rapid.Permutation(events).Draw(t, "order")
		cut := rapid.IntRange(0, 4).Draw(t, "cut")
		other := start
		for _, group := range [][]run.Event{shuffled[:cut], shuffled[cut:]} {
			var err error
			other, err = run.ApplyEntry(other, run.Entry{Seq: other.Entries, Writer: "w2", Time: worldTime(other.Entries), Events: group})
			require.NoError(t, err)
		}
		require.Equal(t, string(one.SharedState()), string(other.SharedState()))
		require.Equal(t, policy.Next(&d, &one).End, policy.Next(&d, &other).End)
		if len(one.Patches) > 0 {
			require.Equal(t, start.SharedState(), one.SharedState())
			return
		}
		merged++
		state := start.SharedState()
		for _, e := range shuffled {
			var err error
			state, err = run.ApplyPatches(state, e.(run.CallFinished).Patch)
			require.NoError(t, err)
		}
		require.Equal(t, string(state), string(one.SharedState()))
	})
	require.Positive(t, merged)
}

// FuzzApplyPatches: whatever a tool gives is refused with words or gives a state that is an object, is its own canonical form, and has
// what the last patch set.
func FuzzApplyPatches(f *testing.F) {
	for _, p := range []string{"", "/", "/a", "/a/-", "/a/0/b", "/~0~1", "a", "/~", "/\xff", "/99999999999999999999"} {
		for _, v := range []string{"", "null", `{"a":[1]}`, `[[]]`, `"x"`, "{", `{"a":1,"a":2}`} {
			f.Add(drawnStates[len(p)%len(drawnStates)], p, v, p+"/b")
		}
	}
	f.Fuzz(func(t *testing.T, state, path, value, second string) {
		view, err := run.ApplyPatches(json.RawMessage(state), nil)
		if err != nil {
			return
		}
		first := run.Patch{Path: path}
		if value != "" {
			first.Value = json.RawMessage(value)
		}
		patches := []run.Patch{first, set(second, `1`)}
		kept := strings.Clone(string(view))
		err = policy.CheckPatch(view, patches)
		require.Equal(t, kept, string(view))
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		got, err := run.ApplyPatches(view, patches)
		require.NoError(t, err)
		require.EqualValues(t, '{', got[0])
		again, err := run.ApplyPatches(got, nil)
		require.NoError(t, err)
		require.Equal(t, string(got), string(again))
		if v, found, err := jsonx.Lookup(got, second); err == nil && found && !strings.Contains(second, "-") {
			require.Equal(t, "1", string(v))
		}
		raw, err := run.MarshalEvent(noted("c1", patches...))
		require.NoError(t, err)
		back, err := run.UnmarshalEvent(raw)
		require.NoError(t, err)
		require.Equal(t, "call_finished", run.EventType(back))
		onceMore, err := run.ApplyPatches(view, back.(run.CallFinished).Patch)
		require.NoError(t, err)
		require.Equal(t, string(got), string(onceMore))
	})
}
