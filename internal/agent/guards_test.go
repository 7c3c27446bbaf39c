package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func guardedDefinition(change ...func(*Definition)) Definition {
	d := worldDefinition(change...)
	d.Guards, d.Limits = Guards{DuplicateCalls: true, FailedRounds: 2, ToolFailures: 3}, Limits{Interactions: 25, OnLimit: OnLimitSummarise}
	return d
}

// asks is a planned reply to s with calls, named and given as ask has them, under ids of their own.
func asks(d *Definition, s *AgentState, prefix string, calls ...string) Replied {
	r := Reply{Calls: ask(calls...)}
	for i := range r.Calls {
		r.Calls[i].ID = prefix + r.Calls[i].ID
	}
	return judged(d, s, r)
}

// plays commits replies of one or more calls and the gate's word or a result on each: ok, or an error where the arguments say fail.
func plays(t *testing.T, d *Definition, s AgentState, rounds ...string) AgentState {
	t.Helper()
	s.Interactions.Max = 25
	for _, round := range rounds {
		e := asks(d, &s, string(rune('a'+s.Inferences)), strings.Split(round, ";")...)
		s = commit(t, s, "w1", e)
		for _, rc := range e.Calls {
			c, _ := s.Call(rc.ID)
			g := GateCall(d, &s, c, worldValid, worldEpoch)
			switch {
			case g.Refuse != nil:
				s = commit(t, s, "w1", *g.Refuse)
			case strings.Contains(string(c.Input), "fail"):
				s = commit(t, s, "w1", CallFinished{Call: c.ID, Ran: true, IsError: true, Content: "no"})
			default:
				s = commit(t, s, "w1", CallFinished{Call: c.ID, Ran: c.Effect == EffectRead, Content: "ok"})
			}
		}
	}
	return s
}

func TestDuplicates(t *testing.T) {
	look, other := `look {"n":1,"to":[1.0]}`, `look {"n":2}`
	tests := []struct {
		name   string
		rounds []string
		want   []string // the reasons of the last round's calls
	}{
		{"the same call", []string{look, look}, []string{"duplicate"}},
		{"keys in another order", []string{look, `look { "to" : [1.0], "n" : 1 }`}, []string{"duplicate"}},
		{"other digits", []string{look, `look {"n":1,"to":[1.00]}`}, []string{""}},
		{"other arguments", []string{look, other}, []string{""}},
		{"a third time", []string{look, look, look}, []string{"duplicate"}},
		{"farther apart", []string{look, other, look}, []string{""}},
		{"behind one that failed", []string{`look {"fail":1}`, `look {"fail":1}`}, []string{"tool_error"}},
		{"twice in one reply", []string{look + ";" + look}, []string{"", ""}},
		{"both again", []string{look + ";" + other, other + ";" + look}, []string{"duplicate", "duplicate"}},
		{"beside something new", []string{look, look + ";" + other}, []string{"", ""}},
		{"beside a read", []string{look + ";" + other, look}, []string{"duplicate"}},
		{"behind something that was done", []string{look + `;pay_now {"n":1}`, look}, []string{""}},
		{"something that was done", []string{`pay_now {"n":1}`, `pay_now {"n":1}`}, []string{"duplicate"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := guardedDefinition()
			s := plays(t, &d, started(t), tt.rounds...)
			var got []string
			for _, c := range s.newest() {
				got = append(got, string(c.Reason))
			}
			require.Equal(t, tt.want, got)
		})
	}
}

// TestDuplicatesLeaveTheLoop after two rounds in a row, unless somebody speaks.
func TestDuplicatesLeaveTheLoop(t *testing.T) {
	d := guardedDefinition()
	s := plays(t, &d, started(t), "look", "look")
	require.Empty(t, leaves(&d, &s))
	s = plays(t, &d, s, "look")
	require.Equal(t, LeaveDuplicates, leaves(&d, &s))
	require.Equal(t, Action{Kind: ActInfer, Lifecycle: LifecycleSummary}, Next(&d, &s))
	heard := commit(t, s, "w1", said(1, "Again, please."))
	require.Empty(t, leaves(&d, &heard))
	require.Empty(t, asks(&d, &heard, "x", "look").Calls[0].Repeats)

	s = commit(t, s, "w1", judged(&d, &s, Reply{Text: "There."}))
	require.Zero(t, s.Watch.Duplicates)
	s = plays(t, &d, commit(t, s, "w1", said(1, "And now?")), "look")
	require.Empty(t, leaves(&d, &s), "a summary ends the circle")
	require.Equal(t, StatusSucceeded, s.newest()[0].Status)
}

// TestDuplicatesThatPeopleDecideAbout are asked about again, and run again where a grant of their tool covers them.
func TestDuplicatesThatPeopleDecideAbout(t *testing.T) {
	d := guardedDefinition()
	s := started(t, asks(&d, new(started(t)), "a", "wire"))
	s = commit(t, s, "w1", *GateCall(&d, &s, s.Live[0], worldValid, worldEpoch).Suspend)
	w := world{def: d}
	s = commit(t, s, "w1", w.slotted(&s, w.decisions(&s, s.Live[0])[0]), CallClaimed{Call: s.Live[0].ID}, CallFinished{Call: s.Live[0].ID, Content: "wired"})
	s.Interactions.Max = 9
	again := asks(&d, &s, "b", "wire")
	require.NotEmpty(t, again.Calls[0].Repeats)
	s = commit(t, s, "w1", again)
	require.NotNil(t, GateCall(&d, &s, s.newest()[0], worldValid, worldEpoch).Suspend)
	d.Permission.Rules = nil
	require.Equal(t, WhyDuplicate, GateCall(&d, &s, s.newest()[0], worldValid, worldEpoch).Refuse.Reason, "where nobody is asked")
}

func TestFailedRounds(t *testing.T) {
	d := guardedDefinition(func(d *Definition) {
		d.Permission.Rules = append(d.Permission.Rules, Rule{Tool: "ghost", Verdict: VerdictAllow})
	})
	d.Guards.ToolFailures = 0
	hint := []string{d.word(wordAllFailed, map[string]any{"Rounds": 2})}
	require.Contains(t, hint[0], "last 2 rounds")
	fails := func(n string) string { return `look {"fail":` + n + `}` }
	for _, tt := range []struct {
		name   string
		rounds []string
		want   []string
	}{
		{"one", []string{fails("1")}, nil},
		{"two", []string{fails("1"), fails("2")}, hint},
		{"two of whatever kind", []string{"drop", "ghost;" + `look {"bad":1}`}, hint},
		{"two, one of them in part", []string{fails("1"), fails("2") + ";look"}, nil},
		{"three: it has been said", []string{fails("1"), fails("2"), fails("3")}, nil},
		{"four: it is said again", []string{fails("1"), fails("2"), fails("3"), fails("4")}, hint},
		{"with a success between", []string{fails("1"), "look", fails("3")}, nil},
		{"duplicates have not failed", []string{"look", "look", fails("1")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := plays(t, &d, started(t), tt.rounds...)
			require.Equal(t, tt.want, hints(&d, &s))
			r, _ := BuildRequest(&d, &s, Next(&d, &s), "")
			require.Len(t, r.Messages, s.Messages.Len()+len(tt.want))
			silent := commit(t, s, "w1", judged(&d, &s, Reply{Text: "So."}))
			require.Empty(t, hints(&d, &silent))
		})
	}
}

func TestToolFailures(t *testing.T) {
	d := guardedDefinition()
	d.Guards.FailedRounds = 0
	offer := func(s AgentState) string {
		var names []string
		r, _ := BuildRequest(&d, &s, Next(&d, &s), "")
		for _, tool := range r.Tools {
			names = append(names, tool.Name)
		}
		return strings.Join(names, " ")
	}
	all := "look peek pay.now wire drop"
	for _, tt := range []struct {
		name   string
		rounds []string
		want   string
	}{
		{"two rounds", []string{`look {"fail":1}`, `look {"fail":2}`}, all},
		{"three rounds", []string{`look {"fail":1}`, `look {"fail":2}`, `look {"fail":3}`}, "peek pay.now wire drop"},
		{"of whatever kind, with others between", []string{`look {"fail":1}`, `pay_now {"n":1}`, `look {"bad":2}`, `look {"fail":3}`}, "peek pay.now wire drop"},
		{"three calls of one round", []string{`look {"fail":1};look {"fail":2};look {"fail":3}`}, all},
		{"a success between", []string{`look {"fail":1}`, `look {"fail":2}`, "look", `look {"fail":3}`}, all},
		{"a success beside", []string{`look {"fail":1}`, `look {"fail":2}`, `look {"fail":3};look`}, all},
		{"what policy denies", []string{"drop", "drop", "drop"}, all},
		{"what does not exist", []string{"ghost", "ghost", "ghost"}, all},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := plays(t, &d, started(t), tt.rounds...)
			require.Equal(t, tt.want, offer(s))
			require.Equal(t, tt.want != all, len(hints(&d, &s)) == 1)
		})
	}
	s := plays(t, &d, started(t), `look {"fail":1}`, `look {"fail":2}`, `look {"fail":3}`, `look {"n":4}`)
	require.Equal(t, WhyOutOfScope, s.newest()[0].Reason)
	require.Zero(t, s.newest()[0].Executions)
	require.Empty(t, hints(&d, &s), "it has been said")
	require.Equal(t, "peek pay.now wire drop", offer(s))
}

// TestWatchIsBounded: what guards remember holds each tool once, counts only up by one, and is committed only when it changed.
func TestWatchIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var before Watch
		d := guardedDefinition()
		s := AgentState{Inferences: 1}
		for n := rapid.IntRange(1, 12).Draw(t, "rounds"); n > 0; n-- {
			s.Round.Inference, s.Live = s.Inferences, nil
			for range rapid.IntRange(1, 4).Draw(t, "calls") {
				c := Call{Tool: rapid.SampledFrom([]string{"look", "wire", "drop"}).Draw(t, "tool"), Inference: s.Inferences, Status: StatusSucceeded, Result: &Result{}}
				if why := rapid.SampledFrom([]CallReason{"", WhyToolError, WhyTimeout, WhyInvalidArguments, WhyDenied, WhyDuplicate}).Draw(t, "why"); why != "" {
					c.Status, c.Reason, c.Result = StatusFailed, why, &Result{IsError: true}
				}
				s.Live = append(s.Live, c)
			}
			e := watched(&d, &s, Replied{Inference: s.Inferences + 1})
			w := s.Watch
			if e.Watch != nil {
				require.False(t, e.Watch.equal(before))
				w = *e.Watch
			}
			seen := map[string]bool{}
			for _, f := range w.Failing {
				require.False(t, seen[f.Tool])
				seen[f.Tool] = true
				require.Contains(t, []int{before.failures(f.Tool), before.failures(f.Tool) + 1}, f.Rounds)
			}
			require.Less(t, w.FailedRounds, d.Guards.FailedRounds)
			require.Equal(t, before, s.Watch, "not in place")
			s.Watch, before = w, w
			s.Inferences++
		}
	})
}

func TestClosest(t *testing.T) {
	names := []string{"ledger_read", "payments_send", "payments_refund", "fs_move_file", "look"}
	for asked, want := range map[string][]string{
		"Ledger.Read":                {"ledger_read"},
		"ledger-read":                {"ledger_read"},
		"read":                       {"ledger_read"},
		"billing.look":               {"look"},
		"payments_sned":              {"payments_send", "payments_refund"},
		"payment_send":               {"payments_send", "payments_refund"},
		"move_file":                  {"fs_move_file"},
		"ghost":                      {},
		"":                           {},
		"...":                        {},
		strings.Repeat("look", 1000): {},
	} {
		require.Equal(t, want, closest(asked, names), asked)
	}
	require.Len(t, closest("payments", []string{"payments_a", "payments_b", "payments_c", "payments_d"}), 3)
	require.Equal(t, []string{"a_b", "x_a_b"}, closest("A.B", []string{"x_a_b", "a_b"}), "the best first")
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"abcd", "acbd", 2}, {"ä", "a", 1}} {
		require.Equal(t, tt.want, distance([]rune(tt.a), []rune(tt.b)), tt)
		require.Equal(t, tt.want, distance([]rune(tt.b), []rune(tt.a)), tt)
	}
}

// TestBrokenSummary: a run that left its loop and cannot even sum up ends in error.
func TestBrokenSummary(t *testing.T) {
	d := guardedDefinition()
	d.Output = Output{Format: OutputJSON, Schema: json.RawMessage(`{}`)}
	s := plays(t, &d, started(t), "look", "look", "look")
	s = commit(t, s, "w1", judged(&d, &s, Reply{Text: "There."}))
	require.Equal(t, CodeBreaker, Next(&d, &s).End.Error.Code)
}
