package show

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/mask"
)

// maxSentence is how long a sentence is at most, in characters as they are shown.
const maxSentence = 240

// Sentence says in one line what would happen: as Document.Sentence.
func Sentence(a approval.Approval, v View) string {
	s := builder{a: a, view: v}
	return s.sentence().String()
}

// sentence says in one line what would happen: the sentence of the tool, else the call. Of several calls it names those
// that fit. It stands above the complete arguments and never replaces them.
func (s *builder) sentence() Text {
	if s.a.Kind != approval.KindTools {
		return s.callSentence(first(s.a.Tools), s.a.Described, s.a.Args)
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
func (s *builder) callSentence(tool, described string, args json.RawMessage) Text {
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
func (s *builder) memberTexts(v *mask.Value) (all []Text) {
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
		if s.Kind == Plain {
			begin = append(begin, Span{Text: string(r[:limit])})
		}
		return append(begin, Span{Text: "…"}).merged()
	}
	return begin
}
