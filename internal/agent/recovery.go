package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// CodeBreaker ends a run whose model is told the very same again and again (seed 004, circuit breaker), or went in circles and could not
// even sum up.
const CodeBreaker ErrorCode = "breaker"

// What is wrong with a reply that the breaker counts: under TextRequireTool, one without any call; and in DialectXML, tool tags that hold no
// call, or one that lacks a name.
const (
	KindNoToolCall   CorrectionKind = "no_tool_call"
	KindMalformed    CorrectionKind = "malformed"
	KindMissingField CorrectionKind = "missing_field"
)

// recovers reports whether a correction is one that the breaker counts.
func (c *Correction) recovers() bool {
	return c != nil && (c.Kind == KindNoToolCall || c.Kind == KindMalformed || c.Kind == KindMissingField)
}

// Recovery is what the breaker remembers: how often in a row the model was told the very same of what it had done wrong. A tool that
// succeeds makes it forget. The zero Recovery remembers nothing.
type Recovery struct {
	Same   int    `json:"same"`
	Digest string `json:"digest"` // of what it was told
}

// told is the recovery after the model is told a text.
func (r Recovery) told(text string) Recovery {
	sum := sha256.Sum256([]byte(text))
	digest := hex.EncodeToString(sum[:16])
	if r.Digest != digest {
		return Recovery{Same: 1, Digest: digest}
	}
	r.Same++
	return r
}

// reminds reports whether the model is reminded of what failed, beside the results that say so.
func (d *Definition) reminds() bool {
	return d.Text == TextRequireTool || d.Model.Dialect == DialectXML
}

// recovery is what the breaker remembers of s, with what the model is about to be told of the newest round.
func (d *Definition) recovery(s *AgentState) Recovery {
	if text := d.reminder(s); text != "" {
		return s.Recovery.told(text)
	}
	return s.Recovery
}

// recovered puts into a planned reply to s what the breaker remembers with it.
func recovered(d *Definition, s *AgentState, e Replied) Replied {
	r := d.recovery(s)
	if e.Correction.recovers() {
		r = r.told(e.Correction.Text)
	}
	e.Recovery = nil
	if r != s.Recovery {
		e.Recovery = &r
	}
	return e
}

// tripped is the end of a run whose breaker has tripped; false where it has not. What was told the last time counts: the model is not told
// it once more.
func tripped(d *Definition, s *AgentState) (Finished, bool) {
	if d.XML.Breaker == 0 {
		return Finished{}, false
	}
	refused := s.Correction.owed() && s.Correction.recovers()
	if r := d.recovery(s); r.Same >= d.XML.Breaker && (refused || d.reminder(s) != "") {
		return Fail(CodeBreaker, fmt.Sprintf("the model made the same mistake %d times in a row", r.Same)), true
	}
	return Finished{}, false
}

// reminder is what the next request alone says of calls of the newest inference that failed, beside their results; "" where there is none.
func (d *Definition) reminder(s *AgentState) string {
	if !d.reminds() || s.Round.Inference != s.Prior+s.Inferences {
		return ""
	}
	var texts []string
	for _, c := range s.newest() {
		if c.Status != StatusFailed || c.Reason == WhyAwaiting { // of that people tell it more
			continue
		}
		if text := d.reminderOf(s, c); len(texts) == 0 || texts[len(texts)-1] != text {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n")
}

func (d *Definition) reminderOf(s *AgentState, c Call) string {
	switch {
	case c.Reason == WhyUnknownTool:
		return d.word(wordUnknownTool, map[string]any{"Tool": c.Name, "Tools": d.toolList(s), "Format": d.callFormat()})
	case c.Result == nil: // a call that has failed has a result
		return ""
	default:
		return d.word(wordFailedTool, map[string]any{"Tool": c.Name, "Error": Bounded(c.Result.Content), "Format": d.callFormat()})
	}
}

// judgeCall refuses a reply without a call where only a tool ends the run. A summary has none.
func judgeCall(d *Definition, s *AgentState, e Replied) Replied {
	if e.Summary {
		return e
	}
	e.Correction = d.refused(KindNoToolCall, "", d.word(wordNoToolCall, map[string]any{"Format": d.callFormat()}))
	return recovered(d, s, e)
}

// refusedCall is why a text that has a tool tag holds no call.
func (d *Definition) refusedCall(problem *TextCallError, text string) *Correction {
	content := Bounded(ReadToolText(text).Body)
	if problem.Field != "" {
		fields := map[string]any{"Field": problem.Field, "Content": content, "Format": d.callFormat()}
		return d.refused(KindMissingField, problem.Problem, d.word(wordMissingField, fields))
	}
	fields := map[string]any{"Error": problem.Problem, "Content": content, "Format": d.callFormat()}
	return d.refused(KindMalformed, problem.Problem, d.word(wordMalformed, fields))
}

func (d *Definition) refused(kind CorrectionKind, detail, text string) *Correction {
	return &Correction{Lifecycle: LifecycleNudge, Text: text, Ephemeral: d.Corrections == CorrectionsEphemeral, Kind: kind, Detail: detail}
}
