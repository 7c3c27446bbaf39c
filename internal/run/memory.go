package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
)

// Memory is what policies remember about a run, each under its own name. The machine stores it and does not interpret
// it. The zero value is empty. A Memory is never written in place.
type Memory map[string]Slot

// Slot is what one policy remembers.
type Slot struct {
	Value json.RawMessage
	Fresh bool `json:",omitempty"` // written since the run began or was last resumed
}

// Remember returns the fact that a policy remembers v, which has to marshal to JSON.
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

// CorrectionKind is the fault that a policy found in a reply that is not the final answer. Package policy declares the
// kinds. "" = the reply was cut short, or is no valid output.
type CorrectionKind string

// Room is the space that a request left in its window, in tokens.
type Room struct {
	Left int `json:"left"`
	Of   int `json:"of"`
}

// Counted is a provider's count for a request: its tokens, and the number of conversation messages up to its end,
// evicted ones included. The zero value means that no count is known.
type Counted struct {
	Tokens  int64 `json:"tokens"`
	Through int64 `json:"through"`
}

const maxBuiltMessages = 200

// Problem returns what is wrong with the fact, or "".
func (e ContextBuilt) Problem() string {
	if len(e.Messages) > maxBuiltMessages {
		return fmt.Sprintf("%d messages, want at most %d", len(e.Messages), maxBuiltMessages)
	}
	for i, m := range e.Messages {
		switch m.Content.Block.(type) {
		case Text:
		case Media:
			if m.Role == RoleAssistant {
				return fmt.Sprintf("message %d: a model's message cannot contain media", i)
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

// apply inserts the builder's messages before the messages of this run.
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
	s.Built, s.NeedsMessages = true, false
	return nil
}

// Cut says where the newest reply begins, if its provider cut it short and it came in pieces.
type Cut struct {
	// number of messages before the reply, evicted ones included
	From    int64 `json:"from,omitempty"`
	Prompts int   `json:"prompts,omitempty"` // how often the model was asked to continue; 0 = the reply is in one piece
}

// Continues reports whether the model has to continue its reply.
func (c *Correction) Continues() bool {
	return c != nil && c.Lifecycle == LifecycleNudge && c.Kind == ""
}

// markCut records where a reply in pieces begins. It is called before the reply's messages are appended.
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

// Evict applies an eviction without checking its conditions.
func (s *AgentState) Evict(e Evicted) {
	s.Messages = s.Messages.dropFront(int(e.Total - s.EvictedMessages))
	s.EvictedMessages, s.Summary, s.Files = e.Total, e.Summary, e.Files
}

// Correction says why a reply without calls did not end the run. It is committed with the reply, so that a fold does
// not have to judge again.
type Correction struct {
	// Lifecycle of the inference that tells the model; "" = no inference does, because a forced summary is not corrected
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`
	Text      string    `json:"text"`
	Ephemeral bool      `json:"ephemeral,omitempty"` // only the next request contains the text, the conversation does not

	Kind   CorrectionKind `json:"kind,omitempty"`
	Detail string         `json:"detail,omitempty"` // with a kind: the parser's error
}

// IsPending reports whether the model still has to be told about the correction.
func (c *Correction) IsPending() bool { return c != nil && c.Lifecycle != "" }

const stoppedPrefix = "stopped:"

// Stopped returns the reason of a run that was stopped with the code.
func Stopped(code string) Reason { return Reason(stoppedPrefix + code) }

// Halt is the verdict of a stop policy. It is committed with its reply, so that a fold does not have to judge again.
type Halt struct {
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
}

// Whole says where the full text of a partly shown result is. The zero value is not valid.
type Whole struct {
	Call  string `json:"call,omitempty"` // id of the call with that result; "" = the same call
	Blob  string `json:"blob"`           // digest of the full text, resolved under the run's tenant only
	Chars int    `json:"chars"`          // length of the full text in Unicode code points
}
