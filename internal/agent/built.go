package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Bounds of what a context builder gives, so that the entry that holds it also holds the first reply.
const (
	maxBuiltMessages = 200
	maxBuiltBytes    = 160 << 10
)

// NeedsBuilder reports whether a context builder owes the run s its first messages.
func NeedsBuilder(d *Definition, s *AgentState) bool {
	return d.Builder != "" && !s.Built && s.Inferences == 0
}

// Built is the fact of what a context builder gave: text and media of users, text of the model. Text is made valid, and a role that is
// not said is the user's. Where nothing was given and nothing else says what the run began with, it is the default message (seed 000).
// The error is fit to be shown.
func Built(s *AgentState, given []BuiltMessage) (ContextBuilt, error) {
	if len(given) == 0 && s.Unsaid {
		said, err := StartMessages(nil, s.Input)
		if err != nil {
			return ContextBuilt{}, err
		}
		return ContextBuilt{Messages: []BuiltMessage{{Role: RoleUser, Content: said[0]}}}, nil
	}
	e := ContextBuilt{Messages: slices.Clone(given)}
	for i := range e.Messages {
		m := &e.Messages[i]
		m.Role = cmp.Or(m.Role, RoleUser)
		if t, ok := m.Content.Block.(Text); ok {
			m.Content.Block = Text{Text: validText(t.Text)}
		}
		if md, ok := m.Content.Block.(Media); ok {
			if err := md.Check(); err != nil {
				return ContextBuilt{}, fmt.Errorf("message %d: %w", i, err)
			}
		}
	}
	if problem := e.problem(); problem != "" {
		return ContextBuilt{}, errors.New(problem)
	}
	if body, err := MarshalEvent(e); err != nil || len(body) > maxBuiltBytes {
		return ContextBuilt{}, fmt.Errorf("the messages take more than %d bytes: large media belong into blobs", maxBuiltBytes)
	}
	return e, nil
}

// problem says what is wrong with the fact, "" when nothing is.
func (e ContextBuilt) problem() string {
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

// contextBuilt puts the builder's messages before what was said to this run, whose words they introduce.
func (s *AgentState) contextBuilt(e ContextBuilt) error {
	if s.Built {
		return nil
	}
	if err := s.awake("context_built"); err != nil {
		return err
	}
	if s.Inferences > 0 {
		return &ApplyError{Event: "context_built", Problem: "the run has made an inference"}
	}
	if problem := e.problem(); problem != "" {
		return &ApplyError{Event: "context_built", Problem: problem}
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
		s.say(m.Role, m.Content.Block, m.Seen, s.source(i))
	}
	for _, m := range before[own:] {
		s.Messages = s.Messages.Append(m)
	}
	s.Built, s.Unsaid = true, false
	return nil
}

// ModelFacing is the tool as a model is told of it: its schema has no correlation field, which is written in when a service is called
// (seed 000). t stays as it is, and is what is pinned.
func (t ToolSpec) ModelFacing() ToolSpec {
	if !bytes.Contains(t.Schema, []byte("parentSubject")) && !bytes.Contains(t.Schema, []byte(`\u`)) {
		return t
	}
	schema, err := withoutParentIn(t.Schema)
	if err != nil { // a schema that is no JSON is refused with its definition
		return t
	}
	t.Schema = schema
	return t
}

// withoutParentIn is a schema of an object without the correlation field, in the order and with the digits of the original.
func withoutParentIn(schema json.RawMessage) (json.RawMessage, error) {
	return editMembers(schema, func(key string, value json.RawMessage) (json.RawMessage, error) {
		switch {
		case key == "properties" && jsonKind(value) == '{':
			return withoutParent(value)
		case key == "required" && jsonKind(value) == '[':
			return withoutParentName(value)
		default:
			return value, nil
		}
	})
}

// withoutParentName is a list of names without the correlation field's, nil where none is left of a list that had it.
func withoutParentName(list json.RawMessage) (json.RawMessage, error) {
	var names []json.RawMessage
	if err := json.Unmarshal(list, &names); err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(slices.Clone(names), func(raw json.RawMessage) bool {
		var name string
		return json.Unmarshal(raw, &name) == nil && name == parentSubject
	})
	switch {
	case len(left) == len(names):
		return list, nil
	case len(left) == 0:
		return nil, nil
	default:
		return MarshalVerbatim(left)
	}
}

// ValidArguments checks arguments as valid does, without the correlation field in schema or arguments: the model is not asked for it.
func ValidArguments(valid Validator, t ToolSpec, args json.RawMessage) error {
	facing := t.ModelFacing()
	if bytes.Equal(facing.Schema, t.Schema) {
		return valid(t, args)
	}
	if own, err := withoutParent(args); err == nil {
		args = own
	}
	return valid(facing, args)
}

// textDropped tells the model which of its calls were left out of a round.
func textDropped(d *Definition, calls []ReplyCall) string {
	names := make([]string, len(calls))
	for i, c := range calls {
		names[i] = quotedName(c.Name)
	}
	return d.word(wordDropped, map[string]any{"Tools": strings.Join(names, ", ")})
}
