package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func cutting(most int, keep bool) *Definition {
	return &Definition{Preset: PresetCountersign, Context: Context{TruncateResult: most, KeepWhole: keep}}
}

func TestResultsAreCut(t *testing.T) {
	long := strings.Repeat("a", 11537)
	for name, c := range map[string]struct {
		most        int
		text, shown string
		chars       int
		cut         bool
	}{
		"the seed's sample":           {6000, long, long[:6000], 11537, true},
		"exactly as long":             {6000, long[:6000], long[:6000], 6000, false},
		"one more":                    {6000, long[:6001], long[:6000], 6001, true},
		"off":                         {0, long, long, 11537, false},
		"nothing":                     {1, "", "", 0, false},
		"characters, not bytes":       {3, "äöü", "äöü", 3, false},
		"between characters":          {3, "äö日本", "äö日", 4, true},
		"beyond the basic plane":      {1, "🧾🧾", "🧾", 2, true},
		"what is no text, is one":     {2, "a\xff\xfeb", "a\uFFFD", 3, true},
		"what is no text and fits":    {3, "a\xff\xfeb", "a\uFFFDb", 3, false},
		"half a character at the end": {9, "ab\xe6\x97", "ab\uFFFD", 3, false},
	} {
		shown, chars, cut := cutting(c.most, true).CutResult(c.text)
		require.Equal(t, []any{c.shown, c.chars, c.cut}, []any{shown, chars, cut}, name)
	}
}

func TestCutNotices(t *testing.T) {
	require.Equal(t, "\n\n[The first 6000 of 11537 characters of this result are shown. The rest was left out.]", cutting(6000, true).CutNotice("c1", 11537, false))
	require.Equal(t, "\n\n[The first 6000 of 11537 characters of this result are shown. Read on with read_more {\"call\":\"c1\",\"from\":6000}.]",
		cutting(6000, true).CutNotice("c1", 11537, true))
	d := cutting(6000, true)
	d.Wording = map[string]string{"resultKept": "{{.Shown}}/{{.Total}} {{.Tool}} {{.Call}}", "resultCut": "{{.Shown}}/{{.Total}}"}
	require.Equal(t, "\n\n6000/7000 read_more c1", d.CutNotice("c1", 7000, true))
	require.Equal(t, "\n\n6000/7000", d.CutNotice("c1", 7000, false))
}

// requireCut holds of every result: no more characters than allowed, all of them the first of the text, valid, and a notice that says the
// truth.
func requireCut(t require.TestingT, most int, text string) {
	d := cutting(most, true)
	shown, chars, cut := d.CutResult(text)
	valid := strings.ToValidUTF8(text, "\uFFFD")
	require.True(t, utf8.ValidString(shown))
	require.True(t, strings.HasPrefix(valid, shown))
	require.Equal(t, utf8.RuneCountInString(valid), chars)
	require.Equal(t, cut, shown != valid)
	require.Equal(t, cut, most > 0 && chars > most)
	if cut {
		require.Equal(t, most, utf8.RuneCountInString(shown))
		require.Contains(t, d.CutNotice("c1", chars, false), fmt.Sprintf("first %d of %d ", most, chars))
		require.Contains(t, d.CutNotice("c1", chars, true), fmt.Sprintf(`"from":%d}`, most))
	}
}

func FuzzCutResult(f *testing.F) {
	f.Add(6000, "日本")
	f.Add(1, "a\xff\xfe\xe6\x97")
	f.Add(-1, "a")
	f.Fuzz(func(t *testing.T, most int, text string) { requireCut(t, most, text) })
}

func TestCutResultsKeepTheirBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requireCut(t, rapid.IntRange(0, 20).Draw(t, "most"), rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text"))
	})
}

// TestPagesAreTheWhole: who reads a result as the notices say has all of it, once, in pages that are no longer than what was cut.
func TestPagesAreTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := cutting(rapid.IntRange(1, 9).Draw(t, "most"), true)
		text := rapid.StringN(10, 60, -1).Draw(t, "text")
		head, chars, cut := d.CutResult(text)
		require.True(t, cut)
		s := cutConversation(ToolResult{ID: "c1", Content: head, Whole: &Whole{Blob: "b", Chars: chars}})
		read, notice := head, d.CutNotice("c1", chars, true)
		for strings.Contains(notice, "Read on") {
			_, args, _ := strings.Cut(strings.TrimSuffix(notice, ".]"), "Read on with read_more ")
			p, err := PageOf(d, &s, Call{Input: json.RawMessage(args)})
			require.NoError(t, err)
			page, err := d.PageText(p, text)
			require.NoError(t, err)
			at := strings.LastIndex(page, "\n\n[")
			require.LessOrEqual(t, utf8.RuneCountInString(page[:at]), d.Context.TruncateResult)
			require.Contains(t, page[at:], fmt.Sprintf("[Characters %d to %d of %d ", p.From+1, p.From+utf8.RuneCountInString(page[:at]), chars))
			read, notice = read+page[:at], page[at:]
		}
		require.Equal(t, text, read)
		require.Contains(t, notice, "This is its end.")
	})
}

// conversation is a run that holds these results.
func cutConversation(results ...ToolResult) AgentState {
	var s AgentState
	for _, r := range results {
		s.Messages = s.Messages.Append(Message{Role: RoleUser, Block: r})
	}
	return s
}

func TestWhichPage(t *testing.T) {
	d := cutting(10, true)
	s := cutConversation(ToolResult{ID: "c0", Content: "short"}, ToolResult{ID: "c1", Whole: &Whole{Blob: "b", Chars: 25}}, ToolResult{ID: "c3", Whole: &Whole{Call: "c2", Blob: "e", Chars: 30}})
	for args, want := range map[string]any{
		`{"call":"c1","from":10}`:              Page{Whole{"c1", "b", 25}, 10, 10},
		`{"call":"c1","from":24,"chars":3}`:    Page{Whole{"c1", "b", 25}, 24, 3},
		`{"call":"c1","from":0}`:               Page{Whole{"c1", "b", 25}, 0, 10},
		`{"call":"c1","from":1e1,"chars":2.0}`: Page{Whole{"c1", "b", 25}, 10, 2},
		`{"call":"c2","from":5}`:               Page{Whole{"c2", "e", 30}, 5, 10}, // by a page of it, though the result itself has left
		`{"call":"c3","from":5}`:               Page{Whole{"c2", "e", 30}, 5, 10}, // by the page's own call
		`{"call":"c0","from":0}`:               `the result of call "c0" was not cut: all of it stands in the conversation`,
		`{"call":"c9","from":0}`:               `there is no call "c9" in the conversation whose result was cut`,
		`{"call":"c1","from":25}`:              "the result of call c1 has 25 characters: from has to be 0 to 24",
		`{"call":"c1","from":-1}`:              "the result of call c1 has 25 characters: from has to be 0 to 24",
		`{"call":"c1","from":1e300}`:           "the result of call c1 has 25 characters: from has to be 0 to 24",
		`{"call":"c1","from":1.5}`:             "the result of call c1 has 25 characters: from has to be 0 to 24",
		`{"call":"c1","from":1,"chars":11}`:    "chars has to be 1 to 10",
		`{"call":"c1","from":1,"chars":0}`:     "chars has to be 1 to 10",
	} {
		got, err := PageOf(d, &s, Call{Input: json.RawMessage(args)})
		if err != nil {
			require.Equal(t, want, err.Error(), args)
			continue
		}
		require.Equal(t, want, got, args)
	}
	_, err := d.PageText(Page{Whole{"c1", "b", 25}, 0, 10}, "something else")
	require.EqualError(t, err, "the blob b does not hold the 25 characters of the result of call c1")
}

// TestReadMoreIsOffered: only while a result that was cut, or a page of one, stands in the conversation, behind the agent's own tools, and
// to nobody whose results are not kept.
func TestReadMoreIsOffered(t *testing.T) {
	names := func(d *Definition, s *AgentState, a Action) (out []string) {
		for _, tool := range offered(d, s, a) {
			out = append(out, tool.Name)
		}
		return out
	}
	d := cutting(10, true)
	d.Tools = []ToolSpec{{Name: "look", Kind: KindInternal, Effect: EffectRead, Schema: rawJSON(`{"type":"object"}`)}}
	plain, cut := cutConversation(ToolResult{ID: "c1"}), cutConversation(ToolResult{ID: "c1", Whole: &Whole{Blob: "b", Chars: 25}})
	require.Equal(t, []string{"look"}, names(d, &plain, Action{}))
	require.Equal(t, []string{"look", "read_more"}, names(d, &cut, Action{}))
	require.NoError(t, CheckTools(offered(d, &cut, Action{})))
	require.Empty(t, names(d, &cut, Action{Lifecycle: LifecycleSummary}))
	for _, other := range []*Definition{cutting(10, false), cutting(0, true)} {
		other.Tools = d.Tools
		require.Equal(t, []string{"look"}, names(other, &cut, Action{}))
		_, known := other.ToolByModelName(ReadMore)
		require.False(t, known)
	}
	cut.Hidden = []string{ReadMore}
	require.Equal(t, []string{"look"}, names(d, &cut, Action{}))
	require.Len(t, d.Tools, 1)
}

// TestReadMoreIsTheirsAlone: no tool of the agent's has the name, in any spelling that the model would not tell apart.
func TestReadMoreIsTheirsAlone(t *testing.T) {
	for _, name := range []string{"read_more", "read.more"} {
		d := validDefinition(t, PresetCountersign)
		d.Tools[0].Name = name
		require.EqualError(t, d.Check(), "tools[0].name: read_more is the name of a built-in tool, want another one, or context.keepWhole: false")
		d.Context.KeepWhole = false
		require.NoError(t, d.Check())
		tool, ok := d.ToolByModelName("read_more")
		require.True(t, ok)
		require.Equal(t, name, tool.Name)
	}
}

// TestReadMoreAtTheGate: it goes through the gate like every tool, so that rules may deny or ask; by its effect it is allowed.
func TestReadMoreAtTheGate(t *testing.T) {
	valid := func(ToolSpec, json.RawMessage) error { return nil }
	d := validDefinition(t, PresetCountersign)
	s := cutConversation(ToolResult{ID: "c1", Whole: &Whole{Blob: "b", Chars: 25}})
	c := Call{ID: "c2", Tool: ReadMore, Name: ReadMore, Effect: EffectRead, Input: json.RawMessage(`{"call":"c1","from":0}`), Status: StatusNew}
	require.True(t, GateCall(&d, &s, c, valid, worldEpoch).Run)
	require.False(t, c.NeedsClaim())
	d.Permission.Rules = []Rule{{Tool: "read_*", Verdict: VerdictDeny}}
	require.Equal(t, WhyDenied, GateCall(&d, &s, c, valid, worldEpoch).Refuse.Reason)
	d.Permission.Rules = []Rule{{Tool: ReadMore, Verdict: VerdictAsk}}
	require.NotNil(t, GateCall(&d, &s, c, valid, worldEpoch).Suspend)
	d.Context.KeepWhole = false
	require.Equal(t, WhyUnknownTool, GateCall(&d, &s, c, valid, worldEpoch).Refuse.Reason)
}
