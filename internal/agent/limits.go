package agent

import (
	"fmt"
	"time"
)

// usedUp is the error code of the limit that leaves the run no further inference, "" while it has one. What is spent is known here
// before the next request is made: every reply is committed with its usage and its cost. Grace is of interactions alone.
func usedUp(d *Definition, s *AgentState) ErrorCode {
	if code := quota(d, s); code != "" || !s.Full.said() {
		return code
	}
	return CodeTokensExhausted // those of the window; the codes are closed
}

// StopContextFull is the code, behind stopped: in a run's reason, of a run whose context's window has no room for another round.
const StopContextFull = "context_exhausted"

// onlyFull reports whether it is the window alone that leaves the run no further inference.
func onlyFull(d *Definition, s *AgentState) bool { return s.Full.said() && quota(d, s) == "" }

// quota is usedUp without the context's window.
func quota(d *Definition, s *AgentState) ErrorCode {
	switch {
	case s.Interactions.Current >= s.Interactions.Max+d.Limits.Grace:
		return CodeInteractionsExhausted
	case d.Limits.Tokens > 0 && s.Usage.Total() >= d.Limits.Tokens:
		return CodeTokensExhausted
	case d.Limits.USD > 0 && s.Cost >= d.Limits.USD:
		return CodeUSDExhausted
	default:
		return ""
	}
}

// quotaUsed reports whether the run may not infer any more, but for a forced summary.
func quotaUsed(d *Definition, s *AgentState) bool { return usedUp(d, s) != "" }

// quotaEnd ends a run that has used up one of its limits.
func quotaEnd(d *Definition, s *AgentState) Finished {
	code := usedUp(d, s)
	if d.Limits.OnLimit != OnLimitStop {
		return Fail(code, textUsedUp(d, s, code))
	}
	end := Finished{Reason: ReasonMaxRounds, OpenText: textRunEnded, UnknownText: textOutcomeUnknown}
	switch {
	case onlyFull(d, s):
		end.Reason = Stopped(StopContextFull)
	case code != CodeInteractionsExhausted:
		end.Reason = Stopped(string(code))
	}
	return end
}

// textUsedUp says which limit of the run is used up.
func textUsedUp(d *Definition, s *AgentState, code ErrorCode) string {
	if onlyFull(d, s) {
		return fmt.Sprintf("the context's window of %d tokens has %d left, and a round takes %d", s.Full.Of, s.Full.Left, d.Context.RoundMinimum)
	}
	switch code {
	case CodeTokensExhausted:
		return fmt.Sprintf("the run used %d tokens and had %d", s.Usage.Total(), d.Limits.Tokens)
	case CodeUSDExhausted:
		return fmt.Sprintf("the run cost %s USD and had %s", s.Cost, d.Limits.USD)
	default:
		return fmt.Sprintf("the run used all of its %d interactions", s.Interactions.Max)
	}
}

// Fail is the end of a run in error. message must be fit to be stored and shown.
func Fail(code ErrorCode, message string) Finished {
	return Finished{Reason: ReasonError, Error: &RunError{Code: code, Message: message}, OpenText: textRunEnded, UnknownText: textOutcomeUnknown}
}

// ModelFailed is the end of a run whose models have all failed after so many requests: the definition's static text, as its natural end,
// or an error. An error of a class that does not move on ended the run before the chain did, and is one.
func ModelFailed(d *Definition, s *AgentState, failed *ModelError, requests int) Finished {
	end := Fail(CodeModelFailed, failed.Error())
	if saysStatic(d, s, failed) {
		end = Finished{Reason: ReasonNaturalEnd, Static: d.Model.StaticText, Output: textOutput(d.Model.StaticText), History: d.Output.History}
		if d.Output.Format == OutputJSON { // Check lets nothing but JSON through
			end.Output = []byte(d.Model.StaticText)
		}
	}
	end.Requests = requests
	return end
}

// WaitsForModel reports whether the run waits for models that have all failed: it does not end, and nothing is committed.
func WaitsForModel(d *Definition, s *AgentState, failed *ModelError) bool {
	return d.Model.Waits(failed) && !saysStatic(d, s, failed)
}

// WaitedTooLong is the end of a run that waits for its models, after so many requests; ok is false while it has not run for as long as it may.
func WaitedTooLong(d *Definition, s *AgentState, requests int, at time.Time) (end Finished, ok bool) {
	end = Finished{Reason: Stopped(StopTimeout), OpenText: textRunEnded, UnknownText: textOutcomeUnknown, Requests: requests}
	return end, d.Stop.Timeout > 0 && s.ranFor(at.UnixMilli()) >= d.Stop.Timeout
}

// saysStatic reports whether the static text ends a run whose models have all failed. What people were asked, and calls that are open, are
// nothing that a static text may close.
func saysStatic(d *Definition, s *AgentState, failed *ModelError) bool {
	return d.Model.StaticText != "" && d.Model.MovesOn(failed.Class) && s.openCall() == nil && len(s.Permissions.Asked) == 0
}

// CancelRun is the end of a run that somebody called off. The note tells a run that continues this one what happened.
func CancelRun(by, note string) Finished {
	return Finished{
		Reason: ReasonCancelled, By: by, Note: textCancelled(by, note),
		OpenText: textRunEnded, UnknownText: textOutcomeUnknown,
	}
}

// Interrupt is CancelRun of a run as it is: the note says what it was at (semantics 3.7).
func Interrupt(s *AgentState, by, note string) Finished {
	end := CancelRun(by, note)
	end.Note = textInterrupted(s.at(), by, note)
	return end
}

// at is what the run is at, in words.
func (s *AgentState) at() string {
	stage := "during inference"
	for _, c := range s.Live {
		switch {
		case c.Status == StatusSuspended:
			stage = "while it waited"
		case c.Open():
			return "during tools"
		}
	}
	return stage
}
