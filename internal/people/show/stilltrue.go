package show

import (
	"encoding/json"
	"slices"

	"github.com/countersign/countersign/internal/people/mask"
)

// preconditionText says what the call's precondition gave when people were asked.
func (s *builder) preconditionText() Text {
	k := s.a.Precondition
	if k == nil {
		return nil
	}
	return slices.Concat(namesText([]string{k.Tool}), ownText(" of "), s.jsonText(k.Args, s.view.tool(k.Tool).Schema), ownText(resultVerb(k.IsError)), s.contentText(k.Content, k.IsError),
		ownText(", at "+FormatTime(k.At)+"; read again before the call runs")).merged()
}

// preconditionChange says what the precondition gave when people were last asked, which is why they are asked again.
func (s *builder) preconditionChange() []Fact {
	k := s.a.Precondition
	if k == nil || k.Was == nil {
		return nil
	}
	w := k.Was
	before := slices.Concat(namesText([]string{k.Tool}), ownText(" of "), s.jsonText(w.Args, s.view.tool(k.Tool).Schema), ownText(resultVerb(w.IsError)), s.contentText(w.Content, w.IsError), ownText(", at "+FormatTime(w.At)))
	return []Fact{
		{Name: "was", Label: "was", Value: before.merged()},
		{Name: "is", Label: "is", Value: slices.Concat(ownText(resultVerb(k.IsError)[1:]), s.contentText(k.Content, k.IsError)).merged()},
	}
}

func resultVerb(failed bool) string {
	if failed {
		return " failed: "
	}
	return " says "
}

// contentText is what a tool gave: JSON with what it masks, or a text.
func (s *builder) contentText(content string, failed bool) Text {
	if !failed && json.Valid([]byte(content)) {
		return s.jsonText(json.RawMessage(content), nil)
	}
	return s.foreignText(content)
}

// jsonText is a value with what its schema and its form say is a secret masked; schema nil = there is none.
func (s *builder) jsonText(raw, schema json.RawMessage) Text {
	text := string(raw)
	if masked := mask.JSON(raw, schema); masked != text && !s.view.Unmasked {
		s.masked, text = true, masked
	}
	return PlainQuotes(s.foreignText(text))
}

// editedText says that the arguments are not those that the model asked for.
func (s *builder) editedText() Text {
	if s.a.OriginalArgs == nil {
		return nil
	}
	return slices.Concat(ownText("the arguments are a person's; the model asked for "), s.jsonText(s.a.OriginalArgs, s.view.tool(first(s.a.Tools)).Schema)).merged()
}
