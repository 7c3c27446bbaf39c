package agentfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The bounds of what one tool takes out of a document.
const (
	maxRefs  = 32    // references that lead to one another
	maxLevel = 48    // levels of a schema
	maxNodes = 5_000 // values of all schemas of a tool
)

var errTooMuch = errors.New("its schemas are too large, or too deep")

// object is a mapping, or the one that a reference in its place leads to.
func (d document) object(v any) (map[string]any, error) {
	for range maxRefs {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, errors.New("got something else, want a mapping")
		}
		ref, ok := m["$ref"].(string)
		if !ok {
			return m, nil
		}
		var err error
		if v, err = d.follow(ref); err != nil {
			return nil, err
		}
	}
	return nil, errTooMuch
}

// follow is what a reference leads to. It leads nowhere but into the document (RFC 6901).
func (d document) follow(ref string) (any, error) {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, fmt.Errorf("got a reference to %.80q, want one that begins with #/, into the document", ref)
	}
	var v any = d.root
	for part := range strings.SplitSeq(path, "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch in := v.(type) {
		case map[string]any:
			v = in[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(in) {
				return nil, fmt.Errorf("the reference %.80q leads to nothing", ref)
			}
			v = in[i]
		default:
			v = nil
		}
		if v == nil {
			return nil, fmt.Errorf("the reference %.80q leads to nothing", ref)
		}
	}
	return v, nil
}

// schema is one of the document as a JSON Schema that refers to nothing.
func (d document) schema(raw any) (map[string]any, error) {
	in := inliner{doc: d}
	v, err := in.schema(raw, nil)
	if err != nil {
		return nil, err
	}
	if m, ok := v.(map[string]any); ok {
		return m, nil
	}
	return map[string]any{}, nil // true, or nothing: whatever it is
}

// inliner puts what references lead to in their places.
type inliner struct {
	doc   document
	nodes int
}

// dropped are keys of OpenAPI that mean nothing to a JSON Schema, or nothing to who writes arguments.
var dropped = []string{"discriminator", "xml", "externalDocs", "example", "examples", "nullable", "readOnly",
	"writeOnly", "$schema", "$id", "$anchor", "$dynamicAnchor"}

// schema copies a schema. open are the references that it stands in.
func (in *inliner) schema(raw any, open []string) (any, error) {
	m, ok := raw.(map[string]any)
	if in.nodes++; in.nodes > maxNodes || len(open) > maxLevel {
		return nil, errTooMuch
	}
	if !ok {
		return raw, nil
	}
	if ref, ok := m["$ref"].(string); ok {
		if slices.Contains(open, ref) { // it holds itself: nothing says how deep
			return map[string]any{"description": "as " + ref[strings.LastIndex(ref, "/")+1:]}, nil
		}
		to, err := in.doc.follow(ref)
		if err != nil {
			return nil, err
		}
		return in.schema(to, append(slices.Clip(open), ref))
	}
	out := map[string]any{}
	for key, v := range m {
		if slices.Contains(dropped, key) || strings.HasPrefix(key, "x-") {
			continue
		}
		made, err := in.keyword(key, v, append(slices.Clip(open), ""))
		if err != nil {
			return nil, err
		}
		out[key] = made
	}
	in.convertOpenAPI30(m, out)
	return out, nil
}

// keyword copies what stands at a key of a schema.
func (in *inliner) keyword(key string, v any, open []string) (any, error) {
	switch key {
	case "properties", "patternProperties", "dependentSchemas":
		m, _ := v.(map[string]any)
		out := map[string]any{}
		for name, raw := range m {
			p, err := in.schema(raw, open)
			if err != nil {
				return nil, err
			}
			if s, ok := raw.(map[string]any); ok && s["readOnly"] == true {
				continue // the server's to say
			}
			out[name] = p
		}
		return out, nil
	case "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
		"unevaluatedProperties":
		return in.schema(v, open)
	case "allOf", "anyOf", "oneOf", "prefixItems":
		list, _ := v.([]any)
		out := []any{}
		for _, raw := range list {
			s, err := in.schema(raw, open)
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		}
		return out, nil
	default:
		return v, nil
	}
}

// convertOpenAPI30 converts the keywords of OpenAPI 3.0 to JSON Schema.
func (in *inliner) convertOpenAPI30(from, to map[string]any) {
	if kind, ok := from["type"].(string); ok && from["nullable"] == true {
		to["type"] = []any{kind, "null"}
		if list, ok := from["enum"].([]any); ok && !slices.Contains(list, nil) {
			to["enum"] = append(slices.Clip(list), nil)
		}
	}
	for key, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		if exclusive, ok := from[key].(bool); ok {
			delete(to, key)
			if n, there := from[bound].(json.Number); there && exclusive {
				to[key] = n
				delete(to, bound)
			}
		}
	}
	required, _ := to["required"].([]any)
	properties, _ := from["properties"].(map[string]any)
	kept, _ := to["properties"].(map[string]any)
	if len(required) > 0 && len(properties) > len(kept) {
		to["required"] = slices.DeleteFunc(slices.Clone(required), func(name any) bool {
			s, _ := name.(string)
			return properties[s] != nil && kept[s] == nil
		})
	}
}
