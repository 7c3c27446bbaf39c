package show

import (
	"encoding/json"
	"slices"

	"github.com/countersign/countersign/internal/people/mask"
)

// depends says what the call's precondition gave when people were asked.
func (s *shower) depends() Text {
	k := s.a.Precondition
	if k == nil {
		return nil
	}
	return slices.Concat(names([]string{k.Tool}), word(" of "), s.json(k.Args, s.v.tool(k.Tool).Schema), word(gives(k.IsError)), s.read(k.Content, k.IsError),
		word(", at "+Stamp(k.At)+"; read again before the call runs")).joined()
}

// changed says what the precondition gave when people were last asked, which is why they are asked again.
func (s *shower) changed() []Fact {
	k := s.a.Precondition
	if k == nil || k.Was == nil {
		return nil
	}
	w := k.Was
	before := slices.Concat(names([]string{k.Tool}), word(" of "), s.json(w.Args, s.v.tool(k.Tool).Schema), word(gives(w.IsError)), s.read(w.Content, w.IsError), word(", at "+Stamp(w.At)))
	return []Fact{
		{Name: "was", Label: "was", Value: before.joined()},
		{Name: "is", Label: "is", Value: slices.Concat(word(gives(k.IsError)[1:]), s.read(k.Content, k.IsError)).joined()},
	}
}

func gives(failed bool) string {
	if failed {
		return " failed: "
	}
	return " says "
}

// read is what a tool gave: JSON with what it masks, or a text.
func (s *shower) read(content string, failed bool) Text {
	if !failed && json.Valid([]byte(content)) {
		return s.json(json.RawMessage(content), nil)
	}
	return s.foreign(content)
}

// json is a value with what its schema and its form say is a secret masked; schema nil = there is none.
func (s *shower) json(raw, schema json.RawMessage) Text {
	text := string(raw)
	if masked := mask.JSON(raw, schema); masked != text && !s.v.Uncovered {
		s.masked, text = true, masked
	}
	return PlainQuotes(s.foreign(text))
}

// edited says that the arguments are not those that the model asked for.
func (s *shower) edited() Text {
	if s.a.Asked == nil {
		return nil
	}
	return slices.Concat(word("the arguments are a person's; the model asked for "), s.json(s.a.Asked, s.v.tool(first(s.a.Tools)).Schema)).joined()
}
