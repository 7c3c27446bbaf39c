package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
)

// Memory is what policies remember of a run, each under its own name. The machine keeps it and does not interpret it.
// The zero value is empty. It is never written in place.
type Memory map[string]Slot

// Slot is what one policy remembers.
type Slot struct {
	Value json.RawMessage
	Fresh bool `json:",omitempty"` // it was remembered since the run began or was last resumed
}

// Remember is the fact that a policy remembers v, which is JSON, from here on.
func Remember(policy string, v any) Remembered {
	raw, _ := jsonx.MarshalVerbatim(v) // Apply refuses a fact without a value
	return Remembered{Policy: policy, Value: raw}
}

func (e Remembered) apply(s *AgentState) error {
	if e.Policy == "" || e.Value == nil {
		return &ApplyError{Problem: "a policy and a value are required"}
	}
	s.remember(map[string]json.RawMessage{e.Policy: e.Value})
	return nil
}

func (s *AgentState) remember(values map[string]json.RawMessage) {
	memory := Memory{}
	maps.Copy(memory, s.Memory)
	for policy, value := range values {
		memory[policy] = Slot{Value: value, Fresh: true}
	}
	s.Memory = memory
}

// CorrectionKind is what a policy found in a reply that is not the last word, for who shows it. "" = it was cut short,
// or is no output. Package policy has the kinds.
type CorrectionKind string

// Room is what a request had left of its window, in tokens.
type Room struct {
	Left int `json:"left"`
	Of   int `json:"of"`
}

// Counted is what a provider counted of a request: how many tokens it took, and how many messages of the conversation
// it held, those that had been evicted before it included. The zero value: no count is known.
type Counted struct {
	Tokens  int64 `json:"tokens"`
	Through int64 `json:"through"`
}

const maxBuiltMessages = 200

// Problem says what is wrong with the fact, "" when nothing is.
func (e ContextBuilt) Problem() string {
	if len(e.Messages) > maxBuiltMessages {
		return fmt.Sprintf("%d messages, want at most %d", len(e.Messages), maxBuiltMessages)
	}
	for i, m := range e.Messages {
		switch m.Content.Block.(type) {
		case Text:
		case Media:
			if m.Role == RoleAssistant {
				return fmt.Sprintf("message %d: a model does not say media", i)
			}
		default:
			return fmt.Sprintf("message %d: want text or media", i)
		}
		if !m.Role.Valid() || m.Seen < 0 {
			return fmt.Sprintf("message %d: want a role of user or assistant, and a seenCount of zero or more", i)
		}
	}
	return ""
}

// apply puts the builder's messages before those of this run, which they introduce.
func (e ContextBuilt) apply(s *AgentState) error {
	if s.Built {
		return nil
	}
	if err := s.requireAwake(); err != nil {
		return err
	}
	if s.Inferences > 0 {
		return &ApplyError{Problem: "the run has made an inference"}
	}
	if problem := e.Problem(); problem != "" {
		return &ApplyError{Problem: problem}
	}
	before := s.Messages.All()
	own := slices.IndexFunc(before, func(m Message) bool { return m.Source.Run == "" })
	if own < 0 {
		own = len(before)
	}
	s.Messages = Log[Message]{}
	for _, m := range before[:own] {
		s.Messages = s.Messages.Append(m)
	}
	for i, m := range e.Messages {
		s.appendMessage(m.Role, m.Content.Block, m.Seen, s.nextSource(i))
	}
	for _, m := range before[own:] {
		s.Messages = s.Messages.Append(m)
	}
	s.Built, s.Unsaid = true, false
	return nil
}

// Cut is where the newest reply begins, if it came in pieces because its provider cut it short.
type Cut struct {
	// how many messages of the conversation stand before it, evicted ones included
	From    int64 `json:"from,omitempty"`
	Prompts int   `json:"prompts,omitempty"` // how often the model was asked to go on; 0 = the reply came whole
}

// Continues reports whether the model is to go on with its reply.
func (c *Correction) Continues() bool {
	return c != nil && c.Lifecycle == LifecycleNudge && c.Kind == ""
}

// markCut records where a reply in pieces begins; it is called before the reply's messages are appended.
func (s *AgentState) markCut(e Replied) {
	goesOn := s.Correction.Continues() && len(e.Calls) == 0
	if !goesOn {
		s.Cut = Cut{}
	}
	if !e.Correction.Continues() {
		return
	}
	if !goesOn {
		s.Cut.From = s.EvictedMessages + int64(s.Messages.Len())
	}
	s.Cut.Prompts++
}

// Take is evicted without its conditions.
func (s *AgentState) Take(e Evicted) {
	s.Messages = s.Messages.DropFront(int(e.Total - s.EvictedMessages))
	s.EvictedMessages, s.Summary, s.Files = e.Total, e.Summary, e.Files
}

// Correction is why a reply without calls did not end the run. It is committed with the reply: no fold judges again.
type Correction struct {
	// Lifecycle is that of the inference that carries the correction. "" = none will: a forced summary is not corrected.
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`
	Text      string    `json:"text"`
	Ephemeral bool      `json:"ephemeral,omitempty"` // the next request alone holds the text; the conversation does not

	Kind   CorrectionKind `json:"kind,omitempty"`
	Detail string         `json:"detail,omitempty"` // with a kind: what was wrong, as the parser reports it
}

// Owed reports whether the model has yet to read the correction.
func (c *Correction) Owed() bool { return c != nil && c.Lifecycle != "" }

const stoppedPrefix = "stopped:"

// Stopped is the reason of a run that something stopped, by its code.
func Stopped(code string) Reason { return Reason(stoppedPrefix + code) }

// Halt is the verdict of a stop policy, which is committed with the reply that it is about: no fold judges again.
type Halt struct {
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
}

// Whole is where all of a result is of which the conversation holds a part. The zero value is not valid.
type Whole struct {
	Call  string `json:"call,omitempty"` // whose result it is; "" = the call's own
	Blob  string `json:"blob"`           // the digest of its text, resolved under the run's tenant only
	Chars int    `json:"chars"`          // of that text: Unicode code points
}
