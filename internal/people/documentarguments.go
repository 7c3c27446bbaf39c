package people

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people/mask"
)

// ReadArguments returns the lines of a JSON value: complete, in stored order, numbers with their own digits (B2).
// Secrets are masked; the schema may be nil. Each member of an object is a line, and so is any other value.
func ReadArguments(raw, schema json.RawMessage) (lines []Row, masked bool) {
	var s documentBuilder
	return s.arguments(raw, schema), s.masked
}

func (s *documentBuilder) argumentsSection(title string, raw, schema json.RawMessage) Section {
	lines := s.arguments(raw, schema)
	if len(lines) == 0 {
		lines = aloneRow(ownText("(none)"))
	}
	return Section{Name: SectionArguments, Title: title, Rows: lines}
}

func (s *documentBuilder) arguments(raw, schema json.RawMessage) []Row {
	if len(raw) == 0 {
		return nil
	}
	v, err := mask.Read(raw, schema)
	if err != nil {
		return []Row{{Value: s.valueText(&mask.Value{Kind: mask.String, Text: string(raw)})}}
	}
	if v.Kind == mask.Object {
		return s.members(nil, v, 0)
	}
	return s.members([]Row{{Value: s.valueText(v)}}, v, 1)
}

// members adds the lines of the members of a value, each followed by those of its own members.
func (s *documentBuilder) members(all []Row, of *mask.Value, depth int) []Row {
	for i, m := range of.Members {
		row := Row{Depth: depth, Label: ownText(fmt.Sprintf("[%d]", i)), Value: s.valueText(m.Value)}
		if of.Kind == mask.Object {
			row.Label = s.keyText(m.Key)
		}
		all = s.members(append(all, row), m.Value, depth+1)
	}
	return all
}

// valueText is a value's text. A value with members has none of its own.
func (s *documentBuilder) valueText(v *mask.Value) Text {
	switch {
	case v.Secret != "" && !s.view.Unmasked:
		s.masked = true
		return Text{{Text: maskText(v.Length()), Kind: SpanMasked}}
	case v.Kind == mask.String:
		return quotedText(v.Text, s.maskedRanges(v.Text, v.Hidden))
	case len(v.Members) > 0:
		return nil
	case v.Kind == mask.Object:
		return ownText("{}")
	case v.Kind == mask.Array:
		return ownText("[]")
	}
	return ownText(string(v.Raw))
}

// keyText is a member's name, in quotes if it is not a plain word.
func (s *documentBuilder) keyText(k string) Text {
	odd := func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	if k == "" || strings.ContainsFunc(k, odd) || len(s.findSecrets(k)) > 0 {
		return quotedText(k, s.findSecrets(k))
	}
	return ownText(k)
}

// foreignText is a text on one line, not quoted.
func (s *documentBuilder) foreignText(text string) Text {
	return escapeText(text, s.findSecrets(text), alone)
}

// findSecrets finds the parts of a text that have the form of a secret.
func (s *documentBuilder) findSecrets(text string) []hidden {
	if s.view.Unmasked {
		return nil
	}
	return s.maskedRanges(text, mask.Secrets(text))
}

// maskedRanges returns the parts of a text to mask; none if the view is unmasked.
func (s *documentBuilder) maskedRanges(text string, parts []mask.Range) []hidden {
	if s.view.Unmasked || len(parts) == 0 {
		return nil
	}
	s.masked = true
	all := make([]hidden, 0, len(parts))
	for _, r := range parts {
		all = append(all, hidden{r.From, r.To, maskText(utf8.RuneCountInString(text[r.From:r.To]))})
	}
	return all
}

// maskText replaces a secret. It shows only the secret's length, so that long text cannot be hidden.
func maskText(characters int) string { return `\{` + mask.Words(characters) + `}` }

// addTool adds one of the tools of a request about tools: the arguments of every call that asks, and its facts.
func (s *documentBuilder) addTool(d *Document, p approval.Permission) {
	t := s.view.tool(p.Tool)
	risk := RiskOf(p.Effect, t.Undo != nil)
	if slices.Index(risks, risk) >= slices.Index(risks, d.Risk) { // -1: none yet
		d.Risk, d.RiskText = risk, riskText(p.Effect, t)
	}
	name := BareText(p.Tool).String()
	var all facts
	for _, c := range p.Calls {
		call := BareText(c.Call)
		d.add(s.argumentsSection("Arguments of "+name+", call "+call.String()+", complete", c.Args, t.Schema))
		all.add("approvers", textf("call %1: %2", call, ApproversText(c.Approvers, c.Above)))
		all.add("why", s.foreignText(c.RuleNote))
	}
	all.add("does", s.descriptionText(t))
	all.add("target", s.targetText(t))
	all.add("risk", textf(string(risk)+": %1", riskText(p.Effect, t)))
	binds := "a grant is of the tool; the arguments do not bind the model"
	if s.a.Grants == agent.GrantsStanding && s.a.Scope != agent.ScopeTool {
		binds = "a grant is of these arguments alone"
	}
	all.add("binds", ownText(binds))
	title := "Tool " + name
	if p.Verdict != "" {
		title += ": " + string(p.Verdict)
	}
	d.add(Section{Name: SectionTool, Title: title, Rows: all})
}

// questionRows are what a tool asks, complete and in its own words: the action that it names, its message, and the
// parameters of its question.
func (s *documentBuilder) questionRows() []Row {
	t := s.a.Ticket
	if t == nil {
		return nil
	}
	q := quotedText(t.Action, s.findSecrets(t.Action))
	if t.Message != "" {
		q = textf("%1 %2", q, quotedText(t.Message, s.findSecrets(t.Message)))
	}
	lines := []Row{{Value: q}}
	schema := s.view.tool(firstOf(s.a.Tools)).Schema // parameters are of the arguments, mostly
	for _, p := range []struct {
		label       string
		raw, schema json.RawMessage
	}{{"with", t.Parameters, schema}, {"the answer must fit", t.ResponseSchema, nil}} {
		if p.raw != nil && string(p.raw) != string(s.a.Args) {
			lines = append(lines, Row{Label: ownText(p.label)})
			for _, l := range s.arguments(p.raw, p.schema) {
				l.Depth++
				lines = append(lines, l)
			}
		}
	}
	return lines
}

// MaskedJSON is a JSON value on one line, for lists and progress: masked, without invisible characters, not cut.
func MaskedJSON(raw json.RawMessage) string { return EscapeLine(mask.JSON(raw, nil)) }

// MaskedLines is text of several lines with secrets masked and without invisible characters. It is for conversations;
// BuildRequest shows what people decide on.
func MaskedLines(text string) string {
	var b strings.Builder
	at := 0
	for _, r := range mask.Secrets(text) {
		b.WriteString(EscapeLines(text[at:r.From]) + maskText(utf8.RuneCountInString(text[r.From:r.To])))
		at = r.To
	}
	return b.String() + EscapeLines(text[at:])
}

// maxSentence is how long a sentence is at most, in characters as they are shown.
const maxSentence = 240

// RequestSentence says in one line what would happen: as Document.Sentence.
func RequestSentence(a approval.Approval, v DocumentView) string {
	s := documentBuilder{a: a, view: v}
	return s.sentence().String()
}

// sentence says in one line what would happen: the sentence of the tool, else the call. Of several calls it names those
// that fit. It stands above the complete arguments and never replaces them.
func (s *documentBuilder) sentence() Text {
	if s.a.Kind != approval.KindTools {
		return s.callSentence(firstOf(s.a.Tools), s.a.Described, s.a.Args)
	}
	var calls []Text
	for _, p := range s.a.Permissions {
		for _, c := range p.Calls {
			calls = append(calls, s.callSentence(p.Tool, c.Described, c.Args))
		}
	}
	return fitTexts(calls, "; ", maxSentence)
}

// callSentence is the sentence that the tool gave, cut at its limit, or the call with those of its arguments that fit
// whole: pay(to: "ben", amount: 40).
func (s *documentBuilder) callSentence(tool, described string, args json.RawMessage) Text {
	if described != "" {
		return PlainQuotes(s.foreignText(described)).cut(maxSentence)
	}
	name := namesText([]string{tool})
	v, err := mask.Read(args, s.view.tool(tool).Schema)
	if err != nil || len(v.Members) == 0 {
		return textf("%1()", name)
	}
	room := maxSentence - utf8.RuneCountInString(tool) - len("()")
	return textf("%1(%2)", name, fitTexts(s.memberTexts(v), ", ", room))
}

// memberTexts are the members of an object or array, each on one line.
func (s *documentBuilder) memberTexts(v *mask.Value) (all []Text) {
	for _, m := range v.Members {
		t := s.valueText(m.Value)
		if len(m.Value.Members) > 0 {
			brackets := "{}"
			if m.Value.Kind == mask.Array {
				brackets = "[]"
			}
			t = slices.Concat(ownText(brackets[:1]), joinTexts(s.memberTexts(m.Value)), ownText(brackets[1:]))
		}
		if v.Kind == mask.Object {
			t = textf("%1: %2", s.keyText(m.Key), t)
		}
		all = append(all, t)
	}
	return all
}

// fitTexts joins those texts that fit whole, and counts the others.
func fitTexts(of []Text, separator string, limit int) Text {
	var fit []Text
	left := 0
	limit -= len(separator) + len("1000000 more")
	for _, t := range of {
		n := utf8.RuneCountInString(t.String()) + len(separator)
		if n > limit {
			left++
			continue
		}
		fit, limit = append(fit, t), limit-n
	}
	if left > 0 {
		fit = append(fit, ownText(fmt.Sprintf("%d more", left)))
	}
	var all Text
	for i, t := range fit {
		if i > 0 {
			all = append(all, Span{Text: separator})
		}
		all = append(all, t...)
	}
	return all.merged()
}

// cut returns the beginning of a text. A replacement is left out whole.
func (t Text) cut(limit int) (begin Text) {
	for _, s := range t {
		r := []rune(s.Text)
		if len(r) <= limit {
			begin, limit = append(begin, s), limit-len(r)
			continue
		}
		if s.Kind == SpanPlain {
			begin = append(begin, Span{Text: string(r[:limit])})
		}
		return append(begin, Span{Text: "…"}).merged()
	}
	return begin
}

// EditableArguments returns a call's arguments for a person to edit: compact JSON with escapes for what is not Visible,
// and a placeholder for every value that has a secret in it. The placeholder replaces a whole text, even if only a part
// of it is secret, and a whole object if one of its keys has the form of a secret. RestoreArguments reads the edited
// JSON. The error says that the arguments are not JSON.
func EditableArguments(args, schema json.RawMessage) (json.RawMessage, error) {
	v, err := mask.Read(args, schema)
	if err != nil {
		return nil, err
	}
	return EscapeJSON(replaceValues(v, findMasked(v).placeholders)), nil
}

// EditError says why edited arguments are rejected. It quotes nothing of what is stored.
type EditError struct {
	Pointer string // RFC 6901, into what was edited
	Problem string
}

func (e *EditError) Error() string {
	return fmt.Sprintf("edited arguments at %q: %s", e.Pointer, e.Problem)
}

// RestoreArguments puts the stored values back in place of the placeholders of EditableArguments. A placeholder must
// stay where EditableArguments put it; placeholders are numbered, so that values cannot swap places. A placeholder
// anywhere else, even as a part of a text or a key, is rejected, unless that very text is stored there. The errors are
// those of agent.CompactJSON for the edited JSON, and *EditError. The result is compact.
func RestoreArguments(edited, args, schema json.RawMessage) (json.RawMessage, error) {
	edited, err := jsonx.CompactJSON(edited, jsonx.JSONLimits{})
	if err != nil {
		return nil, err
	}
	stored, err := mask.Read(args, schema)
	if err != nil {
		return nil, err
	}
	v, err := mask.Read(edited, nil)
	if err != nil {
		return nil, err
	}
	back := map[*mask.Value]json.RawMessage{}
	if err := findMasked(stored).restore(v, new([]byte), back); err != nil {
		return nil, err
	}
	return jsonx.CompactJSON(replaceValues(v, back), jsonx.JSONLimits{})
}

// What placeholders begin and end with. Between them is a number.
const (
	placeholderBegins = "[masked "
	placeholderEnds   = ": kept as it is]"
)

// maskedValues holds the masked values of stored arguments, by value and by JSON pointer.
type maskedValues struct {
	placeholders map[*mask.Value]json.RawMessage // JSON strings
	masked       map[string]*mask.Value
	texts        map[string]string // the stored texts that are not held back and look like placeholders
	keys         map[string]bool   // the members whose keys do
}

func findMasked(v *mask.Value) maskedValues {
	h := maskedValues{
		map[*mask.Value]json.RawMessage{}, map[string]*mask.Value{}, map[string]string{}, map[string]bool{},
	}
	h.collect(v, new([]byte))
	return h
}

// collect finds the masked values in v, whose JSON pointer at is. A value is masked as a whole.
func (h maskedValues) collect(v *mask.Value, at *[]byte) {
	secretKey := func(m mask.Member) bool { return len(mask.Secrets(m.Key)) > 0 }
	if v.Secret != "" || len(v.Hidden) > 0 || slices.ContainsFunc(v.Members, secretKey) {
		placeholder := fmt.Sprintf(`"%s%d%s"`, placeholderBegins, len(h.masked)+1, placeholderEnds)
		h.placeholders[v], h.masked[string(*at)] = json.RawMessage(placeholder), v
		return
	}
	if v.Kind == mask.String && strings.Contains(v.Text, placeholderBegins) {
		h.texts[string(*at)] = v.Text
	}
	above := len(*at)
	for i, m := range v.Members {
		*at = appendPointer((*at)[:above], v.Kind, i, m.Key)
		if strings.Contains(m.Key, placeholderBegins) {
			h.keys[string(*at)] = true
		}
		h.collect(m.Value, at)
	}
}

// appendPointer adds a member to a JSON pointer. One buffer serves all members, since a pointer may have long keys.
func appendPointer(at []byte, of mask.Kind, i int, key string) []byte {
	if of == mask.Array {
		return strconv.AppendInt(append(at, '/'), int64(i), 10)
	}
	return append(at, jsonx.FormatPointer([]string{key})...)
}

// restore collects the stored values for the placeholders in v.
func (h maskedValues) restore(v *mask.Value, at *[]byte, back map[*mask.Value]json.RawMessage) error {
	if v.Kind == mask.String && strings.Contains(v.Text, placeholderBegins) {
		switch stored, held := h.masked[string(*at)]; {
		case held && string(h.placeholders[stored]) == string(v.Raw):
			back[v] = stored.Raw
			return nil
		case h.texts[string(*at)] == v.Text: // it was there before
			return nil
		}
		return &EditError{Pointer: string(*at), Problem: "a masked value may stay where it was, or be replaced as a whole; " +
			"it cannot be moved, copied or made a part of something"}
	}
	above := len(*at)
	for i, m := range v.Members {
		*at = appendPointer((*at)[:above], v.Kind, i, m.Key)
		if strings.Contains(m.Key, placeholderBegins) && !h.keys[string(*at)] {
			return &EditError{Pointer: string((*at)[:above]), Problem: "a masked value cannot be a key"}
		}
		if err := h.restore(m.Value, at, back); err != nil {
			return err
		}
	}
	return nil
}

func replaceValues(v *mask.Value, by map[*mask.Value]json.RawMessage) json.RawMessage {
	return v.Rewrite(func(v *mask.Value) []byte { return by[v] }, func(string) []byte { return nil })
}
