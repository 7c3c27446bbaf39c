package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Stop are the policies that stop a run (semantics 3.8). Each is off at its zero value. They are asked after every inference, in this
// order, with its reply taken into account; the first that says so stops the run, once the calls of that reply have finished.
type Stop struct {
	Rounds            int           `json:"rounds,omitempty"`            // inferences of this run, whatever came back
	Timeout           time.Duration `json:"timeout,omitempty"`           // of the run; what it waited for people and services does not count
	Tokens            int64         `json:"tokens,omitempty"`            // of all kinds, in all
	ConsecutiveErrors int           `json:"consecutiveErrors,omitempty"` // rounds one after the other, every call of which came back as an error
	OnTool            []string      `json:"onTool,omitempty"`            // original names: the model has called one of them
	Contains          string        `json:"contains,omitempty"`          // in the model's text
	LoopWindow        int           `json:"loopWindow,omitempty"`        // rounds, 2 to 20, among which two neighbours called the same tools
}

// zero reports whether every policy is off.
func (s Stop) zero() bool {
	return s.Rounds == 0 && s.Timeout == 0 && s.Tokens == 0 && s.ConsecutiveErrors == 0 && len(s.OnTool) == 0 && s.Contains == "" && s.LoopWindow == 0
}

// maxLoopWindow is how many rounds are remembered.
const maxLoopWindow = 20

// stoppedPrefix begins the reason of a run that was stopped.
const stoppedPrefix = "stopped:"

// Stopped is the reason of a run that something stopped, by its code.
func Stopped(code string) Reason { return Reason(stoppedPrefix + code) }

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

// Halt is the verdict of a stop policy. It is committed with the reply that it is about, so that a fold never judges again.
type Halt struct {
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
}

// Pace is what a stop policy remembers of the rounds before. Only what the definition's policies ask for is kept, so it is bounded.
type Pace struct {
	FailedRounds int      `json:"failed,omitempty"` // the newest ones, one after the other, of which no call succeeded
	Asked        []string `json:"asked,omitempty"`  // digests of the tools of the newest rounds that called any, the newest last; never written in place
}

// paced is the pace with which e is committed: the round before it has come back, and e's own calls are the newest.
func paced(d *Definition, s *AgentState, e Replied) *Pace {
	if d.Stop.ConsecutiveErrors == 0 && d.Stop.LoopWindow == 0 {
		return nil
	}
	p := Pace{FailedRounds: s.Pace.FailedRounds}
	if d.Stop.ConsecutiveErrors > 0 && s.Inferences > 0 && s.Round.Inference == s.Prior+s.Inferences {
		p.FailedRounds++
		if !s.roundFailed() {
			p.FailedRounds = 0
		}
	}
	if d.Stop.LoopWindow > 0 {
		p.Asked = s.Pace.Asked
		if len(e.Calls) > 0 {
			p.Asked = append(slices.Clone(p.Asked), askedDigest(e.Calls))
			p.Asked = p.Asked[max(0, len(p.Asked)-maxLoopWindow):]
		}
	}
	return &p
}

// roundFailed reports whether every call of the newest round has come back as an error.
func (s *AgentState) roundFailed() bool {
	for _, c := range s.Live {
		if c.Inference == s.Round.Inference && (c.Result == nil || !c.Result.IsError) {
			return false
		}
	}
	return true
}

// askedDigest tells apart which tools a round called, how often each, in whatever order.
func askedDigest(calls []RepliedCall) string {
	names := make([]string, len(calls))
	for i, c := range calls {
		names[i] = c.original()
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	return hex.EncodeToString(sum[:16])
}

// halted asks the stop policies about a planned reply to s; nil = none stops the run. A forced summary ends it anyway.
func halted(d *Definition, s *AgentState, e Replied) *Halt {
	if d.Stop.zero() || e.Summary {
		return nil
	}
	tool := ""
	for _, c := range e.Calls {
		if tool == "" && slices.Contains(d.Stop.OnTool, c.original()) {
			tool = c.original()
		}
	}
	p := d.Stop
	switch {
	case p.Rounds > 0 && s.Inferences+1 >= int64(p.Rounds):
		return &Halt{Code: StopMaxRounds}
	case p.Timeout > 0 && s.ranFor(e.At) >= p.Timeout:
		return &Halt{Code: StopTimeout}
	case p.Tokens > 0 && s.Usage.Add(e.Usage).Total() >= p.Tokens:
		return &Halt{Code: StopTokens}
	case p.ConsecutiveErrors > 0 && e.Pace.FailedRounds >= p.ConsecutiveErrors:
		return &Halt{Code: StopConsecutiveErrors}
	case tool != "":
		return &Halt{Code: StopOnTool, Detail: tool}
	case p.Contains != "" && strings.Contains(stitched(s, e.Text), p.Contains):
		return &Halt{Code: StopContains, Detail: p.Contains}
	case p.LoopWindow > 0 && loops(e.Pace.Asked, p.LoopWindow):
		return &Halt{Code: StopLoop}
	default:
		return nil
	}
}

// loops reports whether two neighbours among the newest rounds are equal.
func loops(asked []string, window int) bool {
	asked = asked[max(0, len(asked)-window):]
	for i := 1; i < len(asked); i++ {
		if asked[i] == asked[i-1] {
			return true
		}
	}
	return false
}

// ranFor is how long the run has run at a time, milliseconds since 1970: since it was started, less what it was parked.
func (s *AgentState) ranFor(at int64) time.Duration {
	return time.UnixMilli(at).Sub(s.StartedAt) - s.Waited
}

// stoppedEnd ends a run that was stopped. Where its model had said its last word anyway, that is the output.
func stoppedEnd(d *Definition, s *AgentState) Finished {
	end := Finished{Reason: s.Ending, Detail: s.EndingDetail, OpenText: textRunEnded, UnknownText: textOutcomeUnknown}
	text := lastReply(s)
	if text == "" || s.Correction != nil {
		return end
	}
	if d.Output.Format != OutputJSON {
		end.Output, end.History = textOutput(text), d.Output.History
		return end
	}
	if value, err := CompactJSON([]byte(text), outputLimits); err == nil {
		end.Output, end.History = value, d.Output.History
	}
	return end
}
