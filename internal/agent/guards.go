package agent

import (
	"fmt"
	"slices"
)

// Guards stop a model that goes in circles. The zero value stops nothing.
type Guards struct {
	DuplicateCalls bool `json:"duplicateCalls,omitempty"` // a call identical to one whose result the model has is not carried out again
	FailedRounds   int  `json:"failedRounds,omitempty"`   // after so many rounds in a row in which every call failed the model is told to change its approach; 0 = never
	ToolFailures   int  `json:"toolFailures,omitempty"`   // a tool that has failed so often is offered no more; 0 = always offered
}

func (c *checker) guards(at string, g Guards) {
	c.that(g.FailedRounds >= 0, at+".failedRounds", fmt.Sprintf("got %d, want zero or more", g.FailedRounds))
	c.that(g.ToolFailures >= 0, at+".toolFailures", fmt.Sprintf("got %d, want zero or more", g.ToolFailures))
}

// Watch is what guards remember of a run. It is committed with the replies that change it; only what the definition's guards ask for is
// kept, so it is bounded by the number of tools.
type Watch struct {
	FailedRounds int           `json:"failed,omitempty"`     // the newest ones, one after the other, whose every call failed, since the model was last told
	Duplicates   int           `json:"duplicates,omitempty"` // the newest rounds, one after the other, whose every call was a duplicate
	Failing      []FailingTool `json:"failing,omitempty"`    // tools that have not succeeded since they failed; never written in place
}

// FailingTool is a tool, by its original name, and in how many rounds it has failed since it last succeeded. Calls of one round count
// once: the model made them without knowing of each other.
type FailingTool struct {
	Tool   string `json:"tool"`
	Rounds int    `json:"rounds"`
}

func (w Watch) equal(v Watch) bool {
	return w.FailedRounds == v.FailedRounds && w.Duplicates == v.Duplicates && slices.Equal(w.Failing, v.Failing)
}

// failures is in how many rounds a tool has failed since it last succeeded.
func (w Watch) failures(tool string) int {
	for _, f := range w.Failing {
		if f.Tool == tool {
			return f.Rounds
		}
	}
	return 0
}

// newestWatch is what guards know once the newest round has come back: what the next request says, and what the reply to it is planned with.
func newestWatch(d *Definition, s *AgentState) Watch {
	w, round := s.Watch, s.returned()
	if len(round) == 0 {
		return w
	}
	if d.Guards.DuplicateCalls {
		w.Duplicates++
		if slices.ContainsFunc(round, func(c Call) bool { return c.Reason != WhyDuplicate }) {
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
func watched(d *Definition, s *AgentState, e Replied) Replied {
	if d.Text == TextHeuristic {
		e = tallied(s).remember(s, e)
	}
	if d.Guards == (Guards{}) {
		return e
	}
	w := newestWatch(d, s)
	if d.Guards.FailedRounds > 0 && w.FailedRounds >= d.Guards.FailedRounds {
		w.FailedRounds = 0
	}
	if e.Summary {
		w.Duplicates = 0
	}
	if !w.equal(s.Watch) {
		e.Watch = &w
	}
	return e
}

// allFailed reports whether every call of a round came back as an error of its own: not one that was put off, or that somebody else called
// off.
func allFailed(round []Call) bool {
	return !slices.ContainsFunc(round, func(c Call) bool {
		return c.Result == nil || !c.Result.IsError || c.Reason == WhySkipped || c.Reason == WhyAwaiting || c.Reason == WhyDuplicate || c.Reason == WhyCancelled
	})
}

// failing is the list behind one more round.
func failing(before []FailingTool, round []Call) []FailingTool {
	var after []FailingTool
	for _, f := range before {
		if !succeeded(round, f.Tool) {
			after = append(after, f)
		}
	}
	seen := map[string]bool{}
	for _, c := range round {
		if seen[c.Tool] || !c.broke() || succeeded(round, c.Tool) {
			continue
		}
		seen[c.Tool] = true
		i := slices.IndexFunc(after, func(f FailingTool) bool { return f.Tool == c.Tool })
		if i < 0 {
			i, after = len(after), append(after, FailingTool{Tool: c.Tool})
		}
		after[i].Rounds++
	}
	return after
}

// broke reports whether the call says something against its tool: it failed, ran out of time or could not be called like that. What
// people, policy and plugins kept from running does not.
func (c Call) broke() bool {
	return c.Reason == WhyToolError || c.Reason == WhyTimeout || c.Reason == WhyInvalidArguments
}

func succeeded(round []Call, tool string) bool {
	return slices.ContainsFunc(round, func(c Call) bool { return c.Tool == tool && c.Status == StatusSucceeded })
}

// withdrawn reports whether a tool has failed too often to be offered.
func withdrawn(d *Definition, w Watch, tool string) bool {
	return d.Guards.ToolFailures > 0 && w.failures(tool) >= d.Guards.ToolFailures
}

// hints are what guards tell the model in the next request alone: once that every call of the newest rounds failed, and once of each tool
// that it is offered no more.
func hints(d *Definition, s *AgentState) []string {
	if len(s.returned()) == 0 {
		return nil
	}
	w := newestWatch(d, s)
	var said []string
	if n := d.Guards.FailedRounds; n > 0 && w.FailedRounds >= n {
		said = append(said, d.word(wordAllFailed, map[string]any{"Rounds": n}))
	}
	for _, f := range w.Failing {
		if withdrawn(d, w, f.Tool) && !withdrawn(d, s.Watch, f.Tool) {
			said = append(said, d.word(wordToolWithdrawn, map[string]any{"Tool": ModelName(f.Tool), "Times": f.Rounds}))
		}
	}
	return said
}

// guarded is the gate's verdict g on a call of the newest round, or a guard's where one keeps the call from running. What people have been
// asked about, are going to be, or have granted is theirs to decide: a guard keeps them from nothing.
func guarded(d *Definition, s *AgentState, c Call, g Gate) Gate {
	switch {
	case c.Status != StatusNew || c.Inference != s.Round.Inference || !g.Run && g.Suspend == nil && g.Block == nil:
		return g
	case withdrawn(d, s.Watch, c.Tool):
		return refuse(c, WhyOutOfScope, d.word(wordWithdrawnCall, map[string]any{"Tool": c.Name, "Times": s.Watch.failures(c.Tool)}), g.Rule)
	case c.Repeats != "" && g.Run && g.Claim == nil:
		return refuse(c, WhyDuplicate, d.word(wordDuplicateCall, map[string]any{"Tool": c.Name, "Call": c.Repeats}), g.Rule)
	default:
		return g
	}
}

// The wordings of guards.
const (
	wordDuplicateCall = "duplicateCall"
	wordAllFailed     = "allFailed"
	wordToolWithdrawn = "toolWithdrawn"
	wordWithdrawnCall = "withdrawnCall"
	wordClosestTool   = "closestTool"
)

// wordingsOfGuards are what a model is told that goes in circles.
var wordingsOfGuards = []Wording{
	{
		Key: wordDuplicateCall, About: "to a model, as the result of a call that repeats one whose result it has", Fields: []string{"Tool", "Call"},
		Text: "You already have this result: it is that of the call {{.Call}} above, and nothing was done since. {{.Tool}} was not called again. " +
			"Use that result, call something else, or give your answer.",
	},
	{
		Key: wordAllFailed, About: "to a model whose every call failed, so many rounds in a row; in the next request alone", Fields: []string{"Rounds"},
		Text: "Every call of your last {{.Rounds}} rounds failed. Do not repeat them as they were. Read the errors above, check names and arguments, " +
			"try another tool or smaller steps, or say what keeps you from going on.",
	},
	{
		Key: wordToolWithdrawn, About: "to a model, once a tool has failed too often to be offered; in the next request alone", Fields: []string{"Tool", "Times"},
		Text: "{{.Tool}} failed {{.Times}} times in a row and is offered no more. Stop calling it. Go on without it, or say what cannot be done without it.",
	},
	{
		Key: wordWithdrawnCall, About: "to a model, as the result of a call of a tool that is offered no more", Fields: []string{"Tool", "Times"},
		Text: "{{.Tool}} failed {{.Times}} times in a row and is offered no more, so it was not called.",
	},
	{
		Key: wordClosestTool, About: "to a model that called a tool that does not exist, behind the names of those that do", Fields: []string{"Names"},
		Text: "Did you mean {{.Names}}?",
	},
}
