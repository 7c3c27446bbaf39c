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
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

func spoke(r run.Role, b run.Block) run.Message { return run.Message{Role: r, Block: b} }

// conversation is a run that is at work, with these messages, each of an entry of its own where it has none.
func conversation(messages ...run.Message) run.AgentState {
	s := run.AgentState{Status: run.RunRunning}
	for i, m := range messages {
		if m.Source == (run.Source{}) {
			m.Source = run.Source{Seq: int64(i)}
		}
		s.Messages = s.Messages.Append(m)
	}
	return s
}

// spokenOf is a conversation by words: u user, a assistant, cN a call, rN its result, m media of the result before.
// Words with + between them are of one entry. All of it has been seen but what stands behind |.
func spokenOf(words string) run.AgentState {
	seen, unseen, _ := strings.Cut(words, "|")
	s := run.AgentState{Status: run.RunRunning, Inferences: 1}
	seq := int64(0)
	say := func(words string, base int64) {
		for _, group := range strings.Fields(words) {
			for part, w := range strings.Split(group, "+") {
				m := run.Message{Role: run.RoleUser, Base: base, Source: run.Source{Seq: seq, Part: part}}
				switch w[0] {
				case 'u':
					m.Block = run.Text{Text: "user " + w}
				case 'a':
					m.Role, m.Block = run.RoleAssistant, run.Text{Text: "assistant " + w}
				case 'c':
					m.Role, m.Block = run.RoleAssistant, run.ToolUse{
						ID: w[1:], Name: "tool_" + w[1:], Input: json.RawMessage(`{"path":"` + w[1:] + `.png"}`),
					}
				case 'r':
					m.Block = run.ToolResult{ID: w[1:], Content: "result " + w}
				case 'm':
					m.Block = run.Media{Name: "p", MediaType: "image/png", Data: "AAAA"}
				}
				s.Messages = s.Messages.Append(m)
			}
			seq++
		}
	}
	say(seen, 0)
	say(unseen, -1)
	return s
}

// anyConversation draws rounds, users and late results, with what the model has not seen at the end.
func anyConversation(t *rapid.T) run.AgentState {
	var words []string
	var late []string
	id := 0
	for range rapid.IntRange(0, 12).Draw(t, "turns") {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			words = append(words, "u")
		case 1:
			words = append(words, "a")
		default:
			turn := []string{"a"}[:rapid.IntRange(0, 1).Draw(t, "text")]
			var results []string
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				id++
				turn = append(turn, fmt.Sprint("c", id))
				r := fmt.Sprint("r", id) + strings.Repeat("+m", rapid.IntRange(0, 2).Draw(t, "media"))
				if rapid.IntRange(0, 5).Draw(t, "late") == 0 {
					late = append(late, r)
				} else {
					results = append(results, r)
				}
			}
			words = append(append(words, strings.Join(turn, "+")), results...)
			if rapid.Bool().Draw(t, "arrives") {
				words, late = append(words, late...), nil
			}
		}
	}
	words = append(words, late...)
	seen := rapid.IntRange(0, len(words)).Draw(t, "seen")
	for seen < len(words) && words[seen][0] != 'r' && words[seen][0] != 'u' { // what the model said it has seen
		seen++
	}
	return spokenOf(strings.Join(words[:seen], " ") + "|" + strings.Join(words[seen:], " "))
}

func anyContext(t *rapid.T) agent.Context {
	n := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	zero := 0
	x := agent.Context{
		Window: n("window", 2000), EvictBelow: n("evictBelow", 1500), RoundMinimum: n("roundMinimum", 300), Keep: n("keep", 8), Summary: n("summary", 60),
		Prune: n("prune", 80), CompressAfter: n("compressAfter", 4),
	}
	if rapid.Bool().Draw(t, "fixed") {
		x.Reserve = agent.Reserve{System: &zero, Tools: &zero}
	}
	return x
}

// roomHolds is what every eviction keeps, whatever the conversation and the policy are.
func roomHolds(t require.TestingT, d *agent.Definition, s run.AgentState, m prompt.Measured) {
	a := policy.Action{Lifecycle: run.LifecycleToolResult}
	facts, left := prompt.MakeRoom(d, &s, a, m)
	again, _ := prompt.MakeRoom(d, &s, a, m)
	require.Equal(t, facts, again)
	after := s
	for _, e := range facts {
		var err error
		after, err = run.Apply(after, e)
		require.NoError(t, err, "the fold takes what is planned: seen messages of calls that are not open")
	}
	_, err := talk(&after)
	require.NoError(t, err, "each result has its call before it")
	require.Equal(t, s.Messages.Len()-after.Messages.Len(), int(after.EvictedMessages-s.EvictedMessages))
	require.True(t, utf8.ValidString(after.Summary))
	const marker, bytesOfFive = 80, 16 // the most that what is left out is marked with, and what five tokens of a summary hold
	require.LessOrEqual(t, len(after.Summary), d.Context.Summary*bytesOfFive/5+marker+len(s.Summary))
	if d.Context.Window == 0 {
		require.Equal(t, prompt.Budget{}, left)
		require.Zero(t, after.Full)
		return
	}
	if d.Context.Reserve.System == nil && d.Context.Reserve.Tools == nil { // a provider's figure is not known to who reads the state alone
		require.GreaterOrEqual(t, left.Remaining, 0)
	} else {
		require.Equal(t, budgetOf(d, &after, a, m), left)
	}
	require.Equal(t, left.Remaining < d.Context.RoundMinimum, after.Full.Of > 0)
}

func TestMakeRoomHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyConversation(t)
		s.Wait = run.WaitAllSuspended
		d, err := agent.PresetDefaults(agent.PresetCowork)
		require.NoError(t, err)
		d.Context = anyContext(t)
		roomHolds(t, &d, s, prompt.Measured{System: "Be brief.", Count: int64(rapid.IntRange(0, 3000).Draw(t, "count"))})
	})
}

// A result that is in a blob is quoted as any other, in the mechanical notes and to the model that writes them.
func TestNotesQuoteResultsInBlobs(t *testing.T) {
	s := spokenOf("u c1 r1 u |")
	all := s.Messages.All()
	all[2].Block = run.ToolResult{ID: "1", Blob: "b1"}
	bodies := map[string][]byte{"b1": []byte("héllo " + strings.Repeat("é", 60<<10))}
	d := &agent.Definition{Context: agent.Context{Window: 1000, EvictBelow: 1000, Keep: 1, Summary: 500, SummaryBy: agent.SummaryModel}}
	facts, _ := prompt.MakeRoom(d, &s, policy.Action{}, prompt.Measured{Bodies: bodies})
	require.Contains(t, facts[0].(run.Evicted).Summary, "\n- tool: héllo "+strings.Repeat("é", 26))
	r, asked := prompt.SummaryRequest(d, &s, facts[0].(run.Evicted), bodies)
	require.True(t, asked)
	require.Contains(t, r.Messages[0].Block.(run.Text).Text, `result: "héllo éé`)
}

// Notes are what the model says outside of thinking and calls, made valid and cut to the summary's length; where that
// is nothing, the mechanical ones stand.
func TestSummarised(t *testing.T) {
	before := run.Evicted{Total: 3, Summary: "by rule"}
	for _, c := range []struct {
		dialect          agent.Dialect
		said, stop, want string
	}{
		{agent.DialectXML, "<thinking>Hm.</thinking>The order is open.<tool>{}</tool>", "", "The order is open."},
		{agent.DialectXML, "<thinking>Hm.</thinking>", "", "by rule"},
		{"", "  They want it done. \xff ", "", "They want it done. \uFFFD"},
		{"", " \n", "", "by rule"},
		{"", strings.Repeat("é", 1000), "", strings.Repeat("é", 800)},
		{"", "I can't help with that.", "refusal", "by rule"},
		{"", "They want", "max_tokens", "by rule"}, // the newest would be missing
	} {
		d := &agent.Definition{Model: agent.ModelSpec{Dialect: c.dialect}, Context: agent.Context{Summary: 500}}
		require.Equal(t, c.want, prompt.Summarised(d, before, agent.Reply{Text: c.said, StopReason: c.stop}, 1).Summary)
	}
}
