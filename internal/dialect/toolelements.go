package dialect

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxElementDepth is how deep elements may stand within each other.
const maxElementDepth = 64

// toolElement is an element of the small part of XML that calls are written in: elements, texts with entities, CDATA
// and comments. Attributes mean nothing. An ampersand that begins no entity stands for itself (seed 004).
type toolElement struct {
	name     string
	text     strings.Builder // of its own, entities resolved
	children []*toolElement
}

// isBlank reports whether there is no text beside the children.
func (e *toolElement) isBlank() bool { return strings.TrimSpace(e.text.String()) == "" }

type elementReader struct {
	in   string         // what is left
	open []*toolElement // from the root to the one that is being read
}

func (r *elementReader) top() *toolElement { return r.open[len(r.open)-1] }

// next takes one piece: a text up to a tag, or a tag.
func (r *elementReader) next() error {
	i := strings.IndexByte(r.in, '<')
	if i != 0 {
		if i < 0 {
			i = len(r.in)
		}
		r.top().text.WriteString(resolveReferences(r.in[:i]))
		r.in = r.in[i:]
		return nil
	}
	switch {
	case strings.HasPrefix(r.in, "<![CDATA["):
		text, err := r.readBetween("<![CDATA[", "]]>")
		r.top().text.WriteString(text)
		return err
	case strings.HasPrefix(r.in, "<!--"):
		_, err := r.readBetween("<!--", "-->")
		return err
	case strings.HasPrefix(r.in, "</"):
		return r.readEndTag()
	default:
		return r.readStartTag()
	}
}

// readBetween reads the text between two marks; the first mark is next.
func (r *elementReader) readBetween(first, last string) (string, error) {
	text, rest, ok := strings.Cut(r.in[len(first):], last)
	if !ok {
		return "", fmt.Errorf("%s has no %s", first, last)
	}
	r.in = rest
	return text, nil
}

func (r *elementReader) readEndTag() error {
	name, err := r.readBetween("</", ">")
	if err != nil {
		return err
	}
	name = strings.TrimSpace(name)
	if len(r.open) == 1 || r.top().name != name {
		short := []rune(name)
		return fmt.Errorf("</%s> ends nothing that is open", string(short[:min(len(short), 64)]))
	}
	r.open = r.open[:len(r.open)-1]
	return nil
}

// errBareAngle says what a model that meant a text has to do.
var errBareAngle = errors.New("a < begins no element; in a text write it as &lt;, or the text as <![CDATA[...]]>")

func (r *elementReader) readStartTag() error {
	n := 1
	for n < len(r.in) && isNameByte(r.in[n], n == 1) {
		n++
	}
	if n == 1 {
		return errBareAngle
	}
	e := &toolElement{name: r.in[1:n]}
	r.in = r.in[n:]
	empty, err := r.attributes(e.name)
	if err != nil {
		return err
	}
	if len(r.open) > maxElementDepth {
		return fmt.Errorf("elements stand deeper than %d levels within each other", maxElementDepth)
	}
	r.top().children = append(r.top().children, e)
	if !empty {
		r.open = append(r.open, e)
	}
	return nil
}

// attributes skips the rest of a first tag; empty is one that is its own end.
func (r *elementReader) attributes(name string) (empty bool, err error) {
	quote := byte(0)
	for i := 0; i < len(r.in); i++ {
		switch c := r.in[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '<':
			return false, errBareAngle
		case c == '>':
			empty = strings.HasSuffix(r.in[:i], "/")
			r.in = r.in[i+1:]
			return empty, nil
		}
	}
	return false, fmt.Errorf("<%s has no >", name)
}

func isNameByte(c byte, first bool) bool {
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= utf8.RuneSelf
	return letter || !first && (c >= '0' && c <= '9' || c == '-' || c == '.' || c == ':')
}

// entities are the five that XML has by itself.
var entities = map[string]string{"lt": "<", "gt": ">", "amp": "&", "quot": `"`, "apos": "'"}

// maxEntity is the longest reference that is taken for one, in bytes between & and ;.
const maxEntity = 10

// resolveReferences replaces the references in a text by what they stand for. Text that is no reference stays.
func resolveReferences(text string) string {
	i := strings.IndexByte(text, '&')
	if i < 0 {
		return text
	}
	var b strings.Builder
	for ; i >= 0; i = strings.IndexByte(text, '&') {
		b.WriteString(text[:i])
		text = text[i:]
		end := strings.IndexByte(text[:min(len(text), maxEntity+2)], ';')
		said, ok := "", false
		if end > 0 {
			said, ok = resolveReference(text[1:end])
		}
		if !ok {
			said, end = "&", 0
		}
		b.WriteString(said)
		text = text[end+1:]
	}
	b.WriteString(text)
	return b.String()
}

// resolveReference returns what the text between & and ; stands for.
func resolveReference(name string) (string, bool) {
	if said, ok := entities[name]; ok {
		return said, true
	}
	digits, numeric := strings.CutPrefix(name, "#")
	if !numeric {
		return "", false
	}
	base := 10
	if hex, ok := strings.CutPrefix(digits, "x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil || n == 0 || n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
		return "", false
	}
	return string(rune(n)), true
}
