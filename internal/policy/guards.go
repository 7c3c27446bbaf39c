package policy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/dialect"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// newestWatch is what guards know once the newest round has come back: what the next request says, and what the reply to it is planned with.
func newestWatch(d *agent.Definition, s *run.AgentState) run.Watch {
	w, round := s.Watch, returned(s)
	if len(round) == 0 {
		return w
	}
	if d.Guards.DuplicateCalls {
		w.Duplicates++
		if slices.ContainsFunc(round, func(c run.Call) bool { return c.Reason != run.WhyDuplicate }) {
			w.Duplicates = 0
		}
	}
	if d.Guards.FailedRounds > 0 {
		w.FailedRounds++
		if !allFailed(round) {
			w.FailedRounds = 0
		}
	}
	if d.Guards.ToolFailures > 0 {
		w.Failing = failing(w.Failing, round)
	}
	return w
}

// watched puts what guards remember of a planned reply to s into the fact, where it is other than before. What the request has told the
// model is counted from anew, and a summary ends every circle.
func watched(d *agent.Definition, s *run.AgentState, e run.Replied) run.Replied {
	if d.Text == agent.TextHeuristic {
		e = tallied(s).Remember(s, e)
	}
	if d.Guards == (agent.Guards{}) {
		return e
	}
	w := newestWatch(d, s)
	if d.Guards.FailedRounds > 0 && w.FailedRounds >= d.Guards.FailedRounds {
		w.FailedRounds = 0
	}
	if e.Summary {
		w.Duplicates = 0
	}
	if !w.Equal(s.Watch) {
		e.Watch = &w
	}
	return e
}

// allFailed reports whether every call of a round came back as an error of its own: not one that was put off, or that somebody else called
// off.
func allFailed(round []run.Call) bool {
	return !slices.ContainsFunc(round, func(c run.Call) bool {
		return c.Result == nil || !c.Result.IsError || c.Reason == run.WhySkipped || c.Reason == run.WhyAwaiting || c.Reason == run.WhyDuplicate || c.Reason == run.WhyCancelled
	})
}

// failing is the list behind one more round.
func failing(before []run.FailingTool, round []run.Call) []run.FailingTool {
	var after []run.FailingTool
	for _, f := range before {
		if !succeeded(round, f.Tool) {
			after = append(after, f)
		}
	}
	seen := map[string]bool{}
	for _, c := range round {
		if seen[c.Tool] || !c.Broke() || succeeded(round, c.Tool) {
			continue
		}
		seen[c.Tool] = true
		i := slices.IndexFunc(after, func(f run.FailingTool) bool { return f.Tool == c.Tool })
		if i < 0 {
			i, after = len(after), append(after, run.FailingTool{Tool: c.Tool})
		}
		after[i].Rounds++
	}
	return after
}

func succeeded(round []run.Call, tool string) bool {
	return slices.ContainsFunc(round, func(c run.Call) bool { return c.Tool == tool && c.Status == run.StatusSucceeded })
}

// withdrawn reports whether a tool has failed too often to be offered.
func withdrawn(d *agent.Definition, w run.Watch, tool string) bool {
	return d.Guards.ToolFailures > 0 && w.Failures(tool) >= d.Guards.ToolFailures
}

// Hints are what guards tell the model in the next request alone: once that every call of the newest rounds failed, and once of each tool
// that it is offered no more.
func Hints(d *agent.Definition, s *run.AgentState) []string {
	if len(returned(s)) == 0 {
		return nil
	}
	w := newestWatch(d, s)
	var said []string
	if n := d.Guards.FailedRounds; n > 0 && w.FailedRounds >= n {
		said = append(said, d.Word(agent.WordAllFailed, map[string]any{"Rounds": n}))
	}
	for _, f := range w.Failing {
		if withdrawn(d, w, f.Tool) && !withdrawn(d, s.Watch, f.Tool) {
			said = append(said, d.Word(agent.WordToolWithdrawn, map[string]any{"Tool": agent.ModelName(f.Tool), "Times": f.Rounds}))
		}
	}
	return said
}

// guarded is the gate's verdict g on a call of the newest round, or a guard's where one keeps the call from running. What people have been
// asked about, are going to be, or have granted is theirs to decide: a guard keeps them from nothing.
func guarded(d *agent.Definition, s *run.AgentState, c run.Call, g Gate) Gate {
	switch {
	case c.Status != run.StatusNew || c.Inference != s.Round.Inference || !g.Run && g.Suspend == nil && g.Block == nil:
		return g
	case withdrawn(d, s.Watch, c.Tool):
		return refuse(c, run.WhyOutOfScope, d.Word(agent.WordWithdrawnCall, map[string]any{"Tool": c.Name, "Times": s.Watch.Failures(c.Tool)}), g.Rule)
	case c.Repeats != "" && g.Run && g.Claim == nil:
		return refuse(c, run.WhyDuplicate, d.Word(agent.WordDuplicateCall, map[string]any{"Tool": c.Name, "Call": c.Repeats}), g.Rule)
	default:
		return g
	}
}

// maxDuplicates is how many replies in a row may do nothing but repeat calls before the loop is left (semantics 4.2).
const maxDuplicates = 2

// circles reports whether the model does nothing but repeat calls. Who has spoken to it since has broken the circle.
func circles(d *agent.Definition, s *run.AgentState) bool {
	return d.Guards.DuplicateCalls && len(returned(s)) > 0 && newestWatch(d, s).Duplicates >= maxDuplicates && !spokenTo(s)
}

// markRepeats notes of a reply's calls what they repeat, where every one of them does: a model that also does something new is not going
// in circles. What people say in between is a reason to do a thing again.
func markRepeats(d *agent.Definition, s *run.AgentState, calls []run.RepliedCall) {
	if !d.Guards.DuplicateCalls || spokenTo(s) {
		return
	}
	found := make([]string, len(calls))
	for i, c := range calls {
		if found[i] = repeated(s, c); found[i] == "" {
			return
		}
	}
	for i := range calls {
		calls[i].Repeats = found[i]
	}
}

// repeated is the call that a planned one repeats, "" where it repeats none: the same tool with the same arguments in the round directly
// before, which succeeded, or was refused as a duplicate itself, and beside which nothing else was done. A call that failed may be tried
// again, and one that looks may look again after something was done; who asks without any argument asks how things stand now, the time or
// what is new, and may do so as often as it likes. Calls of one reply do not repeat each other: the model had the result of none.
func repeated(s *run.AgentState, c run.RepliedCall) string {
	if string(c.Input) == "{}" && (c.Effect == run.EffectRead || c.Effect == run.EffectIdempotent) {
		return ""
	}
	same := func(b run.Call) bool {
		return b.Tool == c.Original() && b.Name == c.Name && (bytes.Equal(b.Input, c.Input) || jsonx.CanonicalText(b.Input) == jsonx.CanonicalText(c.Input))
	}
	found := ""
	for _, b := range returned(s) {
		switch {
		case b.Reason == run.WhyDuplicate && same(b):
			found = b.Repeats
		case b.Status == run.StatusSucceeded && same(b) && found == "":
			found = b.ID
		case b.Status == run.StatusSucceeded && !same(b) && b.Effect != run.EffectRead:
			return ""
		}
	}
	return found
}

// spokenTo reports whether anybody but tools has said something that no inference has carried.
func spokenTo(s *run.AgentState) bool {
	all := s.Messages.All()
	for i := len(all) - 1; i >= 0 && all[i].Seen(s.Inferences) == 0; i-- {
		if _, said := all[i].Block.(run.Text); said {
			return true
		}
	}
	return false
}

// recovery is what the breaker remembers of s, with what the model is about to be told of the newest round.
func recovery(d *agent.Definition, s *run.AgentState) run.Recovery {
	if text := Reminder(d, s); text != "" {
		return s.Recovery.Told(text)
	}
	return s.Recovery
}

// recovered puts into a planned reply to s what the breaker remembers with it.
func recovered(d *agent.Definition, s *run.AgentState, e run.Replied) run.Replied {
	r := recovery(d, s)
	if e.Correction.Recovers() {
		r = r.Told(e.Correction.Text)
	}
	e.Recovery = nil
	if r != s.Recovery {
		e.Recovery = &r
	}
	return e
}

// tripped is the end of a run whose breaker has tripped; false where it has not. What was told the last time counts: the model is not told
// it once more.
func tripped(d *agent.Definition, s *run.AgentState) (run.Finished, bool) {
	if d.XML.Breaker == 0 {
		return run.Finished{}, false
	}
	refused := s.Correction.Owed() && s.Correction.Recovers()
	if r := recovery(d, s); r.Same >= d.XML.Breaker && (refused || Reminder(d, s) != "") {
		return Fail(run.CodeBreaker, fmt.Sprintf("the model made the same mistake %d times in a row", r.Same)), true
	}
	return run.Finished{}, false
}

// Reminder is what the next request alone says of calls of the newest inference that failed, beside their results; "" where there is none.
func Reminder(d *agent.Definition, s *run.AgentState) string {
	if !d.Reminds() || s.Round.Inference != s.Prior+s.Inferences {
		return ""
	}
	var texts []string
	for _, c := range s.Newest() {
		if c.Status != run.StatusFailed || c.Reason == run.WhyAwaiting { // of that people tell it more
			continue
		}
		if text := reminderOf(d, s, c); len(texts) == 0 || texts[len(texts)-1] != text {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n")
}

func reminderOf(d *agent.Definition, s *run.AgentState, c run.Call) string {
	switch {
	case c.Reason == run.WhyUnknownTool:
		return d.Word(agent.WordUnknownTool, map[string]any{"Tool": c.Name, "Tools": toolList(d, s), "Format": dialect.CallFormat(d)})
	case c.Result == nil: // a call that has failed has a result
		return ""
	default:
		return d.Word(agent.WordFailedTool, map[string]any{"Tool": c.Name, "Error": run.Bounded(c.Result.Content), "Format": dialect.CallFormat(d)})
	}
}

// judgeCall refuses a reply without a call where only a tool ends the run. A summary has none.
func judgeCall(d *agent.Definition, s *run.AgentState, e run.Replied) run.Replied {
	if e.Summary {
		return e
	}
	e.Correction = d.Refused(run.KindNoToolCall, "", d.Word(agent.WordNoToolCall, map[string]any{"Format": dialect.CallFormat(d)}))
	return recovered(d, s, e)
}

// refusedCall is why a text that has a tool tag holds no call.
func refusedCall(d *agent.Definition, problem *dialect.TextCallError, text string) *run.Correction {
	content := run.Bounded(dialect.ReadToolText(text).Body)
	if problem.Field != "" {
		fields := map[string]any{"Field": problem.Field, "Content": content, "Format": dialect.CallFormat(d)}
		return d.Refused(run.KindMissingField, problem.Problem, d.Word(agent.WordMissingField, fields))
	}
	fields := map[string]any{"Error": problem.Problem, "Content": content, "Format": dialect.CallFormat(d)}
	return d.Refused(run.KindMalformed, problem.Problem, d.Word(agent.WordMalformed, fields))
}
