package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/people/mask"
)

// Bounds of a form that is made from a schema. An object with more members is edited as JSON alone.
const (
	maxMembers  = 60
	fieldPrefix = "arg." // of the names of its fields
)

// field is the field of a form for one member of a JSON object.
type field struct {
	Member             string // its key
	Label, Description people.Text
	Kind               string // text, number, choice or json
	Choices            []filterOption
	Value              string // as it is typed
	Required           bool   // something has to be typed
	AnyType            bool   // of json: the schema is not of one type alone

	null   bool            // null is written where nothing is typed
	stored json.RawMessage // nil = the object does not have the member
	shown  string          // what Value was made as
}

// Name is the name of the field in the form.
func (f field) Name() string { return fieldPrefix + f.Member }

// Rows is how many lines of text the field shows.
func (f field) Rows() int { return min(12, 1+strings.Count(f.Value, "\n")+len(f.Value)/90) }

// shownSchema is what a form shows of a schema.
type shownSchema struct {
	Ref         string            `json:"$ref"`
	Type        json.RawMessage   `json:"type"`
	Enum        []json.RawMessage `json:"enum"`
	Const       json.RawMessage   `json:"const"`
	AllOf       []json.RawMessage `json:"allOf"`
	AnyOf       []json.RawMessage `json:"anyOf"`
	OneOf       []json.RawMessage `json:"oneOf"`
	Properties  json.RawMessage   `json:"properties"`
	Required    []string          `json:"required"`
	Title       string            `json:"title"`
	Description string            `json:"description"`

	nullable bool          // the value may be null
	members  []mask.Member // of Properties, in order: the value of each is its schema
}

// maxFollowed is how many references, alternatives and parts of an allOf are read for one schema that is shown.
const maxFollowed = 32

// readSchema reads a part of a schema. It follows a $ref within the whole, adds the parts of an allOf up, takes X for
// what is X or null, and constants for an enum. What it cannot follow, and what may be several things, has no type.
func readSchema(whole, part json.RawMessage) shownSchema {
	left := maxFollowed
	return readPart(whole, part, &left)
}

// readPart is readSchema. left is how much more is read for the schema that is shown.
func readPart(whole, part json.RawMessage, left *int) (s shownSchema) {
	isNull := func(one json.RawMessage) bool {
		var of struct{ Type string }
		return string(one) == `"null"` || json.Unmarshal(one, &of) == nil && of.Type == "null"
	}
	for ; *left > 0; *left-- {
		next := shownSchema{nullable: s.nullable}
		_ = json.Unmarshal(part, &next) // a keyword that does not fit is the validator's business: it is not shown
		next.Title, next.Description = cmp.Or(s.Title, next.Title), cmp.Or(s.Description, next.Description)
		if described, err := mask.Read(next.Properties, nil); err == nil && described.Kind == mask.Object {
			next.members = described.Members
		}
		s = next
		var types []json.RawMessage
		if json.Unmarshal(s.Type, &types) == nil {
			if rest := slices.DeleteFunc(slices.Clone(types), isNull); len(rest) == 1 {
				s.Type, s.nullable = rest[0], s.nullable || len(types) > 1
			}
		}
		if s.Enum == nil && s.Const != nil {
			s.Enum = []json.RawMessage{s.Const}
		}
		if s.Ref == "" {
			for _, one := range s.AllOf {
				*left--
				s.add(readPart(whole, one, left))
			}
		}
		all := slices.Concat(s.AnyOf, s.OneOf)
		rest := slices.DeleteFunc(slices.Clone(all), isNull)
		typed := s.isTyped() // alternatives only narrow it
		if s.Enum == nil {
			s.Enum = constants(rest)
		}
		if s.nullable = s.nullable || !typed && len(rest) < len(all); typed || s.Enum != nil {
			return s
		}
		to, local := strings.CutPrefix(s.Ref, "#")
		switch {
		case local && len(all) == 0:
			var found bool
			var err error
			if part, found, err = jsonx.Lookup(whole, to); !found || err != nil {
				return s
			}
		case len(rest) == 1 && s.Ref == "" && s.AllOf == nil:
			part = rest[0]
		default:
			return s
		}
	}
	return s
}

func (s shownSchema) isTyped() bool { return len(s.Type) > 0 || s.Enum != nil || s.Properties != nil }

// add makes s the schema of what fits both. Of two types, or two enums, there is none that can be shown.
func (s *shownSchema) add(o shownSchema) {
	s.Title, s.Description = cmp.Or(s.Title, o.Title), cmp.Or(s.Description, o.Description)
	s.Required = append(slices.Clip(s.Required), o.Required...)
	switch {
	case !o.isTyped():
		return
	case !s.isTyped():
		s.nullable = o.nullable
	default:
		s.nullable = s.nullable && o.nullable
	}
	switch {
	case len(s.Type) == 0:
		s.Type = o.Type
	case len(o.Type) > 0 && !bytes.Equal(s.Type, o.Type):
		s.Type = json.RawMessage("[]")
	}
	switch {
	case s.Enum == nil:
		s.Enum = o.Enum
	case o.Enum != nil:
		s.Enum, s.Type = nil, json.RawMessage("[]")
	}
	for _, m := range o.members {
		i := slices.IndexFunc(s.members, func(have mask.Member) bool { return have.Key == m.Key })
		if i < 0 {
			s.members = append(slices.Clip(s.members), m)
			continue
		}
		s.members = slices.Clone(s.members)
		s.members[i].Value = &mask.Value{
			Raw: slices.Concat([]byte(`{"allOf":[`), s.members[i].Value.Raw, []byte(","), m.Value.Raw, []byte("]}")),
		}
	}
	if s.Properties == nil {
		s.Properties = o.Properties
	}
}

// constants returns the constants that schemas are. Nil = one of them is none.
func constants(schemas []json.RawMessage) (all []json.RawMessage) {
	for _, one := range schemas {
		var of struct{ Const json.RawMessage }
		if json.Unmarshal(one, &of) != nil || of.Const == nil {
			return nil
		}
		all = append(all, of.Const)
	}
	return all
}

// newFields returns a field for each member of an object: those that it has, in their order, and those that the schema
// describes. Nil = the schema describes no object, or the object is of another form. typed has the fields of a form
// that was sent.
func newFields(schema, object json.RawMessage, typed map[string]string) []field {
	s := readSchema(schema, schema)
	if len(s.members) == 0 || len(s.Type) > 0 && string(s.Type) != `"object"` {
		return nil
	}
	stored := map[string]json.RawMessage{}
	var order []string
	if len(object) > 0 {
		v, err := mask.Read(object, nil)
		if err != nil || v.Kind != mask.Object {
			return nil
		}
		for _, m := range v.Members {
			stored[m.Key] = m.Value.Raw
			order = append(order, m.Key)
		}
	}
	schemas := map[string]json.RawMessage{}
	for _, m := range s.members {
		schemas[m.Key] = m.Value.Raw
		if !slices.Contains(order, m.Key) {
			order = append(order, m.Key)
		}
	}
	if len(order) > maxMembers {
		return nil
	}
	var all []field
	for _, name := range order {
		of := readSchema(schema, schemas[name])
		required := slices.Contains(s.Required, name)
		f := field{Member: name, Label: people.ForeignText(name), Required: required && !of.nullable,
			null: required && of.nullable, stored: stored[name]}
		if of.Title != "" {
			f.Label = append(f.Label, people.Span{Text: " (" + people.ConversationText(of.Title).String() + ")"})
		}
		if of.Description != "" {
			f.Description = people.ConversationText(of.Description)
		}
		f.setKind(of)
		f.Value = f.shown
		if sent, ok := typed[f.Name()]; ok {
			f.Value = sent
		}
		for i := range f.Choices {
			f.Choices[i].On = f.Choices[i].Value == f.Value
		}
		all = append(all, f)
	}
	return all
}

// setKind chooses how a member is edited, and how its stored value is shown there. A value of another type than the
// schema's, such as what stands for a masked number, is edited as JSON.
func (f *field) setKind(of shownSchema) {
	value, choices := f.stored, of.Enum
	if of.nullable { // null is shown as nothing
		isNull := func(raw json.RawMessage) bool { return string(raw) == "null" }
		choices = slices.DeleteFunc(slices.Clone(choices), isNull)
		if isNull(value) {
			value = nil
		}
	}
	var stored string
	isText := json.Unmarshal(value, &stored) == nil && value[0] == '"'
	if string(of.Type) == `"boolean"` && choices == nil {
		choices = []json.RawMessage{json.RawMessage("true"), json.RawMessage("false")}
	}
	f.shown = string(value)
	switch kind := string(of.Type); {
	case len(choices) > 0:
		f.Kind = "choice"
		if !f.Required || value == nil {
			f.Choices = append(f.Choices, filterOption{Label: "(none)"})
		}
		isStored := func(c json.RawMessage) bool { return bytes.Equal(c, value) }
		if value != nil && !slices.ContainsFunc(choices, isStored) {
			choices = append(slices.Clone(choices), value)
		}
		for _, c := range choices {
			label := string(c)
			_ = json.Unmarshal(c, &label) // what is no text is its JSON
			f.Choices = append(f.Choices, filterOption{Value: string(c), Label: label})
		}
	case kind == `"string"` && (value == nil || isText && isTypable(stored)):
		f.Kind, f.shown = "text", stored
	case (kind == `"number"` || kind == `"integer"`) && !isText:
		f.Kind = "number"
	default:
		f.Kind, f.AnyType = "json", jsonx.JSONKind(of.Type) != '"'
	}
}

// isTypable reports whether a browser sends a text back as it was shown. Others are edited as JSON, with escapes.
func isTypable(s string) bool {
	return !slices.ContainsFunc(people.ForeignText(s), func(span people.Span) bool {
		plain := span.Kind == people.SpanPlain || span.Kind == people.SpanCount
		return !plain && !slices.Contains([]string{`\n`, `\"`, `\\`}, span.Text)
	})
}

// readFields returns the object that a form describes. What was not changed is as it was stored.
func readFields(fields []field, form map[string]string) (json.RawMessage, error) {
	out := []byte{'{'}
	for _, f := range fields {
		raw := f.stored
		if typed, sent := form[f.Name()]; sent && typed != f.shown {
			var err error
			if raw, err = f.read(typed); err != nil {
				return nil, &formError{fmt.Sprintf("%s: %v", f.Label, err)}
			}
		}
		if raw == nil && f.null {
			raw = json.RawMessage("null")
		}
		if raw == nil {
			continue
		}
		key, err := jsonx.MarshalVerbatim(f.Member)
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), raw...)
	}
	return append(out, '}'), nil
}

// isFilledIn reports whether a form has other values for its fields than were shown.
func isFilledIn(fields []field, form map[string]string) bool {
	return slices.ContainsFunc(fields, func(f field) bool {
		typed, sent := form[f.Name()]
		return sent && typed != f.shown
	})
}

// read returns the JSON of what was typed; nil = the member is left out.
func (f field) read(typed string) (json.RawMessage, error) {
	if f.Kind != "text" {
		typed = strings.TrimSpace(typed)
	}
	switch {
	case typed == "" && !f.Required:
		return nil, nil
	case f.Kind == "text":
		return jsonx.MarshalVerbatim(typed)
	case f.Kind == "choice":
		if !slices.ContainsFunc(f.Choices, func(c filterOption) bool { return c.Value == typed && typed != "" }) {
			return nil, fmt.Errorf("want one of the choices")
		}
	case f.Kind == "number":
		var n json.Number
		if json.Unmarshal([]byte(typed), &n) != nil || typed[0] == '"' || typed == "null" {
			return nil, fmt.Errorf("want a number, such as 12 or 0.5")
		}
	case !json.Valid([]byte(typed)):
		return nil, fmt.Errorf("want JSON, such as \"text\", [1, 2] or {\"a\": 1}")
	}
	return json.RawMessage(typed), nil
}

// change is a member that an edit changes. Nil = the member is not there.
type change struct{ Label, Was, Is people.Text }

// findChanges returns what differs between two JSON values, member by member.
func findChanges(was, is json.RawMessage) ([]change, error) {
	before, err := mask.Read(was, nil)
	if err != nil {
		return nil, err
	}
	after, err := mask.Read(is, nil)
	if err != nil {
		return nil, err
	}
	words := func(v *mask.Value) people.Text {
		switch {
		case v == nil:
			return nil
		case v.Kind == mask.String: // "1" is not 1
			quote := people.Text{{Text: `"`}}
			return slices.Concat(quote, people.ForeignText(v.Text), quote)
		}
		raw, err := jsonx.CompactJSON(v.Raw, jsonx.JSONLimits{}) // what was shown to be edited is indented
		if err != nil {
			raw = v.Raw
		}
		return people.PlainQuotes(people.ForeignText(string(raw)))
	}
	equal := func(a, b *mask.Value) bool {
		if a == nil || b == nil {
			return a == b
		}
		x, errX := jsonx.CompactJSON(a.Raw, jsonx.JSONLimits{})
		y, errY := jsonx.CompactJSON(b.Raw, jsonx.JSONLimits{})
		return errX == nil && errY == nil && bytes.Equal(x, y)
	}
	if before.Kind != mask.Object || after.Kind != mask.Object {
		if equal(before, after) {
			return nil, nil
		}
		return []change{{people.Text{{Text: "arguments"}}, words(before), words(after)}}, nil
	}
	var order []string
	members := [2]map[string]*mask.Value{{}, {}}
	for i, v := range []*mask.Value{before, after} {
		for _, m := range v.Members {
			members[i][m.Key] = m.Value
			if !slices.Contains(order, m.Key) {
				order = append(order, m.Key)
			}
		}
	}
	var all []change
	for _, key := range order {
		if a, b := members[0][key], members[1][key]; !equal(a, b) {
			all = append(all, change{people.ForeignText(key), words(a), words(b)})
		}
	}
	return all, nil
}
