package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// unfitError says why arguments make no request. It is the model's to read.
type unfitError struct{ why string }

func (e *unfitError) Error() string { return e.why }

func unfitf(format string, args ...any) error { return &unfitError{fmt.Sprintf(format, args...)} }

// arguments returns a call's arguments by key. A value that is not an object, which the schema excludes, has none.
func arguments(raw json.RawMessage) map[string]json.RawMessage {
	var args map[string]json.RawMessage
	_ = json.Unmarshal(raw, &args)
	return args
}

// arg returns what fills the places of an argument. There is nothing for one that is missing or null.
func (t *request) arg(name string) (json.RawMessage, bool) {
	v, ok := t.args[name]
	return v, ok && string(v) != "null"
}

// text fills a template, each value as esc writes it. Where an argument is missing, there is none.
func (t *request) text(ctx context.Context, template string, esc func(string) string) (string, bool, error) {
	parts, err := agent.RequestParts(template)
	if err != nil {
		return "", false, err
	}
	return t.parts(ctx, parts, esc, asIs)
}

// parts joins the parts of a template. literal writes the template's own text.
func (t *request) parts(
	ctx context.Context, parts []agent.TemplatePart, esc, literal func(string) string,
) (text string, there bool, err error) {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.Secret != "":
			v, err := t.secrets.Value(ctx, p.Secret)
			if err != nil {
				return "", false, err
			}
			b.WriteString(esc(v))
		case p.Arg != "":
			raw, ok := t.arg(p.Arg)
			if !ok {
				return "", false, nil
			}
			v, err := scalar(p.Arg, raw)
			if err != nil {
				return "", false, err
			}
			b.WriteString(esc(v))
		default:
			b.WriteString(literal(p.Text))
		}
	}
	return b.String(), true, nil
}

// scalar returns a value as text, with the digits as they were written.
func scalar(name string, raw json.RawMessage) (string, error) {
	switch raw[0] {
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case '{', '[':
		return "", unfitf("%s: got a list or an object, want a text, a number or a boolean there", name)
	default:
		return string(raw), nil
	}
}

func asIs(s string) string { return s }

// url fills the URL. What fills a segment of the path stays in it.
func (t *request) url(ctx context.Context) (string, error) {
	u, err := t.spec.HTTP.Request()
	if err != nil {
		return "", err
	}
	var segments []string
	for _, template := range strings.Split(u.Path, "/") {
		s, err := t.segment(ctx, template)
		if err != nil {
			return "", err
		}
		segments = append(segments, s)
	}
	var query []string
	for _, p := range u.Query {
		if query, err = t.parameter(ctx, query, p.Name, p.Value, asIs); err != nil {
			return "", err
		}
	}
	for _, name := range jsonx.SortedKeys(t.spec.HTTP.Query) {
		if query, err = t.parameter(ctx, query, url.QueryEscape(name), t.spec.HTTP.Query[name], url.QueryEscape); err != nil {
			return "", err
		}
	}
	text := u.Origin + strings.Join(segments, "/")
	if len(query) > 0 {
		text += "?" + strings.Join(query, "&")
	}
	return text, nil
}

// segment fills a segment of the path. One that would be empty or lead elsewhere, to whoever reads %2F as '/', is
// refused.
func (t *request) segment(ctx context.Context, template string) (string, error) {
	text, there, err := t.text(ctx, template, url.PathEscape)
	switch {
	case err != nil:
		return "", err
	case !there:
		return "", unfitf("an argument of the path is missing, want all of %s", template)
	case text == template: // nothing was put in
		return text, nil
	}
	plain, err := url.PathUnescape(text)
	if err != nil {
		return "", unfitf("a segment of the path cannot be written")
	}
	for _, part := range strings.FieldsFunc("/"+plain+"/", func(r rune) bool { return r == '/' || r == '\\' }) {
		part, _, _ = strings.Cut(part, ";") // some servers take parameters off a segment first
		if part == "." || part == ".." {
			return "", unfitf("an argument of the path is or has a segment that leads elsewhere, want none of . and ..")
		}
	}
	if plain == "" || hasControl(plain) {
		return "", unfitf("an argument of the path is empty or has a control character, want a text")
	}
	return text, nil
}

// parameter adds what a parameter of the query becomes: nothing where an argument is missing, one, or for a list one
// for each element. The template's own text is written by literal.
func (t *request) parameter(
	ctx context.Context, query []string, name, template string, literal func(string) string,
) ([]string, error) {
	parts, err := agent.RequestParts(template)
	if err != nil {
		return nil, err
	}
	if len(parts) == 1 && parts[0].Arg != "" {
		if raw := t.args[parts[0].Arg]; len(raw) > 0 && raw[0] == '[' {
			var items []json.RawMessage
			if err := json.Unmarshal(raw, &items); err != nil {
				return nil, unfitf("%s: want a list", parts[0].Arg)
			}
			for _, item := range items {
				text, err := scalar(parts[0].Arg, item)
				if err != nil {
					return nil, err
				}
				query = append(query, name+"="+url.QueryEscape(text))
			}
			return query, nil
		}
	}
	text, there, err := t.parts(ctx, parts, url.QueryEscape, literal)
	if err != nil || !there {
		return query, err
	}
	return append(query, name+"="+text), nil
}

// headers fills the header fields and says which of them hold secrets.
func (t *request) headers(ctx context.Context, to http.Header) (secret []string, err error) {
	for _, name := range jsonx.SortedKeys(t.spec.HTTP.Headers) {
		text, there, err := t.text(ctx, t.spec.HTTP.Headers[name], asIs)
		switch {
		case err != nil:
			return nil, err
		case !there:
			continue
		case hasControl(text):
			return nil, unfitf("the header field %s would have a control character, want one line of text", name)
		}
		if strings.Contains(t.spec.HTTP.Headers[name], "${secret:") {
			secret = append(secret, name)
		}
		to.Set(name, text)
	}
	return secret, nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// body returns the body of the request; nil = none.
func (t *request) body(ctx context.Context) ([]byte, error) {
	switch {
	case t.spec.HTTP.HasBody():
		return t.restBody()
	case t.spec.HTTP.Body == nil:
		return nil, nil
	}
	v, err := jsonx.DecodeNumbers(t.spec.HTTP.Body)
	if err != nil {
		return nil, fmt.Errorf("read the body's template: %w", err)
	}
	filled, there, err := t.value(ctx, v)
	if err != nil || !there {
		return nil, err
	}
	return jsonx.MarshalVerbatim(filled)
}

// restBody returns the arguments that no other part takes, as an object: null ones too, which clear a field in many
// APIs. It is nil if the schema has none.
func (t *request) restBody() ([]byte, error) {
	taken := map[string]bool{} // what URL, query and headers use
	templates := slices.Concat([]string{t.spec.HTTP.URL},
		slices.Collect(maps.Values(t.spec.HTTP.Query)), slices.Collect(maps.Values(t.spec.HTTP.Headers)))
	for _, template := range templates {
		parts, err := agent.RequestParts(template)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			taken[p.Arg] = true
		}
	}
	left := map[string]json.RawMessage{}
	for name, v := range t.args {
		if !taken[name] {
			left[name] = v
		}
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(t.spec.Schema, &schema); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	maps.DeleteFunc(schema.Properties, func(name string, _ json.RawMessage) bool { return taken[name] })
	if len(left) == 0 && len(schema.Properties) == 0 {
		return nil, nil
	}
	return jsonx.MarshalVerbatim(left)
}

// value fills the strings of a body. What has an argument that is missing is left out of what it stands in.
func (t *request) value(ctx context.Context, v any) (filled any, there bool, err error) {
	switch v := v.(type) {
	case string:
		parts, err := agent.RequestParts(v)
		if err != nil {
			return nil, false, err
		}
		// A string that is an argument alone becomes its value, digits as they were written.
		if len(parts) == 1 && parts[0].Arg != "" {
			raw, ok := t.arg(parts[0].Arg)
			return raw, ok, nil
		}
		return t.parts(ctx, parts, asIs, asIs)
	case []any:
		list := []any{}
		for _, item := range v {
			x, ok, err := t.value(ctx, item)
			if err != nil {
				return nil, false, err
			}
			if ok {
				list = append(list, x)
			}
		}
		return list, true, nil
	case map[string]any:
		object := map[string]any{}
		for key, item := range v {
			x, ok, err := t.value(ctx, item)
			if err != nil {
				return nil, false, err
			}
			if ok {
				object[key] = x
			}
		}
		return object, true, nil
	default:
		return v, true, nil
	}
}
