package agent

// Leave is why the loop of a run is over although its model has not said its last word. It is asked for one then, without tools: the forced
// summary, which is no interaction and is not analysed.
type Leave string

// The reasons; "" = the loop goes on.
const (
	LeaveLimit      Leave = "limit"      // a limit is used up, and onLimit is summarise
	LeaveEmpty      Leave = "empty"      // the model said nothing, too often in a row
	LeaveDuplicates Leave = "duplicates" // the model does nothing but repeat calls whose results it has
)

// leaves says whether, and why, the next inference is the forced summary. Any other end that a limit has comes before that.
func leaves(d *Definition, s *AgentState) Leave {
	switch {
	case quotaUsed(d, s) && d.Limits.OnLimit == OnLimitSummarise:
		return LeaveLimit
	case quotaUsed(d, s):
		return ""
	case s.Correction != nil && s.Correction.Lifecycle == LifecycleSummary:
		return LeaveEmpty
	case circles(d, s):
		return LeaveDuplicates
	default:
		return ""
	}
}

// summarises reports whether the next inference is the forced summary.
func summarises(d *Definition, s *AgentState) bool { return leaves(d, s) != "" }

// The wordings of the forced summary.
const (
	wordSummarise = "summarise"
	wordNoSummary = "noSummary"
)

// wordingsOfSummary are said around the forced summary.
var wordingsOfSummary = []Wording{
	{
		Key: wordSummarise, About: "to a model that is asked for the forced summary, in that request alone",
		Text: "This is your last answer, and no tool can be called any more. Sum up, in the form that was asked for. Report only actual " +
			"results: those that stand above. For what was asked for and has no result, say \"not processed\". If nothing above can be " +
			"reported, say that you were unable to do it.",
	},
	{
		Key: wordNoSummary, About: "to people, in place of a summary that the model left empty",
		Text: "The model gave no summary. What was done is in the list of the run's calls.",
	},
}
