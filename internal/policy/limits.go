package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// usedUp is the error code of the limit that leaves the run no further inference, "" while it has one. What is spent is known here
// before the next request is made: every reply is committed with its usage and its cost. Grace is of interactions alone.
func usedUp(d *agent.Definition, s *run.AgentState) run.ErrorCode {
	if code := quota(d, s); code != "" || !s.Full.Said() {
		return code
	}
	return run.CodeTokensExhausted // those of the window; the codes are closed
}

// StopContextFull is the code, behind stopped: in a run's reason, of a run whose context's window has no room for another round.
const StopContextFull = "context_exhausted"

// onlyFull reports whether it is the window alone that leaves the run no further inference.
func onlyFull(d *agent.Definition, s *run.AgentState) bool { return s.Full.Said() && quota(d, s) == "" }

// quota is usedUp without the context's window.
func quota(d *agent.Definition, s *run.AgentState) run.ErrorCode {
	switch {
	case s.Interactions.Current >= s.Interactions.Max+d.Limits.Grace:
		return run.CodeInteractionsExhausted
	case d.Limits.Tokens > 0 && s.Usage.Total() >= d.Limits.Tokens:
		return run.CodeTokensExhausted
	case d.Limits.USD > 0 && s.Cost >= d.Limits.USD:
		return run.CodeUSDExhausted
	default:
		return ""
	}
}

// quotaUsed reports whether the run may not infer any more, but for a forced summary.
func quotaUsed(d *agent.Definition, s *run.AgentState) bool { return usedUp(d, s) != "" }

// quotaEnd ends a run that has used up one of its limits.
func quotaEnd(d *agent.Definition, s *run.AgentState) run.Finished {
	code := usedUp(d, s)
	if d.Limits.OnLimit != agent.OnLimitStop {
		return Fail(code, textUsedUp(d, s, code))
	}
	end := run.Finished{Reason: run.ReasonMaxRounds, OpenText: agent.TextRunEnded, UnknownText: agent.TextOutcomeLost}
	switch {
	case onlyFull(d, s):
		end.Reason = run.Stopped(StopContextFull)
	case code != run.CodeInteractionsExhausted:
		end.Reason = run.Stopped(string(code))
	}
	return end
}

// textUsedUp says which limit of the run is used up.
func textUsedUp(d *agent.Definition, s *run.AgentState, code run.ErrorCode) string {
	if onlyFull(d, s) {
		return fmt.Sprintf("the context's window of %d tokens has %d left, and a round takes %d", s.Full.Of, s.Full.Left, d.Context.RoundMinimum)
	}
	switch code {
	case run.CodeTokensExhausted:
		return fmt.Sprintf("the run used %d tokens and had %d", s.Usage.Total(), d.Limits.Tokens)
	case run.CodeUSDExhausted:
		return fmt.Sprintf("the run cost %s USD and had %s", s.Cost, d.Limits.USD)
	default:
		return fmt.Sprintf("the run used all of its %d interactions", s.Interactions.Max)
	}
}

// ModelFailed is the end of a run whose models have all failed after so many requests: the definition's static text, as its natural end,
// or an error. An error of a class that does not move on ended the run before the chain did, and is one.
func ModelFailed(d *agent.Definition, s *run.AgentState, failed *agent.ModelError, requests int) run.Finished {
	end := Fail(run.CodeModelFailed, failed.Error())
	if saysStatic(d, s, failed) {
		end = run.Finished{Reason: run.ReasonNaturalEnd, Static: d.Model.StaticText, Output: agent.TextOutput(d.Model.StaticText), History: d.Output.History}
		if d.Output.Format == agent.OutputJSON { // Check lets nothing but JSON through
			end.Output = []byte(d.Model.StaticText)
		}
	}
	end.Requests = requests
	return end
}

// WaitsForModel reports whether the run waits for models that have all failed: it does not end, and nothing is committed.
func WaitsForModel(d *agent.Definition, s *run.AgentState, failed *agent.ModelError) bool {
	return d.Model.Waits(failed) && !saysStatic(d, s, failed)
}

// WaitedTooLong is the end of a run that waits for its models, after so many requests; ok is false while it has not run for as long as it may.
func WaitedTooLong(d *agent.Definition, s *run.AgentState, requests int, at time.Time) (end run.Finished, ok bool) {
	end = run.Finished{Reason: run.Stopped(StopTimeout), OpenText: agent.TextRunEnded, UnknownText: agent.TextOutcomeLost, Requests: requests}
	return end, d.Stop.Timeout > 0 && RanFor(s, at.UnixMilli()) >= d.Stop.Timeout
}

// saysStatic reports whether the static text ends a run whose models have all failed. What people were asked, and calls that are open, are
// nothing that a static text may close.
func saysStatic(d *agent.Definition, s *run.AgentState, failed *agent.ModelError) bool {
	return d.Model.StaticText != "" && d.Model.MovesOn(failed.Class) && s.OpenCall() == nil && len(s.Permissions.Asked) == 0
}

// CancelRun is the end of a run that somebody called off. The note tells a run that continues this one what happened.
func CancelRun(by, note string) run.Finished {
	return run.Finished{
		Reason: run.ReasonCancelled, By: by, Note: agent.TextCancelled(by, note),
		OpenText: agent.TextRunEnded, UnknownText: agent.TextOutcomeLost,
	}
}

// Interrupt is CancelRun of a run as it is: the note says what it was at (semantics 3.7).
func Interrupt(s *run.AgentState, by, note string) run.Finished {
	end := CancelRun(by, note)
	end.Note = agent.TextInterrupted(at(s), by, note)
	return end
}

// at is what the run is at, in words.
func at(s *run.AgentState) string {
	stage := "during inference"
	for _, c := range s.Live {
		switch {
		case c.Status == run.StatusSuspended:
			stage = "while it waited"
		case c.Open():
			return "during tools"
		}
	}
	return stage
}

// The codes of the stop policies (semantics 3.8), behind stopped: in a run's reason.
const (
	StopMaxRounds         = "max_rounds_reached"
	StopTimeout           = "timeout_reached"
	StopTokens            = "token_budget_exceeded"
	StopConsecutiveErrors = "consecutive_errors_exceeded"
	StopOnTool            = "tool_called"     // detail: the tool's original name
	StopContains          = "content_matched" // detail: what was looked for
	StopLoop              = "loop_detected"
)

// halted asks the stop policies about a planned reply to s; nil = none stops the run. A forced summary ends it anyway.
func halted(d *agent.Definition, s *run.AgentState, e run.Replied) *run.Halt {
	if d.Stop.Zero() || e.Summary {
		return nil
	}
	tool := ""
	for _, c := range e.Calls {
		if tool == "" && slices.Contains(d.Stop.OnTool, c.Original()) {
			tool = c.Original()
		}
	}
	p, r := d.Stop, streaks(d, s, e)
	switch {
	case p.Rounds > 0 && s.Inferences+1 >= int64(p.Rounds):
		return &run.Halt{Code: StopMaxRounds}
	case p.Timeout > 0 && RanFor(s, e.At) >= p.Timeout:
		return &run.Halt{Code: StopTimeout}
	case p.Tokens > 0 && s.Usage.Add(e.Usage).Total() >= p.Tokens:
		return &run.Halt{Code: StopTokens}
	case tooOften(d, r, errorRounds):
		return &run.Halt{Code: StopConsecutiveErrors}
	case tool != "":
		return &run.Halt{Code: StopOnTool, Detail: tool}
	case p.Contains != "" && strings.Contains(stitched(s, e.Text), p.Contains):
		return &run.Halt{Code: StopContains, Detail: p.Contains}
	case tooOften(d, r, sameTools):
		return &run.Halt{Code: StopLoop}
	default:
		return nil
	}
}

// RanFor is how long the run has run at a time, milliseconds since 1970: since it was started, less what it was parked.
func RanFor(s *run.AgentState, at int64) time.Duration {
	return time.UnixMilli(at).Sub(s.StartedAt) - s.Waited
}

// TextAttempts stands behind the last error of a call that was entered n times, from 2.
func TextAttempts(n int) string { return fmt.Sprintf("\n[It was tried %d times.]", n) }
