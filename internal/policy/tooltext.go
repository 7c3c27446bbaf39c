package policy

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// The tags of tool calls as text, for models without tool calls of their own (agent.DialectXML, seed 004). They
// are case-sensitive.
const (
	tagTool        = "<tool>"
	tagToolEnd     = "</tool>"
	tagThinking    = "<thinking>"
	tagThinkingEnd = "</thinking>"
)

// ToolText is a split text in DialectXML: its plain text, its thinking, and the body of its first pair of tool tags.
// Everything within thinking tags is thinking, including tool tags.
type ToolText struct {
	// the text without thinking and without pairs of tool tags, trimmed; a first tag without an end takes everything that
	// follows
	Text     string
	Thoughts []Thought // in order
	Body     string    // between the first pair of tool tags, trimmed
	Called   bool      // there is a tool tag
	Closed   bool      // the first tool tag has an end tag

	kept []keptText
	trim int // bytes cut from the front of Text
}

// Thought is a thinking block: its trimmed text, and its place as a number of bytes of ToolText.Text.
type Thought struct {
	Text  string
	After int

	at int // offset in the whole text
}

// keptText is a piece of the whole text that is part of Text.
type keptText struct{ at, to, n int }

// ReadToolText splits a whole text. A ToolStream returns the same for the text's pieces, wherever they are cut.
func ReadToolText(text string) ToolText {
	var s ToolStream
	s.Write(text)
	_, t := s.Close()
	return t
}

// offsetOf returns how many bytes of Text come before byte n of the whole text.
func (t ToolText) offsetOf(n int) int {
	before := 0
	for _, k := range t.kept {
		if n > k.at {
			before = k.to + min(n-k.at, k.n)
		}
	}
	return min(max(0, before-t.trim), len(t.Text))
}

// ToolStream splits a text in DialectXML while it arrives, in pieces that may end within a tag. It drops calls after
// the first one. The name of the called tool is returned as soon as it is known, and may be missing; only the whole
// text decides about the call. The zero ToolStream is at the beginning of a text. Not safe for concurrent use.
type ToolStream struct {
	tail   string // text that may be the beginning of a tag
	at     int    // offset of tail in the whole text
	within string // the awaited end tag; "" = outside of every pair
	begun  int    // offset where the block of within began
	calls  int    // number of tool tags so far
	closed bool   // the first tool tag has its end tag
	name   string // name of the called tool; "" = not known yet

	text, block, body strings.Builder
	kept              []keptText
	thoughts          []Thought
	out               []agent.Delta
}

// Write adds the next piece and returns what is certain by now.
func (s *ToolStream) Write(piece string) []agent.Delta {
	s.tail, s.out = s.tail+piece, nil
	for {
		tags := []string{tagTool, tagThinking}
		if s.within != "" {
			tags = []string{s.within}
		}
		at, tag := firstTag(s.tail, tags)
		if tag == "" {
			s.emit(wholeRunes(s.tail[:at]))
			return s.out
		}
		s.emit(at)
		s.drop(len(tag))
		switch tag {
		case tagTool:
			s.within = tagToolEnd
			if s.calls++; s.calls == 1 {
				s.out = append(s.out, agent.Delta{Kind: agent.DeltaCall})
			}
		case tagThinking:
			s.within, s.begun = tagThinkingEnd, s.at
		default:
			s.endBlock(true)
		}
	}
}

// Close ends the text. A block without an end tag extends to the end.
func (s *ToolStream) Close() ([]agent.Delta, ToolText) {
	s.out = nil
	s.emit(len(s.tail))
	s.endBlock(false)
	t := ToolText{Body: strings.TrimSpace(s.body.String()), Called: s.calls > 0, Closed: s.closed, kept: s.kept,
		Thoughts: s.thoughts}
	whole := s.text.String()
	t.Text = strings.TrimSpace(whole)
	t.trim = len(whole) - len(strings.TrimLeftFunc(whole, unicode.IsSpace))
	for i := range t.Thoughts {
		t.Thoughts[i].After = t.offsetOf(t.Thoughts[i].at)
	}
	return s.out, t
}

// firstTag returns where the first complete tag begins, and the tag. If there is none, it returns "" and the length of
// the text that cannot begin a tag.
func firstTag(text string, tags []string) (at int, tag string) {
	for from := 0; ; {
		i := strings.IndexByte(text[from:], '<')
		if i < 0 {
			return len(text), ""
		}
		from += i
		for _, t := range tags {
			switch rest := text[from:]; {
			case strings.HasPrefix(rest, t):
				return from, t
			case strings.HasPrefix(t, rest):
				return from, ""
			}
		}
		from++
	}
}

// wholeRunes returns the length of a piece without an incomplete character at its end.
func wholeRunes(piece string) int {
	for i := len(piece) - 1; i >= 0 && i > len(piece)-utf8.UTFMax; i-- {
		if utf8.RuneStart(piece[i]) {
			if !utf8.FullRuneInString(piece[i:]) {
				return i
			}
			break
		}
	}
	return len(piece)
}

func (s *ToolStream) drop(n int) { s.tail, s.at = s.tail[n:], s.at+n }

// emit processes n bytes that are not a tag.
func (s *ToolStream) emit(n int) {
	if n == 0 {
		return
	}
	piece := s.tail[:n]
	switch s.within {
	case "":
		s.kept = append(s.kept, keptText{s.at, s.text.Len(), n})
		s.text.WriteString(piece)
		s.out = append(s.out, agent.Delta{Kind: agent.DeltaText, Text: piece})
	case tagThinkingEnd:
		s.block.WriteString(piece)
		s.out = append(s.out, agent.Delta{Kind: agent.DeltaReasoning, Text: piece})
	default:
		if s.calls > 1 {
			break
		}
		if s.name == "" && s.body.Len() < earlyName {
			body := s.body.String() + piece
			if m := namedAs.FindStringSubmatch(body[:min(len(body), earlyName)]); m != nil {
				s.name = m[1] + m[2]
				s.out = append(s.out, agent.Delta{Kind: agent.DeltaCall, Name: s.name})
			}
		}
		s.body.WriteString(piece)
		s.out = append(s.out, agent.Delta{Kind: agent.DeltaCall, Name: s.name, Text: piece})
	}
	s.drop(n)
}

// endBlock ends the current block, by its end tag or at the end of the text.
func (s *ToolStream) endBlock(closed bool) {
	if text := strings.TrimSpace(s.block.String()); text != "" {
		s.thoughts = append(s.thoughts, Thought{Text: text, at: s.begun})
	}
	s.block.Reset()
	if s.within == tagToolEnd && s.calls == 1 {
		s.closed = closed
	}
	s.within = ""
}

// earlyName is the length of the beginning of a body that is searched for a tool's name, in bytes.
const earlyName = 4096

// namedAs finds a tool's name in an incomplete body.
var namedAs = regexp.MustCompile(`"tool_name"\s*:\s*"([^"\\]+)"|<tool_name>\s*([^<&]+?)\s*</tool_name>`)

// WithCallsAsText returns the request for a model that writes its calls as text (DialectXML). Calls are in the model's
// text as it wrote them, results are the user's texts, and prompt sections list the tools. With tools, JSON is
// requested in the system text and not from the provider, because the model has to be free to call a tool. Notices are
// part of the texts, so an adapter adds none. r is not changed.
func WithCallsAsText(r agent.Request) agent.Request {
	out := r
	if len(r.Tools) > 0 && r.Output.JSON {
		out = r.WithJSONAsked()
	}
	output := out.Output
	out.Output = agent.OutputFormat{} // the adapter adds this notice
	out = out.WithNotices()
	out.Late, out.Exhausted, out.Output = nil, false, output
	tools := map[string]agent.ToolSpec{} // by model-facing name
	for _, spec := range r.Tools {
		tools[spec.ModelName()] = spec
	}
	names := map[string]string{} // names of calls, by id
	var turns []run.Message
	open := false // the last message is text of the model's present turn
	// Texts of one turn of the model are joined, except around the provider's own reasoning, which keeps its place.
	addText := func(m run.Message, text, between string) {
		last := len(turns) - 1
		if !open || !m.Source.SameEvent(turns[last].Source) {
			m.Block = run.Text{Text: text}
			turns, open = append(turns, m), true
			return
		}
		previous, _ := turns[last].Block.(run.Text) // open implies that it is a text
		turns[last].Block = run.Text{Text: previous.Text + between + text}
	}
	for _, m := range out.Messages {
		switch b := m.Block.(type) {
		case run.Text:
			if m.Role == run.RoleAssistant {
				addText(m, b.Text, "")
				continue
			}
		case run.ToolUse:
			spec, known := tools[b.Name]
			if !known {
				spec = agent.ToolSpec{Name: b.Name}
			}
			names[b.ID] = b.Name
			addText(m, textOfCall(spec, b.Input), "\n")
			continue
		case run.Reasoning:
			if b.Provider == TextReasoning {
				continue
			}
		case run.ToolResult:
			m.Block = run.Text{Text: "Tool '" + names[b.ID] + "' result: " + b.Content} // seed 004
		}
		turns, open = append(turns, m), false
	}
	out.Messages, out.Tools = turns, nil
	return out
}

// SplitReply splits a reply without calls into text and thinking if the model has to use tags: in DialectXML and under
// TextRequireTool. Otherwise the whole reply is text.
func SplitReply(d *agent.Definition, text string) ToolText {
	if !d.WritesCalls() && d.Text != agent.TextRequireTool {
		return ToolText{Text: text}
	}
	return ReadToolText(text)
}

// Spoken returns the text of a final reply, without the thinking of a model that writes its calls as text.
func Spoken(d *agent.Definition, text string) string {
	if !d.WritesCalls() || !strings.Contains(text, tagThinking) {
		return text
	}
	return ReadToolText(text).Text
}
