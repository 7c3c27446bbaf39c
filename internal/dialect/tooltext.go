// Package dialect reads and writes tool calls as text, for models without tool calls of their own.
package dialect

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// The tags of DialectXML (seed 004). They are compared as they are, to the letter.
const (
	tagTool        = "<tool>"
	tagToolEnd     = "</tool>"
	tagThinking    = "<thinking>"
	tagThinkingEnd = "</thinking>"
)

// ToolText is a text in DialectXML, taken apart: what it says, what its model thought, and what stands between its
// first pair of tool tags. Whatever stands in thinking is thinking, a tag of a tool's too.
type ToolText struct {
	// all of it without thinking and without any pair of tool tags, trimmed; the first tag without an end takes everything
	// behind it
	Text     string
	Thoughts []Thought // in order
	Body     string    // between the first pair of tool tags, trimmed
	Called   bool      // there is a first tag
	Closed   bool      // and its end

	kept []keptText
	trim int // bytes cut from the front of Text
}

// Thought is a thinking block: its text, trimmed, and how many bytes of ToolText.Text stand before it.
type Thought struct {
	Text  string
	After int

	at int // its first byte in the whole text
}

// keptText is a piece of the whole text that is part of Text.
type keptText struct{ at, to, n int }

// ReadToolText takes a whole text apart. It is what a ToolStream of its pieces ends with, wherever it is cut.
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

// ToolStream takes a text in DialectXML apart while it comes, in pieces that may end within a tag. Calls behind the
// first one are left out. The name of its tool comes as soon as it can be told, before the call is complete, and may be
// missing; what the call comes to is for the whole text to say. The zero ToolStream is at the beginning of a text. It
// is not safe for concurrent use.
type ToolStream struct {
	tail   string // what may be the beginning of a tag
	at     int    // of the whole text, where tail begins
	within string // the end tag that is looked for; "" = outside of every pair
	begun  int    // where the block of within began
	calls  int    // first tags so far
	closed bool   // the first of them has its end
	name   string // of the called tool; "" = not told yet

	text, block, body strings.Builder
	kept              []keptText
	thoughts          []Thought
	out               []agent.Delta
}

// Write takes the next piece and says what is certain by now.
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

// Close ends the text: a block without its end goes to the end of it.
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

// firstTag is where the first of the tags begins; where none is whole, "" and how much of text can begin none.
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

// wholeRunes is how much of a piece does not end within a character.
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

// emit takes n bytes that are no tag.
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

// endBlock ends what the stream is within, by its end tag or with the text.
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

// earlyName is the beginning of a body in which a tool's name is looked for, in bytes.
const earlyName = 4096

// namedAs finds a tool's name in a body that is not complete yet.
var namedAs = regexp.MustCompile(`"tool_name"\s*:\s*"([^"\\]+)"|<tool_name>\s*([^<&]+?)\s*</tool_name>`)

// WithCallsAsText is the request as it is sent to a model that writes its calls as text (DialectXML): calls stand in
// the model's words as it wrote them, results are the user's words, and the sections of the prompt say what the tools
// are. A provider is not asked for JSON where there are tools, as its model has to be free to call one: the system text
// asks. The notices of the canonical request are part of the texts, so that an adapter adds none. r is left as it is.
func WithCallsAsText(r agent.Request) agent.Request {
	out := r
	if len(r.Tools) > 0 && r.Output.JSON {
		out.System, out.Output = agent.Paragraphs(out.System, r.JSONAsked()), agent.OutputFormat{}
	}
	output := out.Output
	out.Output = agent.OutputFormat{} // of that the adapter gives notice
	out = out.WithNotices()
	out.Late, out.Exhausted, out.Output = nil, false, output
	tools := map[string]agent.ToolSpec{} // by the model's name
	for _, spec := range r.Tools {
		tools[spec.ModelName()] = spec
	}
	names := map[string]string{} // of calls, by id
	var turns []run.Message
	open := false // the last of turns is the model's text, which its turn goes on with
	// The texts of one turn of the model's are one text, but for reasoning of the provider's own, which keeps its place.
	addText := func(m run.Message, text, between string) {
		last := len(turns) - 1
		if !open || !m.Source.SameEvent(turns[last].Source) {
			m.Block = run.Text{Text: text}
			turns, open = append(turns, m), true
			return
		}
		said, _ := turns[last].Block.(run.Text) // open says so
		turns[last].Block = run.Text{Text: said.Text + between + text}
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

// SplitReply splits a reply without calls into text and thinking, if the model has to put thinking and calls between
// tags: in DialectXML and under TextRequireTool. Otherwise all of the reply is text.
func SplitReply(d *agent.Definition, text string) ToolText {
	if !d.WritesCalls() && d.Text != agent.TextRequireTool {
		return ToolText{Text: text}
	}
	return ReadToolText(text)
}

// Spoken is what a last reply says: of a model that writes its calls as text, what it thought is no part of it.
func Spoken(d *agent.Definition, text string) string {
	if !d.WritesCalls() || !strings.Contains(text, tagThinking) {
		return text
	}
	return ReadToolText(text).Text
}
