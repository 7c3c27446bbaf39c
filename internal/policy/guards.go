package policy

import (
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/dialect"
	"github.com/countersign/countersign/internal/run"
)

// Hints are what guards tell the model in the next request alone: once that every call of the newest rounds failed, and
// once of each tool that it is offered no more.
func Hints(d *agent.Definition, s *run.AgentState) []string {
	r := roundStreaks(d, s)
	var said []string
	if isOverLimit(d, r, failedRounds) {
		said = append(said, d.Word(agent.WordAllFailed, map[string]any{"Rounds": d.Guards.FailedRounds}))
	}
	for _, k := range r {
		tool, ok := strings.CutPrefix(k.Name, failingTool)
		if ok && isOverLimit(d, r, k.Name) && !isOverLimit(d, s.Streaks, k.Name) {
			said = append(said, d.Word(agent.WordToolWithdrawn, map[string]any{"Tool": agent.ModelName(tool), "Times": k.Times}))
		}
	}
	return said
}

// gateGuards returns the gate's verdict g on a call of the newest round, or a guard's that keeps the call from running.
// What people have been asked about, are going to be, or have granted is theirs to decide: a guard keeps them from
// nothing.
func gateGuards(d *agent.Definition, s *run.AgentState, c run.Call, g Gate) Gate {
	switch {
	case c.Status != run.StatusNew || c.Inference != s.Round.Inference || !g.Run && g.Suspend == nil && g.Block == nil:
		return g
	case isOverLimit(d, s.Streaks, failingTool+c.Tool):
		fields := map[string]any{"Tool": c.Name, "Times": s.Streaks.Times(failingTool + c.Tool)}
		return refuseCall(c, run.WhyOutOfScope, d.Word(agent.WordWithdrawnCall, fields), g.Rule)
	case c.Repeats != "" && g.Run && g.Claim == nil:
		return refuseCall(c, run.WhyDuplicate, d.Word(agent.WordDuplicateCall, map[string]any{"Tool": c.Name, "Call": c.Repeats}), g.Rule)
	default:
		return g
	}
}

// Reminder is what the next request alone says of calls of the newest inference that failed, beside their results; ""
// where there is none.
func Reminder(d *agent.Definition, s *run.AgentState) string {
	if !d.Reminds() || s.Round.Inference != s.Prior+s.Inferences {
		return ""
	}
	var texts []string
	for _, c := range s.Newest() {
		if c.Status != run.StatusFailed || c.Reason == run.WhyAwaiting { // of that people tell it more
			continue
		}
		text, fields := "", map[string]any{"Tool": c.Name, "Format": dialect.CallFormat(d)}
		switch {
		case c.Reason == run.WhyUnknownTool:
			fields["Tools"] = toolList(d, s)
			text = d.Word(agent.WordUnknownTool, fields)
		case c.Result != nil: // a call that has failed has one
			fields["Error"] = run.Bounded(c.Result.Content)
			text = d.Word(agent.WordFailedTool, fields)
		}
		if len(texts) == 0 || texts[len(texts)-1] != text {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// judgeMissingCall refuses a reply without a call where only a tool ends the run. A summary has none.
func judgeMissingCall(d *agent.Definition, s *run.AgentState, e run.Replied) run.Replied {
	if e.Summary {
		return e
	}
	e.Correction = d.Refused(run.KindNoToolCall, "", d.Word(agent.WordNoToolCall, map[string]any{"Format": dialect.CallFormat(d)}))
	return withMemory(d, s, e)
}

// textCallCorrection tells the model why a text with a tool tag holds no call.
func textCallCorrection(d *agent.Definition, problem *dialect.TextCallError, text string) *run.Correction {
	content := run.Bounded(dialect.ReadToolText(text).Body)
	if problem.Field != "" {
		fields := map[string]any{"Field": problem.Field, "Content": content, "Format": dialect.CallFormat(d)}
		return d.Refused(run.KindMissingField, problem.Problem, d.Word(agent.WordMissingField, fields))
	}
	fields := map[string]any{"Error": problem.Problem, "Content": content, "Format": dialect.CallFormat(d)}
	return d.Refused(run.KindMalformed, problem.Problem, d.Word(agent.WordMalformed, fields))
}
