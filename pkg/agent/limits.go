package agent

import "fmt"

// quotaUsed reports whether the run has made all of its interactions, the grace calls included.
func quotaUsed(d *Definition, s *AgentState) bool {
	return s.Interactions.Current >= s.Interactions.Max+d.Limits.Grace
}

// summarises reports whether the next inference is the forced summary: without tools, and not an interaction.
func summarises(d *Definition, s *AgentState) bool {
	return d.Limits.OnLimit == OnLimitSummarise && quotaUsed(d, s)
}

// quotaEnd ends a run that has used up its interactions.
func quotaEnd(on OnLimit, at Interactions) Finished {
	if on == OnLimitStop {
		return Finished{Reason: ReasonMaxRounds, OpenText: textRunEnded, UnknownText: textOutcomeUnknown}
	}
	return Fail(CodeInteractionsExhausted, fmt.Sprintf("the run used all of its %d interactions", at.Max))
}

// Fail is the end of a run in error. message must be fit to be stored and shown.
func Fail(code ErrorCode, message string) Finished {
	return Finished{Reason: ReasonError, Error: &RunError{Code: code, Message: message}, OpenText: textRunEnded, UnknownText: textOutcomeUnknown}
}

// CancelRun is the end of a run that somebody called off. The note tells a run that continues this one what happened.
func CancelRun(by, note string) Finished {
	return Finished{
		Reason: ReasonCancelled, By: by, Note: textCancelled(by, note),
		OpenText: textRunEnded, UnknownText: textOutcomeUnknown,
	}
}
