package dialect

import (
	"errors"
	"fmt"
	"regexp"
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
	end, quote := 0, byte(0)
	for i := n; i < len(r.in) && end == 0; i++ { // skip the attributes
		switch c := r.in[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '<':
			return errBareAngle
		case c == '>':
			end = i
		}
	}
	if end == 0 {
		return fmt.Errorf("<%s has no >", e.name)
	}
	if len(r.open) > maxElementDepth {
		return fmt.Errorf("elements stand deeper than %d levels within each other", maxElementDepth)
	}
	r.top().children = append(r.top().children, e)
	if !strings.HasSuffix(r.in[:end], "/") {
		r.open = append(r.open, e)
	}
	r.in = r.in[end+1:]
	return nil
}

func isNameByte(c byte, first bool) bool {
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= utf8.RuneSelf
	return letter || !first && (c >= '0' && c <= '9' || c == '-' || c == '.' || c == ':')
}

// entities are the five that XML has by itself.
var entities = map[string]string{"lt": "<", "gt": ">", "amp": "&", "quot": `"`, "apos": "'"}

// reference is what may be one: an entity, or a character's number, with at most ten bytes between & and ;.
var reference = regexp.MustCompile(`&(?:lt|gt|amp|quot|apos|#[0-9]{1,9}|#x[0-9A-Fa-f]{1,8});`)

// resolveReferences replaces the references in a text by what they stand for. Text that is no reference stays.
func resolveReferences(text string) string {
	return reference.ReplaceAllStringFunc(text, func(written string) string {
		name := written[1 : len(written)-1]
		if said, ok := entities[name]; ok {
			return said
		}
		digits, base := name[1:], 10
		if hex, ok := strings.CutPrefix(digits, "x"); ok {
			digits, base = hex, 16
		}
		n, err := strconv.ParseUint(digits, base, 32)
		if err != nil || n == 0 || n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
			return written
		}
		return string(rune(n))
	})
}
