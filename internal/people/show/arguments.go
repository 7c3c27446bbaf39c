package show

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/run"
)

// Arguments are the lines of a JSON value: complete, in stored order, numbers with their own digits (B2). Secrets are masked; the schema
// may be nil. An object's members are lines of their own, and so are those of any other value the value itself.
func Arguments(raw, schema json.RawMessage) (lines []Argument, masked bool) {
	var s shower
	return s.arguments(raw, schema), s.masked
}

func (s *shower) arguments(raw, schema json.RawMessage) []Argument {
	if len(raw) == 0 {
		return nil
	}
	v, err := mask.Read(raw, schema)
	if err != nil {
		return []Argument{{Kind: "unreadable", Value: s.value(&mask.Value{Kind: mask.String, Text: string(raw)})}}
	}
	if v.Kind == mask.Object {
		return s.members(nil, v, 0)
	}
	return s.lines(nil, Argument{}, v)
}

// lines adds the line of a value, and those of its members.
func (s *shower) lines(all []Argument, at Argument, v *mask.Value) []Argument {
	at.Kind, at.Value = string(v.Kind), s.value(v)
	return s.members(append(all, at), v, at.Depth+1)
}

func (s *shower) members(all []Argument, of *mask.Value, depth int) []Argument {
	for i, m := range of.Members {
		at := Argument{Depth: depth, Key: word(fmt.Sprintf("[%d]", i))}
		if of.Kind == mask.Object {
			at.Key = s.key(m.Key)
		}
		all = s.lines(all, at, m.Value)
	}
	return all
}

// value is a value's text. One that has members has none of its own.
func (s *shower) value(v *mask.Value) Text {
	switch {
	case v.Secret != "" && !s.v.Uncovered:
		s.masked = true
		return Text{{Text: hiding(v.Length()), Kind: Masked}}
	case v.Kind == mask.String:
		return quoted(v.Text, s.hidden(v.Text, v.Hidden))
	case len(v.Members) > 0:
		return nil
	case v.Kind == mask.Object:
		return word("{}")
	case v.Kind == mask.Array:
		return word("[]")
	}
	return word(string(v.Raw))
}

// key is a member's name; one that is not a plain word stands in quotes.
func (s *shower) key(k string) Text {
	odd := func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	if k == "" || strings.ContainsFunc(k, odd) || len(s.secrets(k)) > 0 {
		return quoted(k, s.secrets(k))
	}
	return word(k)
}

// foreign is a text on one line that is not quoted.
func (s *shower) foreign(text string) Text { return bare(text, s.secrets(text)) }

// secrets are the parts of a text that have the form of a secret.
func (s *shower) secrets(text string) []hidden {
	if s.v.Uncovered {
		return nil
	}
	return s.hidden(text, mask.Secrets(text))
}

// hidden are the parts of a text that are not shown; none where all is uncovered.
func (s *shower) hidden(text string, parts []mask.Range) []hidden {
	if s.v.Uncovered || len(parts) == 0 {
		return nil
	}
	s.masked = true
	all := make([]hidden, 0, len(parts))
	for _, r := range parts {
		all = append(all, hidden{r.From, r.To, hiding(utf8.RuneCountInString(text[r.From:r.To]))})
	}
	return all
}

// hiding is what is shown for a secret: nothing of it, and how long it is, so that nothing long can be put out of sight.
func hiding(characters int) string { return `\{` + mask.Words(characters) + `}` }

// tool is what is shown of one of the tools that a request is about.
func (s *shower) tool(p approval.Permission) Tool {
	spec := s.v.tool(p.Tool)
	t := Tool{Name: bare(p.Tool, nil), Risk: RiskOf(p.Effect, spec.Undo != nil)}
	add := func(name string, value Text) {
		if len(value) > 0 {
			t.Facts = append(t.Facts, Fact{Name: name, Label: labels[name], Value: value})
		}
	}
	add(FactDoes, s.does(spec))
	add(FactEffect, word(effectOf(p.Effect)))
	add(FactTarget, s.target(spec))
	add(FactRisk, word(s.risk(p.Effect, spec)))
	add(FactBinds, word(s.binds()))
	t.Verdict = string(p.Verdict)
	for _, c := range p.Calls {
		t.Calls = append(t.Calls, s.arguments(c.Args, spec.Schema))
		t.Blocked = append(t.Blocked, Blocked{ID: bare(c.Call, nil), Approvers: Deciders(c.Approvers, c.Above), Note: s.foreign(c.RuleNote)})
	}
	return t
}

// binds says what the arguments of a blocked call are to a grant.
func (s *shower) binds() string {
	if s.a.Grants == agent.GrantsStanding && s.a.Scope != agent.ScopeTool {
		return "a grant is of these arguments alone"
	}
	return "a grant is of the tool; the arguments do not bind the model"
}

// question is what a tool asks, complete, in its own words: the action that it names, and its message.
func (s *shower) question(t run.Ticket) (Text, []Part) {
	q := quoted(t.Action, s.secrets(t.Action))
	if t.Message != "" {
		q = slices.Concat(q, word(" "), quoted(t.Message, s.secrets(t.Message))).joined()
	}
	var parts []Part
	for _, p := range []struct {
		label string
		raw   json.RawMessage
	}{{"with", t.Parameters}, {"the answer must fit", t.ResponseSchema}} {
		if p.raw != nil && string(p.raw) != string(s.a.Args) {
			parts = append(parts, Part{Label: p.label, Lines: s.arguments(p.raw, nil)})
		}
	}
	return q, parts
}

// OneLine is a JSON value on one line, for lists and progress: masked, and with nothing that cannot be seen. It is not cut.
func OneLine(raw, schema json.RawMessage) string { return Line(mask.JSON(raw, schema)) }

// Said is text for people that may have several lines, with what has the form of a secret masked and nothing that cannot be seen. It is
// for conversations; what is decided on is shown by Of.
func Said(text string) string {
	var b strings.Builder
	at := 0
	for _, r := range mask.Secrets(text) {
		b.WriteString(Lines(text[at:r.From]) + hiding(utf8.RuneCountInString(text[r.From:r.To])))
		at = r.To
	}
	return b.String() + Lines(text[at:])
}
