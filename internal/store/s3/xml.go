package s3

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// element is an element of an answer. What S3 answers has no attributes but that of its namespace, which are not kept.
type element struct {
	name     string // without a namespace's prefix
	text     []byte // its own, not that of the elements within
	children []*element

	tag string // its name as it stands there
}

// maxDepth bounds how deep elements stand in one another; S3's stand three deep.
const maxDepth = 16

var errNoXML = errors.New("this is no XML as S3 writes it")

// readXML reads the document that r begins with, at most so many bytes. It knows what S3 writes: elements, texts with references and CDATA;
// it skips comments, instructions and attributes, and refuses document types. Package encoding/xml is 0.1 MB of each bootstrap (ADR 15); a
// fuzz target holds this to it.
func readXML(r io.Reader, most int64) (*element, error) {
	all, err := io.ReadAll(io.LimitReader(r, most))
	if err != nil {
		return nil, err
	}
	d := &document{rest: string(all)}
	for {
		root, err := d.next()
		if root != nil || err != nil {
			return root, err
		}
	}
}

// document is what is left of a document to read.
type document struct {
	rest string
	open []*element // from the root down
}

// next reads a text and the markup behind it, and gives the root once that is complete.
func (d *document) next() (*element, error) {
	text, rest, more := strings.Cut(d.rest, "<")
	if !more {
		return nil, io.ErrUnexpectedEOF
	}
	d.rest = rest
	if err := d.text(text); err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(rest, "?"):
		_, err := d.skip("?>")
		return nil, err
	case strings.HasPrefix(rest, "!--"):
		d.rest = rest[len("!--"):]
		_, err := d.skip("-->")
		return nil, err
	case strings.HasPrefix(rest, "![CDATA[") && len(d.open) > 0:
		d.rest = rest[len("![CDATA["):]
		raw, err := d.skip("]]>")
		return nil, errors.Join(err, d.append(raw))
	case strings.HasPrefix(rest, "!"):
		return nil, errNoXML
	case strings.HasPrefix(rest, "/"):
		return d.end()
	default:
		return d.start()
	}
}

// skip goes behind what ends with end, and gives what stands before that.
func (d *document) skip(end string) (string, error) {
	before, rest, ok := strings.Cut(d.rest, end)
	if !ok {
		return "", io.ErrUnexpectedEOF
	}
	d.rest = rest
	return before, nil
}

// append adds to the text of the element that is open, with line ends as XML has them.
func (d *document) append(text string) error {
	if !utf8.ValidString(text) {
		return errNoXML
	}
	e := d.open[len(d.open)-1]
	e.text = append(e.text, lineEnds.Replace(text)...)
	return nil
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// text adds a text with references. Outside the root it is of no interest.
func (d *document) text(s string) error {
	for len(d.open) > 0 {
		plain, rest, ok := strings.Cut(s, "&")
		if err := d.append(plain); err != nil || !ok {
			return err
		}
		name, rest, ok := strings.Cut(rest, ";")
		r, known := reference(name)
		if !ok || !known {
			return errNoXML
		}
		e := d.open[len(d.open)-1]
		e.text, s = utf8.AppendRune(e.text, r), rest
	}
	return nil
}

// reference is the character that &NAME; stands for. A number that is none stands for U+FFFD, as encoding/xml has it.
func reference(name string) (rune, bool) {
	switch name {
	case "amp":
		return '&', true
	case "lt":
		return '<', true
	case "gt":
		return '>', true
	case "quot":
		return '"', true
	case "apos":
		return '\'', true
	}
	digits, ok := strings.CutPrefix(name, "#")
	base := 10
	if hex, isHex := strings.CutPrefix(digits, "x"); isHex {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	return rune(n), ok && err == nil && n <= utf8.MaxRune
}

// start reads a start tag, behind its bracket.
func (d *document) start() (*element, error) {
	end := tagEnd(d.rest)
	if end < 0 {
		return nil, io.ErrUnexpectedEOF
	}
	tag, empty := strings.CutSuffix(d.rest[:end], "/")
	d.rest = d.rest[end+1:]
	if i := strings.IndexAny(tag, " \t\r\n/"); i >= 0 {
		tag = tag[:i]
	}
	e := &element{name: tag[strings.IndexByte(tag, ':')+1:], tag: tag}
	if e.name == "" || len(d.open) == maxDepth {
		return nil, errNoXML
	}
	if len(d.open) > 0 {
		above := d.open[len(d.open)-1]
		above.children = append(above.children, e)
	}
	d.open = append(d.open, e)
	if empty {
		return d.close()
	}
	return nil, nil
}

// tagEnd is where the bracket is that ends a tag; those in values are none. Below 0 = nowhere.
func tagEnd(s string) int {
	quote := byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case c == quote:
			quote = 0
		case quote != 0:
		case c == '"' || c == '\'':
			quote = c
		case c == '>':
			return i
		}
	}
	return -1
}

// end reads an end tag, from its slash.
func (d *document) end() (*element, error) {
	tag, err := d.skip(">")
	if err != nil {
		return nil, err
	}
	if len(d.open) == 0 || strings.TrimRight(tag[1:], " \t\r\n") != d.open[len(d.open)-1].tag {
		return nil, errNoXML
	}
	return d.close()
}

// close ends the element that is open, and gives it if it is the root.
func (d *document) close() (*element, error) {
	e := d.open[len(d.open)-1]
	d.open = d.open[:len(d.open)-1]
	if len(d.open) == 0 {
		return e, nil
	}
	return nil, nil
}

// last is the text of the last child of that name; empty where there is none.
func (e *element) last(name string) string {
	out := ""
	for _, c := range e.children {
		if c.name == name {
			out = string(c.text)
		}
	}
	return out
}

// flag is the text of the last child of that name as a truth value; false where there is none.
func (e *element) flag(name string) (bool, error) {
	text := strings.TrimSpace(e.last(name))
	if text == "" {
		return false, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s: got %q, want true or false", name, short(text))
	}
	return v, nil
}
