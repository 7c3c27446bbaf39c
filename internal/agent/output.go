package agent

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Output is the form of what a run gives in the end.
type Output struct {
	Format  OutputKind      `json:"format"`            // "" = text
	Schema  json.RawMessage `json:"schema,omitempty"`  // of the value where Format is json; nil = any value
	History bool            `json:"history,omitempty"` // the conversation is part of the output
}

// OutputKind says what the model's last word has to be.
type OutputKind string

// Text is any text; JSON is one strict JSON value that fits the schema, with nothing around it.
const (
	OutputText OutputKind = "text"
	OutputJSON OutputKind = "json"
)

// CorrectionMode says where the model is told that its last word was refused.
type CorrectionMode string

// In the conversation, for good, or in the next request alone. "" = persist.
const (
	CorrectionsPersist   CorrectionMode = "persist"
	CorrectionsEphemeral CorrectionMode = "ephemeral"
)

// Correction is why a reply without calls did not end the run. The verdict is committed with the reply, so that a fold never
// judges again.
type Correction struct {
	// Lifecycle is that of the inference in which the model is told. "" = none will be: a forced summary is not corrected.
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`
	Text      string    `json:"text"`
	Ephemeral bool      `json:"ephemeral,omitempty"` // the next request alone holds the text; the conversation does not

	Kind   CorrectionKind `json:"kind,omitempty"`
	Detail string         `json:"detail,omitempty"` // with a kind: what was wrong, in the words of who could not read it
}

// owed reports whether the model is still to be told.
func (c *Correction) owed() bool { return c != nil && c.Lifecycle != "" }

// outputLimits bounds a JSON output so that the reply and the end that repeats it fit into one entry.
var outputLimits = JSONLimits{Bytes: 128 << 10}

// asked is the form that the model is asked for.
func (o Output) asked(name string) OutputFormat {
	if o.Format != OutputJSON {
		return OutputFormat{}
	}
	return OutputFormat{JSON: true, Schema: o.Schema, Name: name}
}

// judgeOutput refuses what is not JSON, or does not fit the schema. valid checks a value; its error is for the model to read.
func judgeOutput(d *Definition, s *AgentState, e Replied, valid func(value json.RawMessage) error) Replied {
	value, err := CompactJSON([]byte(spoken(d, stitched(s, e.Text))), outputLimits)
	if err != nil {
		err = fmt.Errorf("it is not one JSON value: %w", err)
	} else if err = valid(value); err != nil {
		err = fmt.Errorf("it does not fit the schema:\n%w", err)
	}
	switch {
	case err == nil:
	case e.Summary:
		e.Correction = &Correction{Text: err.Error()}
	default:
		e.Correction = &Correction{
			Lifecycle: LifecycleOutputError, Text: textOutputRefused(d, err), Ephemeral: d.Corrections == CorrectionsEphemeral,
		}
		if strings.TrimSpace(e.Text) == "" { // seed 000 keeps a turn of the model's here, too
			e.Text = d.word(wordNoReply, nil)
		}
	}
	return e
}

// Unjudged reports whether the reply to action a is taken as it is: the quota is used up, and the definition's validators rest then.
func (d *Definition) Unjudged(a Action) bool {
	return a.Exhausted && d.Limits.Validators == ValidatorsNotExhausted
}

// naturalEnd ends a run whose model has said its last word, in a text or by a tool.
func naturalEnd(d *Definition, s *AgentState) Finished {
	if c, exits := s.exit(); exits {
		return exitEnd(d, c)
	}
	said := spoken(d, lastReply(s))
	end := Finished{Reason: ReasonNaturalEnd, Output: textOutput(said), History: d.Output.History}
	if d.Output.Format != OutputJSON {
		return end
	}
	if s.Correction != nil {
		code := usedUp(d, s)
		if code == "" {
			return Fail(CodeBreaker, "the run left its loop, and its summary is not the output that was asked for: "+s.Correction.Text)
		}
		return Fail(code, textUsedUp(d, s, code)+", and its summary is not the output that was asked for: "+s.Correction.Text)
	}
	value, err := CompactJSON([]byte(said), outputLimits)
	if err != nil && d.Limits.Validators == ValidatorsNotExhausted { // an exhausted reply, which nobody has judged
		return end
	}
	if err != nil { // Judge lets nothing else through
		return Fail(CodeInternal, "the run's output is not JSON: "+err.Error())
	}
	end.Output = value
	return end
}

// lastReply is the text the model ended with, "" when it said nothing: all texts of its newest turn, or of all its turns where that was
// said in pieces. Reasoning is no part of it, but may stand within it.
func lastReply(s *AgentState) string {
	if s.Cut.Prompts > 0 {
		return s.pieces()
	}
	all, text := s.Messages.All(), ""
	for i := len(all) - 1; i >= 0 && all[i].Role == RoleAssistant && all[i].Source.sameEvent(all[len(all)-1].Source); i-- {
		switch b := all[i].Block.(type) {
		case Text:
			text = b.Text + text
		case ToolUse:
			return ""
		}
	}
	return text
}

func textOutput(text string) json.RawMessage {
	out, err := json.Marshal(text)
	if err != nil { // a string always marshals
		return json.RawMessage(`""`)
	}
	return out
}
