package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func jsonOutput(change ...func(*Definition)) Definition {
	d := worldDefinition(change...)
	d.Output = Output{Format: OutputJSON, Schema: rawJSON(`{"type":"object"}`)}
	return d
}

func TestJudge(t *testing.T) {
	d := jsonOutput()
	tests := []struct{ name, text, why string }{
		{"an object", `{"ok":1}`, ""},
		{"space around it", " \n{\"ok\":1}\n", ""},
		{"any value that fits", `null`, ""},
		{"what the schema refuses", `{"bad":1}`, `it does not fit the schema:\n/bad: not allowed`},
		{"a code fence", "```json\n{}\n```", "it is not one JSON value: json at offset 0: want a JSON value"},
		{"words before", `Here: {}`, "it is not one JSON value: json at offset 0: want a JSON value"},
		{"words behind", `{} done`, "it is not one JSON value: json at offset 3: want nothing after the value"},
		{"a key twice", `{"a":1,"a":2}`, `each key once`},
		{"nothing", "", "it is not one JSON value"},
		{"too much", `"` + strings.Repeat("x", 128<<10) + `"`, "at most 131072 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := Judge(&d, &AgentState{}, Replied{Inference: 1, Text: tt.text}, worldFits)
			if tt.why == "" {
				require.Equal(t, Replied{Inference: 1, Text: tt.text}, e)
				return
			}
			require.Equal(t, LifecycleOutputError, e.Correction.Lifecycle)
			require.False(t, e.Correction.Ephemeral)
			require.Contains(t, e.Correction.Text, tt.why)
			require.True(t, strings.HasPrefix(e.Correction.Text, `{"type":"error","name":"invalid_output","message":"`), e.Correction.Text)
			require.True(t, strings.HasSuffix(e.Correction.Text, `"schema":{"type":"object"}}`), e.Correction.Text)
			require.NotEmpty(t, e.Text, "the model's turn is kept")
		})
	}
}

func TestJudgeLeavesAlone(t *testing.T) {
	fits := func(json.RawMessage) error { t.Fatal("nothing to check"); return nil }
	free, bound := worldDefinition(), jsonOutput()
	for _, e := range []Replied{{Text: "{"}, {}} {
		require.Equal(t, e, Judge(&free, &AgentState{}, e, fits))
	}
	calls := called(1, "a")
	calls.Text = "not JSON"
	require.Equal(t, calls, Judge(&bound, &AgentState{}, calls, fits))
}

func TestJudgeKeepsLongSchemasOut(t *testing.T) {
	d := jsonOutput()
	d.Output.Schema = rawJSON(`{"title":"` + strings.Repeat("x", maxSchemaShown) + `"}`)
	require.NotContains(t, Judge(&d, &AgentState{}, Replied{}, worldFits).Correction.Text, "schema")
}

// TestNextCorrects: a refused reply owes an inference, whether or not the conversation says so, and user messages do not hide it.
func TestNextCorrects(t *testing.T) {
	for _, mode := range []CorrectionMode{CorrectionsPersist, CorrectionsEphemeral} {
		d := jsonOutput(func(d *Definition) { d.Corrections = mode })
		s := started(t)
		s = commit(t, s, "w1", Judge(&d, &s, PlanReply(&d, &s, Reply{Text: "ten"}, 1, ""), worldFits))
		want := Action{Kind: ActInfer, Lifecycle: LifecycleOutputError}
		require.Equal(t, want, Next(&d, &s), mode)
		heard := commit(t, s, "w1", said(1, "And?"))
		require.Equal(t, want, Next(&d, &heard), mode)

		r, _ := BuildRequest(&d, &s, want, "")
		require.Equal(t, OutputFormat{JSON: true, Schema: d.Output.Schema, Name: "small"}, r.Output)
		last := r.Messages[len(r.Messages)-1]
		require.Equal(t, RoleUser, last.Role)
		require.Contains(t, last.Block.(Text).Text, "invalid_output")
		require.Zero(t, last.Seen(r.Inferences))
		require.Len(t, r.Messages, 3)
		require.Equal(t, mode == CorrectionsEphemeral, s.Messages.Len() == 2, "in passing, it is in the request alone")

		s = commit(t, s, "w1", Judge(&d, &s, PlanReply(&d, &s, Reply{Text: "[10.0]"}, 1, ""), worldFits))
		require.Equal(t, Action{Kind: ActEnd, End: Finished{Reason: ReasonNaturalEnd, Output: rawJSON(`[10.0]`)}}, Next(&d, &s), mode)
	}
}

// TestNextSumsUp: once, without tools, and not counted; what a user says meanwhile is answered the same way.
func TestNextSumsUp(t *testing.T) {
	d := worldDefinition(func(d *Definition) { d.Limits = Limits{Interactions: 2, Grace: 0, OnLimit: OnLimitSummarise} })
	s := started(t, called(1, "r"), ran("r", "1"), called(2, "r2"), ran("r2", "2"))
	a := Next(&d, &s)
	require.Equal(t, Action{Kind: ActInfer, Lifecycle: LifecycleSummary, Exhausted: true}, a)
	r, _ := BuildRequest(&d, &s, a, "")
	require.Empty(t, r.Tools)
	require.Equal(t, Text{Text: d.word(wordSummarise, nil)}, r.Messages[len(r.Messages)-1].Block)
	require.Len(t, r.Messages, s.Messages.Len()+1)
	require.Equal(t, r, r.WithNotices(), "the instruction says it all")

	e := PlanReply(&d, &s, Reply{Text: "Twice.", Calls: ask("look")}, 1, "")
	require.Equal(t, Replied{Inference: 3, Requests: 1, Text: "Twice.", Summary: true}, e)
	after := commit(t, s, "w1", e)
	require.Equal(t, Interactions{Current: 2, Max: 2}, after.Interactions)
	require.EqualValues(t, 3, after.Inferences)
	require.Equal(t, Finished{Reason: ReasonNaturalEnd, Output: rawJSON(`"Twice."`)}, Next(&d, &after).End)
	after = commit(t, after, "w1", said(1, "More."))
	require.Equal(t, a, Next(&d, &after))

	silent := commit(t, s, "w1", PlanReply(&d, &s, Reply{Text: " \n", Calls: ask("look")}, 1, ""))
	require.Equal(t, textOutput(d.word(wordNoSummary, nil)), Next(&d, &silent).End.Output)
	last := silent.Messages.At(silent.Messages.Len() - 1)
	require.Equal(t, RoleAssistant, last.Role)
	require.Zero(t, last.Seen(silent.Inferences), "no model wrote it")
}

func TestARefusedSummaryIsNoOutput(t *testing.T) {
	d := jsonOutput(func(d *Definition) { d.Limits = Limits{Interactions: 2, OnLimit: OnLimitSummarise} })
	for _, reply := range []string{`{"bad":1}`, "", "ten"} {
		s := started(t, called(1, "r"), ran("r", "1"), called(2, "r2"), ran("r2", "2"))
		e := Judge(&d, &s, PlanReply(&d, &s, Reply{Text: reply}, 1, ""), worldFits)
		require.True(t, e.Summary)
		require.Empty(t, e.Static)
		s = commit(t, s, "w1", e)
		end := Next(&d, &s).End
		require.Equal(t, CodeInteractionsExhausted, end.Error.Code, reply)
		require.Contains(t, end.Error.Message, e.Correction.Text)
		_, err := Apply(s, Finished{Reason: ReasonNaturalEnd})
		require.ErrorContains(t, err, "the model's last word was refused")
		require.Equal(t, RunDone, commit(t, s, "w1", end).Status)
	}
}

func TestVerdictsThatContradictTheReply(t *testing.T) {
	c := &Correction{Lifecycle: LifecycleOutputError, Text: "no"}
	for want, e := range map[string]Replied{
		"a reply with calls is neither":           {Summary: true, Calls: called(1, "a").Calls},
		"neither a summary nor refused":           {Correction: c, Calls: called(1, "a").Calls},
		"only an empty summary has a text":        {Static: "x"},
		"that stands for it":                      {Static: "x", Summary: true, Correction: &Correction{Text: "no"}},
		"a refused summary only why":              {Summary: true, Correction: c},
		"a refused reply says why and when":       {Correction: &Correction{Text: "no"}},
		"says why and when the model is told":     {Correction: &Correction{Lifecycle: LifecycleOutputError}},
		"and when the model is told, a refused s": {Summary: true, Correction: &Correction{}},
	} {
		s := started(t)
		e.Inference = 1
		n, err := Apply(s, e)
		require.ErrorContains(t, err, want)
		require.Equal(t, exact(t, s), exact(t, n))
	}
}

// TestOutputOfTheNewestTurn: refused turns that stand directly before the accepted one are no part of it.
func TestOutputOfTheNewestTurn(t *testing.T) {
	refused := text(1, "ten")
	refused.Correction = &Correction{Lifecycle: LifecycleOutputError, Text: "no", Ephemeral: true}
	pieces := text(2, "[1,2]")
	pieces.Reasoning = []RepliedReasoning{{Text: "hm", AfterText: 3}}
	s := started(t, refused, pieces)
	require.Equal(t, "[1,2]", lastReply(&s))
}

func TestHistoryIsPartOfTheShownOutput(t *testing.T) {
	d := worldDefinition(func(d *Definition) { d.Output.History = true })
	s := started(t, text(1, "Done."))
	end := Next(&d, &s).End
	require.True(t, end.History)
	require.Equal(t, rawJSON(`"Done."`), end.Output, "it is stored once")
	for _, tt := range []struct {
		end  Finished
		want string
	}{
		{end, `{"output":"Done.","messages":[{"role":"user","seenCount":1,"content":{"type":"text","text":"Do it."}},{"role":"assistant","seenCount":1,"content":{"type":"text","text":"Done."}}]}`},
		{Finished{Reason: ReasonNaturalEnd, Output: rawJSON(`"Done."`)}, `"Done."`},
		{Finished{Reason: ReasonMaxRounds, History: true}, `null`},
	} {
		raw, err := json.Marshal(commit(t, s, "w1", tt.end))
		require.NoError(t, err)
		var run struct{ Output json.RawMessage }
		require.NoError(t, json.Unmarshal(raw, &run))
		require.JSONEq(t, tt.want, string(run.Output))
	}
}

func TestNotices(t *testing.T) {
	base := Request{System: "Be small.", Messages: []Message{{Role: RoleUser, Block: Text{"a"}, Base: 1}}, Inferences: 3, Interactions: Interactions{Current: 5, Max: 5}}
	require.Equal(t, base, base.WithNotices())

	r := base
	r.Exhausted = true
	got := r.WithNotices()
	require.Len(t, r.Messages, 1)
	require.Len(t, got.Messages, 2)
	require.Equal(t, Message{Role: RoleUser, Block: Text{(&Definition{}).notices(Request{Exhausted: true, Interactions: r.Interactions}).Exhausted}, Base: -3}, got.Messages[1])
	require.Equal(t, "Be small.\n\n"+(&Definition{}).notices(Request{Exhausted: true, Interactions: r.Interactions}).Exhausted, got.System)
	require.Contains(t, got.System, " 5 ")

	r = Request{Output: OutputFormat{JSON: true}}
	require.Equal(t, defaultWord(wordJSONOnly), r.WithNotices().System)
	r.Output.Schema = rawJSON(`{}`)
	require.Equal(t, r, r.WithNotices(), "the schema asks for JSON")
}

// TestForkOfARefusedReply: a branch between a refused reply and its correction corrects, too; what goes on with the finished run does
// not.
func TestForkOfARefusedReply(t *testing.T) {
	d := jsonOutput(func(d *Definition) { d.Corrections = CorrectionsEphemeral })
	past := started(t)
	past = commit(t, past, "w1", Judge(&d, &past, PlanReply(&d, &past, Reply{Text: "ten"}, 1, ""), worldFits))
	from, err := ForkFrom(&past, childRun, worldTime(9))
	require.NoError(t, err)
	branch := begun(t, past, from)
	require.Equal(t, Action{Kind: ActInfer, Lifecycle: LifecycleOutputError}, Next(&d, &branch))

	past = commit(t, past, "w1", quotaEnd(&Definition{Limits: Limits{OnLimit: OnLimitStop}}, &AgentState{}))
	goOn, err := ContinueFrom(&past)
	require.NoError(t, err)
	require.Nil(t, func() *Correction { s := begun(t, past, goOn); return s.Correction }())
}
