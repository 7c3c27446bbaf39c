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

// maxText is the longest text that a template may produce, in bytes.
const maxText = 1 << 20

// parseTemplate parses a text/template. An error names the template and the line. A template that includes itself is an
// error, so that execution always ends.
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

// usesTemplate reports whether a template includes another one, directly or indirectly. It adds the templates it visits
// to seen.
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

// executeTemplate returns the text that t produces from data. data is plain: nil, bool, numbers, string, json.Number,
// []any and map[string]any. So a text can call no method but those of json.Number. A json.Number is a string in the
// template; {{if gt .Input.amount.Int64 100}} compares numbers. An error names the template, the line, the expression
// and the missing key.
func executeTemplate(t *template.Template, data any) (string, error) {
	out := boundedText{template: t.Name()}
	if err := t.Execute(&out, data); err != nil {
		return "", err
	}
	return out.text.String(), nil
}

// boundedText is a writer that accepts at most maxText bytes.
type boundedText struct {
	template string // name of the template, for errors
	text     strings.Builder
}

// Write appends p, or fails if the text would be longer than maxText.
func (b *boundedText) Write(p []byte) (int, error) {
	if len(p) > maxText-b.text.Len() {
		return 0, fmt.Errorf("template: %s: too much text: want at most %d bytes", b.template, maxText)
	}
	return b.text.Write(p)
}

// TemplatePart is a piece of a template of a remote tool: a fixed text, or a placeholder that is filled when a call
// goes out. At most one of Secret and Arg is set. If neither is set, the piece is Text.
type TemplatePart struct {
	Text   string
	Secret string // name of a secret: ${secret:NAME}
	Arg    string // top-level key of the arguments: {name}
}

// secretOpen begins a reference to a secret, which ends with '}'.
const secretOpen = "${secret:"

// ValidSecretName reports whether name is a valid name of a secret: 1 to 64 letters, digits, '_', '-' and '.', but not
// only dots.
func ValidSecretName(name string) bool {
	return secretName.MatchString(name) && strings.Trim(name, ".") != ""
}

var (
	secretName = regexp.MustCompile(`^[\w.-]{1,64}$`)
	argument   = regexp.MustCompile(`\{[\w.$@\[\]][\w.$@\[\]-]{0,127}\}`)
)

// SecretParts splits a template at each ${secret:NAME}. An invalid reference is an error.
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

// RequestParts splits a template at each ${secret:NAME} and {name}. Braces around anything but a name are text.
func RequestParts(template string) ([]TemplatePart, error) {
	outer, err := SecretParts(template)
	var parts []TemplatePart
	for _, p := range outer {
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

// RequestURL is the split URL of an HTTPTool.
type RequestURL struct {
	Origin string // scheme://host[:port]
	Path   string // a template, URL-encoded; "" or beginning with '/'
	Query  []RequestParam
}

// RequestParam is one parameter of a query.
type RequestParam struct {
	Name  string // as in a URL
	Value string // a template, URL-encoded
}

// Request splits the URL. A template in scheme or host, and a fragment, are errors.
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

// HasBody reports whether the request has a body although the definition sets none. Such a body holds the arguments
// that no template uses.
func (h *HTTPTool) HasBody() bool {
	return h.Body == nil && (h.Method == "POST" || h.Method == "PUT" || h.Method == "PATCH")
}

// UndoPlaceholder is a placeholder in an undo's arguments: an object with the one key result or args.
type UndoPlaceholder struct {
	From    string // result or args
	Pointer string
}

// parseUndoPlaceholder parses {"result": "/pointer"} and {"args": "/pointer"}. It returns false for any other value.
func parseUndoPlaceholder(raw json.RawMessage) (UndoPlaceholder, bool) {
	if jsonx.JSONKind(raw) != '{' {
		return UndoPlaceholder{}, false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || len(members) != 1 {
		return UndoPlaceholder{}, false
	}
	for _, from := range []string{"result", "args"} {
		if pointer, ok := jsonx.JSONString(members[from]); ok {
			return UndoPlaceholder{from, pointer}, true
		}
	}
	return UndoPlaceholder{}, false
}

// FillUndoArgs returns the template of an undo's arguments with its placeholders replaced by what find returns. The
// order of keys and the spelling of values stay the same.
func FillUndoArgs(
	template json.RawMessage, find func(UndoPlaceholder) (json.RawMessage, error),
) (json.RawMessage, error) {
	if p, ok := parseUndoPlaceholder(template); ok {
		return find(p)
	}
	fill := func(v json.RawMessage) (json.RawMessage, error) { return FillUndoArgs(v, find) }
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

// checkUndoArgs returns an error unless template is an object whose placeholders have valid JSON Pointers. Placeholders
// for a result are allowed only if hasResult.
func checkUndoArgs(template json.RawMessage, hasResult bool) error {
	compact, err := jsonx.CompactJSON(template, jsonx.JSONLimits{})
	if err != nil || jsonx.JSONKind(compact) != '{' {
		return errors.New("got something else, want a mapping")
	}
	if _, single := parseUndoPlaceholder(compact); single {
		return errors.New("got one place for all arguments, want a mapping of arguments")
	}
	_, err = FillUndoArgs(compact, func(p UndoPlaceholder) (json.RawMessage, error) {
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
