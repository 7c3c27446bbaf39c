package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func builtRun(t *testing.T) (Definition, AgentState) {
	t.Helper()
	d := worldDefinition(func(d *Definition) { d.Builder = "b" })
	w := &world{def: d}
	return d, commit(t, AgentState{}, "api", w.start())
}

func saying(text string, seen int64) BuiltMessage {
	return BuiltMessage{Content: UserBlock{Text{text}}, Seen: seen}
}

func TestBuiltRefuses(t *testing.T) {
	_, s := builtRun(t)
	png := func(m Media) []BuiltMessage { return []BuiltMessage{{Content: UserBlock{m}}} }
	for want, given := range map[string][]BuiltMessage{
		"message 0: want text or media":                        {{Content: UserBlock{ToolUse{ID: "a"}}}},
		"message 1: want text or media":                        {saying("x", 0), {}},
		"message 0: a model does not say media":                {{Role: RoleAssistant, Content: UserBlock{Media{MediaType: "image/png", Data: "iVBORw=="}}}},
		"message 0: mediaType":                                 png(Media{MediaType: "png", Data: "iVBORw=="}),
		"message 0: want either data or blob":                  png(Media{MediaType: "image/png"}),
		"message 0: want a role of user or assistant":          {{Role: "system", Content: UserBlock{Text{"x"}}}},
		"a seenCount of zero or more":                          {saying("x", -1)},
		"201 messages, want at most 200":                       make201(),
		"take more than 163840 bytes: large media belong into": {saying(strings.Repeat("x", maxBuiltBytes), 0)},
	} {
		_, err := Built(&s, given)
		require.ErrorContains(t, err, want)
	}
	e, err := Built(&s, []BuiltMessage{saying("a\xff", 0)})
	require.NoError(t, err)
	require.Equal(t, ContextBuilt{Messages: []BuiltMessage{{Role: RoleUser, Content: UserBlock{Text{"a\uFFFD"}}}}}, e)
}

func make201() []BuiltMessage {
	out := make([]BuiltMessage, 201)
	for i := range out {
		out[i] = saying("x", 0)
	}
	return out
}

// A context comes once, before the first inference, and a repeated fact changes nothing.
func TestContextIsBuiltOnce(t *testing.T) {
	d, s := builtRun(t)
	require.True(t, NeedsBuilder(&d, &s))
	e, err := Built(&s, []BuiltMessage{saying("seen", 3), saying("new", 0)})
	require.NoError(t, err)
	s = commit(t, s, "w1", e)
	require.False(t, NeedsBuilder(&d, &s))
	require.Equal(t, 1, s.Unseen)
	again := commit(t, s, "w1", ContextBuilt{Messages: []BuiltMessage{saying("other", 0)}})
	require.Equal(t, 2, again.Messages.Len())

	_, plain := builtRun(t)
	plain = commit(t, plain, "w1", called(1))
	_, err = Apply(plain, e)
	require.ErrorContains(t, err, "the run has made an inference")
}

// A run that goes on with a finished one and brings data has its own context built behind what was said there, and does not end before.
func TestContinuedContext(t *testing.T) {
	d, past := builtRun(t)
	e, err := Built(&past, nil)
	require.NoError(t, err)
	past = commit(t, past, "w1", e, Replied{Inference: 1, Requests: 1, Text: "Done.", System: "s1", SystemText: "Old."}, Finished{Reason: ReasonNaturalEnd})
	from, err := ContinueFrom(&past)
	require.NoError(t, err)
	start := (&world{def: d}).start()
	start.Run, start.From, start.Input = "r2", &from, rawJSON(`{"more":1.50}`)
	s := commit(t, Seed(past), "api", start)
	require.True(t, NeedsBuilder(&d, &s))
	require.Equal(t, ActInfer, Next(&d, &s).Kind, "what it began with has not been said")
	_, err = Apply(s, Finished{Reason: ReasonNaturalEnd})
	require.ErrorContains(t, err, "has not seen everything")
	_, _, ok := KeptSystem(&d, &s)
	require.False(t, ok, "it has a system text of its own")

	s = commit(t, s, "w1", said(1, "And?"))
	e, err = Built(&s, nil)
	require.NoError(t, err)
	s = commit(t, s, "w1", e)
	var texts []string
	for _, m := range s.Messages.All() {
		texts = append(texts, m.Block.(Text).Text)
	}
	require.Equal(t, []string{`{"do":"it"}`, "Done.", `{"more":1.50}`, "And?"}, texts)
	require.EqualValues(t, 1, s.Messages.At(0).Seen(s.Inferences))
}

// A fork has the context that its parent's conversation began with: the messages once, and the same system text.
func TestForkedContext(t *testing.T) {
	d, parent := builtRun(t)
	fork := func() AgentState {
		from, err := ForkFrom(&parent, "r3", worldEpoch)
		require.NoError(t, err)
		start := (&world{def: d}).start()
		start.Run, start.From, start.Input = "r3", &from, nil
		return commit(t, Seed(parent), "api", start)
	}
	s := fork()
	require.True(t, NeedsBuilder(&d, &s), "before its context is built, the fork builds its own")
	require.True(t, s.Unsaid)

	e, err := Built(&parent, nil)
	require.NoError(t, err)
	parent = commit(t, parent, "w1", e, KeepSystem(&d, Replied{Inference: 1, Requests: 1, Text: "Done.", System: SystemDigest("Built.")}, "Built."))
	s = fork()
	require.False(t, NeedsBuilder(&d, &s))
	require.Equal(t, parent.Messages.Len(), s.Messages.Len())
	text, inBlob, ok := KeptSystem(&d, &s)
	require.True(t, ok)
	require.False(t, inBlob)
	require.Equal(t, "Built.", text)
}

// The text of the first inference is that of all, whatever a later build or the builder would make of it; a journal of before it was kept
// has its text rendered anew.
func TestKeptSystem(t *testing.T) {
	d := worldDefinition(func(d *Definition) { d.System = "It is {{.Date}}." })
	s := started(t)
	_, _, ok := KeptSystem(&d, &s)
	require.False(t, ok, "nothing is built yet")
	long := strings.Repeat("é", maxSystemText/2)
	for _, tt := range []struct {
		text         string
		inline, blob bool
	}{{"It is now.", true, false}, {d.System, false, false}, {long, true, false}, {long + "x", false, true}} {
		_, digest := BuildRequest(&d, &s, Next(&d, &s), tt.text)
		require.Equal(t, SystemDigest(tt.text), digest)
		e := KeepSystem(&d, Replied{Inference: 1, Requests: 1, Calls: called(1, "r").Calls, System: digest}, tt.text)
		require.Equal(t, tt.inline, e.SystemText != "")
		require.Equal(t, tt.blob, e.SystemBlob)
		n := commit(t, s, "w1", e)
		text, inBlob, ok := KeptSystem(&d, &n)
		require.True(t, ok)
		require.Equal(t, tt.blob, inBlob)
		if !inBlob {
			require.Equal(t, tt.text, text)
		}
		_, digest = BuildRequest(&d, &n, Next(&d, &n), tt.text)
		require.Empty(t, digest, "it has not changed")
	}
	old := commit(t, s, "w1", Replied{Inference: 1, Requests: 1, System: SystemDigest("It is now.")})
	_, _, ok = KeptSystem(&d, &old)
	require.False(t, ok)

	d.SystemPrompt = SystemEveryInference
	e := Replied{Inference: 1, Requests: 1, System: SystemDigest("x")}
	require.Equal(t, e, KeepSystem(&d, e, "x"), "its digest alone")
	kept := commit(t, s, "w1", Replied{Inference: 1, Requests: 1, System: SystemDigest("x"), SystemText: "x"})
	_, _, ok = KeptSystem(&d, &kept)
	require.False(t, ok)
}

func TestSystemFor(t *testing.T) {
	s := started(t, called(1, "r"), ran("r", "1"))
	d := worldDefinition()
	now := worldEpoch.Add(30 * time.Hour)
	data := SystemFor(&d, &s, Action{Exhausted: true}, now)
	require.Equal(t, SystemData{Date: "2026-11-02", Run: s.Run, Interactions: Interactions{Max: 2}}, data)
	d.SystemPrompt = SystemEveryInference
	data = SystemFor(&d, &s, Action{Exhausted: true}, now)
	require.Equal(t, SystemData{Date: "2026-11-02", Now: "2026-11-03T15:00:00Z", Run: s.Run, Interactions: Interactions{Current: 1, Max: 2}, Exhausted: true}, data)
	s.Parent = &Parent{Run: "p", Agents: []string{"desk", "researcher"}}
	require.Equal(t, "researcher", SystemFor(&d, &s, Action{}, now).Caller)
}

func TestReplySystemIsWhole(t *testing.T) {
	s := started(t)
	for _, e := range []Replied{{SystemText: "x"}, {SystemBlob: true}, {System: "s", SystemText: "x", SystemBlob: true}, {Dropped: "x"}} {
		e.Inference = 1
		_, err := Apply(s, e)
		require.Error(t, err)
	}
}

// Nothing that was built before is changed by a transform: the record and other versions of it share memory with the request.
func TestMaskCopies(t *testing.T) {
	d := worldDefinition(func(d *Definition) { d.Context.Mask = true })
	pic := Media{Name: "a", MediaType: "image/png", Blob: strings.Repeat("ab", 32)}
	s := started(t, called(1, "r"))
	s = commit(t, s, "w1", CallFinished{Call: "r", Ran: true, Content: "one", Media: []Media{pic}})
	r, _ := BuildRequest(&d, &s, Next(&d, &s), "")
	require.Equal(t, []string{pic.Blob}, MediaBlobs(r.Messages))
	s = commit(t, s, "w1", called(2, "r2"), ran("r2", "two"))
	r, _ = BuildRequest(&d, &s, Next(&d, &s), "")
	require.Empty(t, MediaBlobs(r.Messages), "what is masked is fetched from nowhere, and does not count")
	require.Equal(t, []string{pic.Blob}, MediaBlobs(s.Messages.All()))
	require.Equal(t, s.Messages.Len(), len(r.Messages))
	for i, m := range r.Messages {
		require.Equal(t, s.Messages.At(i).Seen(s.Inferences), m.Seen(r.Inferences))
	}
	d.Context.Mask = false
	r, _ = BuildRequest(&d, &s, Next(&d, &s), "")
	require.Equal(t, []string{pic.Blob}, MediaBlobs(r.Messages))
}

func TestModelFacing(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"object"}`: `{"type":"object"}`,
		`{"properties":{"b":{"maximum":1.50},"parentSubject$$":{"type":"string"},"a":{"enum":["<"]}},"required":["parentSubject$$","b"],"type":"object"}`: `{"properties":{"b":{"maximum":1.50},"a":{"enum":["<"]}},"required":["b"],"type":"object"}`,
		`{"required":["parentSubject$$"],"properties":{"parentSubject\u0024$":{}}}`:                                                                       `{"properties":{}}`,
		`{"required":[],"description":"parentSubject"}`:                                                                                                   `{"required":[],"description":"parentSubject"}`,
		`{"properties":{"x":{"properties":{"parentSubject$$":{}}}}}`:                                                                                      `{"properties":{"x":{"properties":{"parentSubject$$":{}}}}}`,
		`{"properties":true,"required":"parentSubject$$"}`:                                                                                                `{"properties":true,"required":"parentSubject$$"}`,
		"{ \"properties\" : { \"parentSubject$$\" : { } } , \"type\": \"object\" }":                                                                       `{"properties":{},"type":"object"}`,
	} {
		spec := ToolSpec{Name: "t", Schema: rawJSON(in)}
		require.Equal(t, want, string(spec.ModelFacing().Schema), in)
		require.Equal(t, in, string(spec.Schema))
	}
}

func TestOriginalName(t *testing.T) {
	d := worldDefinition()
	require.Equal(t, "pay.now", d.OriginalName("pay_now"))
	require.Equal(t, "look", d.OriginalName("look"))
	require.Equal(t, "no.such", d.OriginalName("no.such"), "the name itself")
	require.Equal(t, "pay.now", d.OriginalName("pay.now"))
}

// Two tools of one model-facing name are refused, whatever their kinds, and so is a name over 64 characters.
func TestNamesCollide(t *testing.T) {
	object := rawJSON(`{"type":"object"}`)
	tool := func(name string) ToolSpec {
		return ToolSpec{Name: name, Kind: KindInternal, Effect: EffectRead, Schema: object}
	}
	require.ErrorContains(t, CheckTools([]ToolSpec{tool("a.b_c"), tool("a_b.c")}), "tools[1].name: a.b_c and a_b.c are both a_b_c to the model")
	require.ErrorContains(t, CheckTools([]ToolSpec{tool("a.b"), tool("a.b")}), "tools[1].name: got a tool a second time")
	require.NoError(t, CheckTools([]ToolSpec{tool(strings.Repeat("a", 62) + ".b")}))
	require.ErrorContains(t, CheckTools([]ToolSpec{tool(strings.Repeat("a", 63) + ".b")}), "got 65 characters, want at most 64")
}

func TestCutNotice(t *testing.T) {
	for _, tt := range []struct {
		cut            CutText
		format         OutputKind
		text, stop, on string
	}{
		{CutTextNotice, "", "a", "length", "a\n\n" + defaultWord(wordTruncated)},
		{CutTextNotice, "", "", "max_tokens", defaultWord(wordTruncated)},
		{CutTextNotice, "", "a", "content_filtered", "a\n\n" + defaultWord(wordFiltered)},
		{CutTextNotice, "", "a", "guardrail_intervened", "a\n\n" + defaultWord(wordFiltered)},
		{CutTextNotice, "", "a", "content_filter", "a\n\n" + defaultWord(wordFiltered)},
		{CutTextNotice, "", "a", "stop", "a"},
		{CutTextNotice, OutputJSON, "{", "length", "{"},
		{CutTextPlain, "", "a", "length", "a"},
		{"", "", "a", "length", "a"},
	} {
		d := worldDefinition(func(d *Definition) { d.CutText, d.Output.Format = tt.cut, tt.format })
		s := started(t)
		require.Equal(t, tt.on, PlanReply(&d, &s, Reply{Text: tt.text, StopReason: tt.stop}, 1, "").Text, tt)
	}
	d := worldDefinition(func(d *Definition) { d.CutText = CutTextNotice })
	s := started(t)
	require.Equal(t, "a", PlanReply(&d, &s, Reply{Text: "a", StopReason: "length", Calls: ask("look")}, 1, "").Text, "beside calls")

	d.Model.Continuations = 1
	piece := PlanReply(&d, &s, Reply{Text: "It was ", StopReason: "length", Truncated: true}, 1, "")
	require.True(t, piece.Correction.continues())
	require.Equal(t, "It was ", piece.Text, "the model goes on with it")
	s = commit(t, s, "w1", piece)
	require.Equal(t, "ten\n\n"+defaultWord(wordTruncated), PlanReply(&d, &s, Reply{Text: "ten", StopReason: "length", Truncated: true}, 1, "").Text, "the last piece")
	require.Equal(t, "\n\n"+defaultWord(wordTruncated), PlanReply(&d, &s, Reply{StopReason: "length", Truncated: true}, 1, "").Text, "an empty last piece")
	d.Model.Continuations = 0

	d.Limits = Limits{Interactions: 1, OnLimit: OnLimitSummarise}
	s = started(t, called(1, "r"), ran("r", "1"))
	s.Interactions.Max = 1
	e := PlanReply(&d, &s, Reply{StopReason: "content_filter"}, 1, "")
	require.Equal(t, defaultWord(wordFiltered), e.Text)
	require.Empty(t, e.Static, "the summary is not empty")
	commit(t, s, "w1", e)
}

func TestDroppedNotice(t *testing.T) {
	s := started(t)
	d := worldDefinition(func(d *Definition) { d.Batch = BatchFirst })
	require.Empty(t, PlanReply(&d, &s, Reply{Calls: ask("look", "wire")}, 1, "").Dropped, "silent")
	d.Dropped = DroppedNotify
	require.Empty(t, PlanReply(&d, &s, Reply{Calls: ask("look")}, 1, "").Dropped, "nothing is left out")
	e := PlanReply(&d, &s, Reply{Calls: ask("look", "wi\nre", strings.Repeat("x", 100))}, 1, "")
	require.Contains(t, e.Dropped, `: "wi\nre", "`+strings.Repeat("x", 64)+`". `)
}
