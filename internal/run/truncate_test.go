package run_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

func cutting(most int, keep bool) *agent.Definition {
	return &agent.Definition{Preset: agent.PresetCountersign, Context: agent.Context{TruncateResult: most, KeepWhole: keep}}
}

// requireCut holds of every result: no more characters than allowed, all of them the first of the text, valid, and a
// notice that says the truth.
func requireCut(t require.TestingT, most int, text string) {
	d := cutting(most, true)
	shown := prompt.ShowResult(d, agent.ToolSpec{}, "c1", text, true)
	valid := strings.ToValidUTF8(text, "\uFFFD")
	chars := utf8.RuneCountInString(valid)
	if most <= 0 || chars <= most {
		require.Equal(t, prompt.Shown{Text: valid}, shown)
		return
	}
	require.Equal(t, []any{valid, chars, ""}, []any{shown.Whole, shown.Chars, shown.Lost})
	head := string([]rune(valid)[:most])
	require.True(t, strings.HasPrefix(shown.Text, head+"\n\n["))
	notice := strings.TrimPrefix(shown.Text, head)
	require.Contains(t, notice, fmt.Sprintf(`"from":%d}`, most))
	unkept := prompt.ShowResult(d, agent.ToolSpec{}, "c1", text, false)
	require.Contains(t, strings.TrimPrefix(unkept.Text, head), fmt.Sprintf("first %d of %d ", most, chars))
	require.NotContains(t, strings.TrimPrefix(unkept.Text, head), agent.ReadMore)
}

func FuzzShowResultCuts(f *testing.F) {
	f.Add(6000, "日本")
	f.Add(1, "a\xff\xfe\xe6\x97")
	f.Add(-1, "a")
	f.Fuzz(func(t *testing.T, most int, text string) { requireCut(t, most, text) })
}

// TestPagesAreTheWhole: who reads a result as the notices say has all of it, once, in pages that are no longer than what was cut.
func TestPagesAreTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := cutting(rapid.IntRange(1, 9).Draw(t, "most"), true)
		text := rapid.StringN(10, 60, -1).Draw(t, "text")
		shown := prompt.ShowResult(d, agent.ToolSpec{}, "c1", text, true)
		require.Equal(t, text, shown.Whole)
		s := conversation(spoke(run.RoleUser, run.ToolResult{ID: "c1", Content: shown.Text, Whole: &run.Whole{Blob: "b", Chars: shown.Chars}}))
		at := strings.LastIndex(shown.Text, "\n\n[")
		read, notice := shown.Text[:at], shown.Text[at:]
		for strings.Contains(notice, "Read on") {
			_, args, _ := strings.Cut(strings.TrimSuffix(notice, ".]"), "Read on with read_more ")
			p, err := prompt.PageOf(d, &s, run.Call{Input: json.RawMessage(args)})
			require.NoError(t, err)
			page, err := prompt.PageText(d, p, text)
			require.NoError(t, err)
			at := strings.LastIndex(page, "\n\n[")
			require.LessOrEqual(t, utf8.RuneCountInString(page[:at]), d.Context.TruncateResult)
			require.Contains(t, page[at:], fmt.Sprintf("[Characters %d to %d of %d ", p.From+1, p.From+utf8.RuneCountInString(page[:at]), shown.Chars))
			read, notice = read+page[:at], page[at:]
		}
		require.Equal(t, text, read)
		require.Contains(t, notice, "This is its end.")
	})
}

// No tool of the agent's has the name, in any spelling that the model would not tell apart.
func TestReadMoreIsTheirsAlone(t *testing.T) {
	for _, name := range []string{"read_more", "read.more"} {
		d := validDefinition(t)
		d.Tools[0].Name = name
		require.EqualError(t, d.Check(), "tools[0].name: read_more is the name of a built-in tool, want another one, or context.keepWhole: false")
		d.Context.KeepWhole = false
		require.NoError(t, d.Check())
		tool, ok := d.ToolByModelName("read_more")
		require.True(t, ok)
		require.Equal(t, name, tool.Name)
	}
}
