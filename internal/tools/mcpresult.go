package tools

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// callResult is a server's answer to a call, of any protocol.
type callResult struct {
	Content           []json.RawMessage
	Text              *string
	StructuredContent json.RawMessage
	IsError           bool
	ResultType        string
	InputRequests     map[string]json.RawMessage
	RequestState      string

	asks    bool  // for input, and says by that that nothing was done
	unasked error // why what it asks for cannot be read; nil = it can, or it asks for nothing
	strange bool  // it says something, but not as a result of the protocol does
}

// readMCPResult reads an answer to a call. An error says that what became of the call is not in it for sure: a key that
// decides about that is of another kind, or there twice. An answer of a form of its own is none of those: what it says
// is its result.
func readMCPResult(answer json.RawMessage) (callResult, error) {
	var r callResult
	all, err := members(answer, "content", "structuredContent", "isError", "resultType", "inputRequests", "requestState")
	if errors.Is(err, errNoObject) {
		r.strange = true
		return r, nil
	}
	if err == nil {
		err = r.decisive(all)
	}
	if err != nil {
		return r, fmt.Errorf("its answer cannot be read: %w", err)
	}
	r.strange = member(all, "content", &r.Content, "a list") != nil || member(all, "text", &r.Text, "a text") != nil
	r.StructuredContent = all["structuredContent"]
	return r, nil
}

// decisive reads what says whether the call was made, and how it went.
func (r *callResult) decisive(all map[string]json.RawMessage) error {
	if err := member(all, "isError", &r.IsError, "true or false"); err != nil {
		return err
	}
	if err := member(all, "resultType", &r.ResultType, "a text"); err != nil {
		return err
	}
	unread := member(all, "inputRequests", &r.InputRequests, "an object")
	switch r.ResultType {
	case "complete": // whatever else it says
	case "input_required":
		r.asks, r.unasked = true, cmp.Or(unread, member(all, "requestState", &r.RequestState, "a text"))
	case "":
		if r.asks = r.InputRequests != nil; r.asks {
			r.unasked = member(all, "requestState", &r.RequestState, "a text")
		}
		return unread
	default:
		return errors.New("want complete or input_required for the key resultType")
	}
	return nil
}

type content struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	MIMEType    string `json:"mimeType"`
	Data        string `json:"data"`
	URI         string `json:"uri"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Resource    struct {
		URI      string  `json:"uri"`
		MIMEType string  `json:"mimeType"`
		Text     *string `json:"text"`
		Blob     string  `json:"blob"`
	} `json:"resource"`
}

type said struct {
	lines []string
	media []run.Media
	size  int // bytes of lines
	cut   bool
	// takes secrets out of a text before it is cut: nothing finds the first half of one
	redact func(string) string
}

func (s *said) line(text string) {
	if s.cut {
		return
	}
	if text = s.redact(text); s.size+len(text) > maxMCPText {
		text, s.cut = bounded(text, maxMCPText-s.size), true
	}
	s.lines, s.size = append(s.lines, text), s.size+len(text)
}

// outcome returns what a tool's call gives the run: a result, an error of the tool, or a question to people. An error
// is a tool.LostError.
func (l *link) outcome(d definition, x exchange) (agent.ToolResultData, error) {
	r, err := readMCPResult(x.answer)
	switch {
	case err != nil:
		return agent.ToolResultData{}, &tool.LostError{Err: l.failed(err)}
	case r.asks:
		return l.asks(r), nil
	case r.strange:
		text := bounded(l.secrets.Redact(asText(x.answer)), maxMCPText)
		text += "\n[the server's answer is not a result of the protocol]"
		return agent.ToolResultData{Content: text, IsError: r.IsError}, nil
	}
	s := r.parts(l.secrets.Redact)
	// Something stands for a text where the content has none: the field text, the structured content, or all of an
	// answer of another form.
	switch {
	case len(s.lines) > 0 || len(s.media) > 0:
	case r.Text != nil:
		s.line(*r.Text)
	case r.StructuredContent != nil && string(r.StructuredContent) != "null":
		s.line(asText(r.StructuredContent))
	case r.Content == nil:
		s.line(strange(x.answer))
	}
	text := strings.Join(s.lines, "\n")
	out := agent.ToolResultData{IsError: r.IsError}
	for _, m := range s.media {
		m.Name = l.secrets.Redact(m.Name)
		if l.secrets.Redact(m.Data) != m.Data {
			left := run.Media{Name: m.Name, MediaType: m.MediaType}
			text = noted(text, agent.TextMediaLeftOut(left, "it holds a secret"))
			continue
		}
		out.Media = append(out.Media, m)
	}
	// a secret may have come in two parts, and the notes quote the server, too
	out.Content = l.secrets.Redact(noted(text, r.notes(d, s, x)...))
	return out, nil
}

// noted returns a result's text with notes behind it.
func noted(text string, notes ...string) string {
	if text != "" {
		notes = slices.Concat([]string{text}, notes)
	}
	return strings.Join(notes, "\n")
}

// parts returns the parts of the content: texts, media, and a line for each link.
func (r callResult) parts(redact func(string) string) (s said) {
	s.redact = redact
	for i, raw := range r.Content {
		if i == maxParts {
			s.line(fmt.Sprintf("[%d more parts are left out: a result has at most %d]", len(r.Content)-i, maxParts))
			break
		}
		var c content
		if err := json.Unmarshal(raw, &c); err != nil {
			s.line("[a part is left out: it cannot be read]")
			continue
		}
		switch c.Type {
		case "text":
			s.line(c.Text)
		case "image", "audio":
			s.media = append(s.media, run.Media{MediaType: c.MIMEType, Data: c.Data})
		case "resource_link":
			text := "[link" // nothing follows it
			for _, part := range []string{c.Name, c.URI, c.MIMEType, c.Description} {
				if part = strings.Join(strings.Fields(visible(part)), " "); part != "" {
					text += " " + bounded(redact(part), maxDescription)
				}
			}
			s.line(text + "]")
		case "resource":
			r := c.Resource
			if r.Text != nil {
				s.line("[resource " + bounded(redact(visible(r.URI)), maxDescription) + "]\n" + *r.Text)
				continue
			}
			kind := cmp.Or(r.MIMEType, "application/octet-stream")
			s.media = append(s.media, run.Media{Name: path.Base(visible(r.URI)), MediaType: kind, Data: r.Blob})
		default:
			s.line(fmt.Sprintf("[a part of type %.40q is left out]", visible(c.Type)))
		}
	}
	return s
}

// strange returns an answer of an unknown form without the keys of the protocol; "" = nothing is left.
func strange(answer json.RawMessage) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(answer, &all) != nil {
		return asText(answer)
	}
	for _, key := range []string{"_meta", "resultType", "isError", "content", "structuredContent"} {
		delete(all, key)
	}
	if len(all) == 0 {
		return ""
	}
	raw, err := jsonx.MarshalVerbatim(all)
	if err != nil { // it was read as JSON
		return ""
	}
	return string(raw)
}

// asText returns JSON as text: compact if it is valid, else as it came.
func asText(raw json.RawMessage) string {
	if compact, err := jsonx.CompactJSON(raw, jsonx.JSONLimits{Bytes: maxMessage, Depth: 1000}); err == nil {
		return string(compact)
	}
	return string(raw)
}

// notes returns notes about a result that its content does not say.
func (r callResult) notes(d definition, s said, x exchange) []string {
	var notes []string
	if s.cut {
		notes = append(notes, fmt.Sprintf("[the rest is left out: a result has at most %d bytes of text]", maxMCPText))
	}
	if lie := r.unfit(d); lie != "" {
		notes = append(notes, "[the result is not what the tool's outputSchema promises: "+lie+"]")
	}
	switch {
	case x.wanted == "":
	case strings.HasPrefix(x.wanted, "elicitation/"):
		notes = append(notes, "[meanwhile the server wanted to ask people, which was declined: it can over "+
			"protocol 2026-07-28]")
	default:
		notes = append(notes, fmt.Sprintf("[meanwhile the server asked for %.60q, which is not to be had]",
			visible(x.wanted)))
	}
	return notes
}

// unfit says how a result differs from the schema that its server promised; "" = it does not, or it cannot be checked.
func (r callResult) unfit(d definition) string {
	if r.IsError || d.OutputSchema == nil || string(d.OutputSchema) == "null" {
		return ""
	}
	if r.StructuredContent == nil {
		return "there is no structured content"
	}
	promised, err := tool.Compile(d.OutputSchema)
	if err != nil || len(r.StructuredContent) > 256<<10 {
		return ""
	}
	if err := promised.Validate(r.StructuredContent); err != nil {
		return strings.ReplaceAll(agent.Bounded(visible(err.Error())), "\n", "; ")
	}
	return ""
}

// errNoObject is the error of what was to be an object with keys.
var errNoObject = errors.New("want an object")

// members returns the values of an object by key, as they came. Keys are case-sensitive. Each key of once may appear
// once, because it would be unclear which of two values counts. A key with the value null is there. All other errors
// are errNoObject.
func members(raw json.RawMessage, once ...string) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errNoObject
	}
	all := map[string]json.RawMessage{}
	var twice error
	for dec.More() {
		token, err := dec.Token()
		key, named := token.(string)
		var value json.RawMessage
		if err != nil || !named || dec.Decode(&value) != nil {
			return nil, errNoObject
		}
		if all[key] != nil && twice == nil && slices.Contains(once, key) {
			twice = fmt.Errorf("want the key %s once", key)
		}
		all[key] = value
	}
	return all, twice
}

// member decodes a key into one of its values; where it is missing or null, into keeps what it has. want says what it
// should be.
func member(all map[string]json.RawMessage, key string, into any, want string) error {
	raw, there := all[key]
	if !there || string(raw) == "null" {
		return nil
	}
	if json.Unmarshal(raw, into) != nil {
		return fmt.Errorf("want %s for the key %s", want, key)
	}
	return nil
}

// visible returns a text without hidden characters: bytes that are not UTF-8 are replaced, and characters that cannot
// be seen, or that change how others are displayed (controls, directions, joiners, tags), are written by number, as in
// <U+202E>. Line breaks and tabs stay.
func visible(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, "<U+%04X>", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func hidden(r rune) bool {
	filler := r == 0x115F || r == 0x1160 || r == 0x3164 || r == 0xFFA0
	return r != '\n' && r != '\t' &&
		(filler || unicode.In(r, unicode.Cf, unicode.Cc, unicode.Co, unicode.Zl, unicode.Zp) ||
			unicode.Is(unicode.Variation_Selector, r) && r > 0xFE0F)
}

// bounded returns the beginning of a text, at most most bytes, and says where it was cut.
func bounded(s string, most int) string {
	const cut = " […]"
	if len(s) <= most {
		return s
	}
	end := max(0, most-len(cut))
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cut
}
