package agentfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// shape is what becomes of an operation's parameters and body: the arguments of a tool, and where they go.
type shape struct {
	doc   document
	entry *httpEntry

	properties     map[string]any
	required       []string
	headers, query map[string]string
	body           json.RawMessage
}

// overlay lays the file's values over the document's. It returns nil if the result is empty.
func (s *shape) overlay(from, said map[string]string) map[string]string {
	maps.Copy(from, said)
	if len(from) == 0 {
		return nil
	}
	return from
}

// errShape is the error of a parameter that no template can write.
var errShape = errors.New("it is written in a way that tools do not have")

// parameters takes those of the path and of the operation, which come before them.
func (s *shape) parameters(op operationOf) error {
	type key struct{ in, name string }
	all := map[key]map[string]any{}
	for _, from := range []map[string]any{op.around, op.self} {
		list, _ := from["parameters"].([]any)
		for _, raw := range list {
			p, err := s.doc.object(raw)
			if err != nil {
				return err
			}
			in, _ := p["in"].(string)
			name, _ := p["name"].(string)
			all[key{in, name}] = p
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(all), func(a, b key) int {
		return strings.Compare(a.in+" "+a.name, b.in+" "+b.name)
	}) {
		if err := s.parameter(k.in, k.name, all[k]); err != nil {
			return fmt.Errorf("parameter %.80s in %.20s: %w", k.name, k.in, err)
		}
	}
	return nil
}

// parameter makes an argument of one. What a file says itself is none, nor is what has to be left out and may be.
func (s *shape) parameter(in, name string, p map[string]any) error {
	if s.isSetByFile(in, name) {
		return nil
	}
	required := p["required"] == true
	schema, err := s.writable(in, p)
	switch {
	case errors.Is(err, errShape) && !required:
		return nil
	case err != nil:
		return err
	case strings.ContainsAny(name, "{} \t") || name == "":
		return errors.New("got a name that templates do not have")
	case s.properties[name] != nil:
		return errors.New("another parameter has the name, too")
	}
	if text, _ := p["description"].(string); text != "" && schema["description"] == nil {
		schema["description"] = text
	}
	s.properties[name] = schema
	if required {
		s.required = append(s.required, name)
	}
	switch in {
	case "query":
		s.query[name] = "{" + name + "}"
	case "header":
		s.headers[name] = "{" + name + "}"
	}
	return nil
}

// isSetByFile reports whether the file itself, or the request, defines a parameter.
func (s *shape) isSetByFile(in, name string) bool {
	switch in {
	case "query":
		_, ok := s.entry.request.Query[name]
		return ok
	case "header":
		for own := range s.entry.request.Headers {
			if strings.EqualFold(own, name) {
				return true
			}
		}
		return slices.Contains([]string{"accept", "content-type", "authorization", "idempotency-key"}, strings.ToLower(name))
	}
	return false
}

// writable is the schema of a parameter that a template can write.
func (s *shape) writable(in string, p map[string]any) (map[string]any, error) {
	raw, ok := p["schema"]
	if !ok || in == "cookie" {
		return nil, errShape
	}
	schema, err := s.doc.schema(raw)
	if err != nil {
		return nil, err
	}
	style, _ := p["style"].(string)
	plain := style == "" || style == map[string]string{"query": "form", "path": "simple", "header": "simple"}[in]
	switch {
	case !plain, allowsType(schema, "object"), allowsType(schema, "array") && (in != "query" || p["explode"] == false):
		return nil, errShape
	}
	return schema, nil
}

// allowsType reports whether a schema allows a type by name.
func allowsType(schema map[string]any, kind string) bool {
	switch t := schema["type"].(type) {
	case string:
		return t == kind
	case []any:
		return slices.Contains(t, any(kind))
	}
	return schema["properties"] != nil && kind == "object"
}

// requestBody makes arguments of a body of JSON: of its properties, or of all of it, where they cannot stand beside the
// parameters.
func (s *shape) requestBody(op operationOf) error {
	raw, ok := op.self["requestBody"]
	if !ok || op.method == "get" || op.method == "head" {
		return nil
	}
	b, err := s.doc.object(raw)
	if err != nil {
		return err
	}
	required := b["required"] == true
	kind, media := jsonContent(b)
	if media == nil {
		if required {
			return errors.New("its body is no JSON, which is what tools send")
		}
		return nil
	}
	schema, err := s.doc.schema(media["schema"])
	if err != nil {
		return fmt.Errorf("body: %w", err)
	}
	if kind != "application/json" {
		s.headers["Content-Type"] = kind
	}
	if properties, ok := s.flatProperties(schema); ok {
		maps.Copy(s.properties, properties)
		if list, _ := schema["required"].([]any); required {
			for _, name := range list {
				if name, ok := name.(string); ok && properties[name] != nil {
					s.required = append(s.required, name)
				}
			}
		}
		return nil
	}
	if s.properties["body"] != nil {
		return errors.New("a parameter is called body, and the body cannot stand beside it")
	}
	s.properties["body"], s.body = schema, json.RawMessage(`"{body}"`)
	if required {
		s.required = append(s.required, "body")
	}
	return nil
}

// flatProperties returns the properties of a plain object body, if no parameter has the name of one.
func (s *shape) flatProperties(schema map[string]any) (map[string]any, bool) {
	properties, _ := schema["properties"].(map[string]any)
	if len(properties) == 0 {
		return nil, false
	}
	for key := range schema {
		if !slices.Contains([]string{"type", "properties", "required", "description", "title", "additionalProperties"}, key) {
			return nil, false
		}
	}
	if open, ok := schema["additionalProperties"]; ok && open != false {
		return nil, false
	}
	for name := range properties {
		if s.properties[name] != nil {
			return nil, false
		}
	}
	return properties, true
}

// jsonContent is the part of a body that is JSON, with its type.
func jsonContent(body map[string]any) (kind string, media map[string]any) {
	content, _ := body["content"].(map[string]any)
	for _, kind := range append([]string{"application/json"}, slices.Sorted(maps.Keys(content))...) {
		plain, _, _ := strings.Cut(kind, ";")
		media, ok := content[kind].(map[string]any)
		if ok && (plain == "application/json" || strings.HasSuffix(plain, "+json")) {
			return plain, media
		}
	}
	return "", nil
}
