package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/countersign/countersign/internal/jsonx"
)

// maxText is how long a text that a template makes may be, in bytes.
const maxText = 1 << 20

// parseTemplate parses a text in the language of text/template. An error names the template and the line.
// A {{template}} that leads back to itself is an error, so that no text is executed without end.
func parseTemplate(name, text string) (*template.Template, error) {
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	uses := map[string][]string{}
	for _, defined := range t.Templates() {
		v := rootFields{}
		v.visit(defined.Tree.Root, false)
		uses[defined.Name()] = v.templates
	}
	for _, used := range slices.Sorted(maps.Keys(uses)) {
		if usesTemplate(uses, used, used, map[string]bool{}) {
			return nil, fmt.Errorf("template: %s: %q uses itself by {{template}}; want {{range}} instead", name, used)
		}
	}
	return t, nil
}

// usesTemplate reports whether a template uses another one, directly or indirectly. It adds to seen the templates it
// has visited.
func usesTemplate(uses map[string][]string, from, to string, seen map[string]bool) bool {
	for _, used := range uses[from] {
		if used == to {
			return true
		}
		if !seen[used] {
			seen[used] = true
			if usesTemplate(uses, used, to, seen) {
				return true
			}
		}
	}
	return false
}

// executeTemplate returns the text that t makes of data. Data are plain: nil, bool, numbers, string, json.Number, []any
// and map[string]any. So a text can call no method but those of json.Number. A json.Number is text to the template:
// {{if gt .Input.amount.Int64 100}} compares numbers. An error names the template, the line, the expression and the key
// that is missing.
func executeTemplate(t *template.Template, data any) (string, error) {
	out := boundedText{template: t.Name()}
	if err := t.Execute(&out, data); err != nil {
		return "", err
	}
	return out.text.String(), nil
}

// boundedText is a text of at most maxText bytes.
type boundedText struct {
	template string // what makes it
	text     strings.Builder
}

// Write implements io.Writer.
func (b *boundedText) Write(p []byte) (int, error) {
	if len(p) > maxText-b.text.Len() {
		return 0, fmt.Errorf("template: %s: too much text: want at most %d bytes", b.template, maxText)
	}
	return b.text.Write(p)
}

// TemplatePart is a piece of a template of a tool that is somewhere else: a text, or what stands in its place when a
// call goes out. At most one of Secret and Arg is set; with neither, Text stands for itself.
type TemplatePart struct {
	Text   string
	Secret string // name of a secret: ${secret:NAME}
	Arg    string // top-level key of the arguments: {name}
}

// secretOpen is what a reference to a secret begins with; it ends with '}'.
const secretOpen = "${secret:"

// ValidSecretName reports whether a secret may have that name: 1 to 64 letters, digits, '_', '-' and '.', not dots
// alone.
func ValidSecretName(name string) bool {
	return secretName.MatchString(name) && strings.Trim(name, ".") != ""
}

var (
	secretName = regexp.MustCompile(`^[\w.-]{1,64}$`)
	argument   = regexp.MustCompile(`\{[\w.$@\[\]][\w.$@\[\]-]{0,127}\}`)
)

// SecretParts takes a template apart at its ${secret:NAME}. Text that begins like one and is none is an error.
func SecretParts(template string) ([]TemplatePart, error) {
	var parts []TemplatePart
	for {
		text, after, found := strings.Cut(template, secretOpen)
		if text != "" {
			parts = append(parts, TemplatePart{Text: text})
		}
		if !found {
			return parts, nil
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed || !ValidSecretName(name) {
			return nil, errors.New("want ${secret:NAME} with a name of 1 to 64 letters, digits, '_', '-' and '.'")
		}
		parts, template = append(parts, TemplatePart{Secret: name}), rest
	}
}

// RequestParts takes a template apart at its ${secret:NAME} and {name}. Braces around anything but a name are text.
func RequestParts(template string) ([]TemplatePart, error) {
	around, err := SecretParts(template)
	var parts []TemplatePart
	for _, p := range around {
		from := 0
		for _, at := range argument.FindAllStringIndex(p.Text, -1) {
			if from < at[0] {
				parts = append(parts, TemplatePart{Text: p.Text[from:at[0]]})
			}
			parts = append(parts, TemplatePart{Arg: p.Text[at[0]+1 : at[1]-1]})
			from = at[1]
		}
		if p.Secret != "" || from < len(p.Text) {
			parts = append(parts, TemplatePart{Text: p.Text[from:], Secret: p.Secret})
		}
	}
	return parts, err
}

// RequestURL is an HTTPTool's URL taken apart: what is fixed, and templates.
type RequestURL struct {
	Origin string // scheme://host[:port]
	Path   string // a template, "" or beginning with '/', written as in a URL
	Query  []RequestParam
}

// RequestParam is one parameter of a query.
type RequestParam struct {
	Name  string // as in a URL
	Value string // a template, written as in a URL
}

// Request takes the URL apart. One whose scheme or host is a template, or that has a fragment, is an error.
func (h *HTTPTool) Request() (RequestURL, error) {
	scheme, rest, ok := strings.Cut(h.URL, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return RequestURL{}, errors.New("want http:// or https://, as it is")
	}
	at := strings.IndexAny(rest, "/?#")
	if at < 0 {
		at = len(rest)
	}
	host, rest := rest[:at], rest[at:]
	if host == "" || strings.ContainsAny(host, "{}$@\\ %") {
		return RequestURL{},
			errors.New("want a host as it is, without a user; only path and query may have {name} and ${secret:NAME}")
	}
	u := RequestURL{Origin: scheme + "://" + host}
	var query string
	u.Path, query, _ = strings.Cut(rest, "?")
	if strings.Contains(rest, "#") {
		return RequestURL{}, errors.New("want no fragment: nobody is sent it")
	}
	if strings.ContainsFunc(rest,
		func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune("\\\"<>^`|", c) }) {
		return RequestURL{}, errors.New("want path and query as in a URL, with other characters as %XX")
	}
	for pair := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(pair, "="); pair != "" {
			u.Query = append(u.Query, RequestParam{name, value})
		}
	}
	return u, nil
}

// HasBody reports whether a request of the method has a body that nobody wrote down: the arguments that nothing else
// takes.
func (h *HTTPTool) HasBody() bool {
	return h.Body == nil && (h.Method == "POST" || h.Method == "PUT" || h.Method == "PATCH")
}

// UndoPlace is a value of an undo's arguments that is taken from elsewhere: an object of one key, result or args.
type UndoPlace struct {
	From    string // result or args
	Pointer string
}

// parseUndoPlace parses {"result": "/pointer"} and {"args": "/pointer"}. It returns false for any other value.
func parseUndoPlace(raw json.RawMessage) (UndoPlace, bool) {
	if jsonx.JSONKind(raw) != '{' {
		return UndoPlace{}, false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || len(members) != 1 {
		return UndoPlace{}, false
	}
	for _, from := range []string{"result", "args"} {
		if pointer, ok := jsonx.JSONString(members[from]); ok {
			return UndoPlace{from, pointer}, true
		}
	}
	return UndoPlace{}, false
}

// FilledUndo is the template of an undo's arguments with what find gives for its places. The order of keys and the
// spelling of values stay.
func FilledUndo(template json.RawMessage, find func(UndoPlace) (json.RawMessage, error)) (json.RawMessage, error) {
	if p, ok := parseUndoPlace(template); ok {
		return find(p)
	}
	fill := func(v json.RawMessage) (json.RawMessage, error) { return FilledUndo(v, find) }
	switch jsonx.JSONKind(template) {
	case '{':
		return editMembers(template, func(_ string, v json.RawMessage) (json.RawMessage, error) { return fill(v) })
	case '[':
		var elements []json.RawMessage
		if err := json.Unmarshal(template, &elements); err != nil {
			return nil, err
		}
		for i, v := range elements {
			var err error
			if elements[i], err = fill(v); err != nil {
				return nil, err
			}
		}
		return jsonx.MarshalVerbatim(elements)
	default:
		return template, nil
	}
}

// checkUndoArgs is what is wrong with a template: it is no object, or a place of it names no JSON Pointer, or a result
// where there is none yet.
func checkUndoArgs(template json.RawMessage, hasResult bool) error {
	compact, err := jsonx.CompactJSON(template, jsonx.JSONLimits{})
	if err != nil || jsonx.JSONKind(compact) != '{' {
		return errors.New("got something else, want a mapping")
	}
	if _, is := parseUndoPlace(compact); is {
		return errors.New("got one place for all arguments, want a mapping of arguments")
	}
	_, err = FilledUndo(compact, func(p UndoPlace) (json.RawMessage, error) {
		if _, err := jsonx.ParsePointer(p.Pointer); err != nil {
			return nil, fmt.Errorf("%s: %w", p.From, err)
		}
		if p.From == "result" && !hasResult {
			return nil, errors.New("got a value of a result, want those of the call's arguments: it has no result yet")
		}
		return json.RawMessage("null"), nil
	})
	return err
}
