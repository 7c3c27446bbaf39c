package jsonx

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Patch is one change of an object: it sets the value at a JSON Pointer (RFC 6901) to Value.
//
// Missing parents are created: a list if the next part of the path is "-", otherwise an object. In a list, an index
// replaces its element, and "-" or the list's length appends one. The path "" is the object itself, which should stay
// an object. A nil Value, which is not a JSON value, removes a member from its object; a missing member is ignored.
// null is a value like any other. Elements cannot be removed from a list, since that would move the others under
// concurrent patches: patch the whole list.
type Patch struct {
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// maxPathDepth is how many parts a patch's path may have.
const maxPathDepth = 32

// Check returns what is wrong with the patch itself, without an object.
func (p Patch) Check() error {
	path, err := ParsePointer(p.Path)
	switch {
	case err != nil:
		return err
	case !utf8.ValidString(p.Path):
		return errors.New("want a path in UTF-8")
	case len(path) > maxPathDepth:
		return fmt.Errorf("a path of %d parts, want at most %d", len(path), maxPathDepth)
	case p.Value == nil:
		return nil
	}
	_, err = CompactJSON(p.Value, JSONLimits{})
	return err
}

// Apply returns the tree after the patch. It writes into the tree, which is in the form of DecodeNumbers. Errors
// contain no value.
func (p Patch) Apply(tree any) (any, error) {
	path, err := ParsePointer(p.Path)
	if err != nil {
		return nil, err
	}
	if p.Value == nil {
		return edit(tree, path, missing{})
	}
	value, err := DecodeNumbers(p.Value)
	if err != nil {
		return nil, errors.New("want JSON as the value")
	}
	return edit(tree, path, value)
}

// missing represents a value that does not exist yet.
type missing struct{}

var (
	errNoIndex  = errors.New("the list has no such place; want the index of an element, its length or -")
	errScalar   = errors.New("what stands there is neither an object nor a list")
	errTakesOut = errors.New("an element is not taken out of a list; patch the list")
)

// edit returns v with value at path. If value is missing, it returns v without the member at path; at the root, an
// empty object.
func edit(v any, path []string, value any) (any, error) {
	_, removes := value.(missing)
	switch {
	case len(path) > 0:
	case removes:
		return map[string]any{}, nil
	default:
		return value, nil
	}
	switch v := v.(type) {
	case missing:
		if path[0] == "-" {
			return edit([]any{}, path, value)
		}
		return edit(map[string]any{}, path, value)
	case map[string]any:
		child, ok := v[path[0]]
		switch {
		case removes && !ok:
			return v, nil
		case removes && len(path) == 1:
			delete(v, path[0])
			return v, nil
		case !ok:
			child = missing{}
		}
		next, err := edit(child, path[1:], value)
		v[path[0]] = next
		return v, err
	case []any:
		i, ok := ArrayIndex(path[0])
		switch {
		case removes && len(path) == 1:
			return nil, errTakesOut
		case removes && (!ok || i >= len(v)):
			return v, nil
		case path[0] == "-":
			i = len(v)
		case !ok || i > len(v):
			return nil, errNoIndex
		}
		if i == len(v) {
			v = append(v, missing{})
		}
		next, err := edit(v[i], path[1:], value)
		v[i] = next
		return v, err
	default:
		if removes {
			return v, nil
		}
		return nil, errScalar
	}
}

// Lookup returns the value at a JSON Pointer (RFC 6901) in JSON that CompactJSON has accepted, in its spelling. For a
// pointer that leads nowhere it returns (nil, false, nil). An error means that the pointer or the JSON is malformed.
func Lookup(raw json.RawMessage, pointer string) (json.RawMessage, bool, error) {
	tokens, err := ParsePointer(pointer)
	if err != nil {
		return nil, false, err
	}
	for i, token := range tokens {
		found := false
		switch JSONKind(raw) {
		case '{':
			var members map[string]json.RawMessage
			err = json.Unmarshal(raw, &members)
			raw, found = members[token]
		case '[':
			var elements []json.RawMessage
			err = json.Unmarshal(raw, &elements)
			if at, ok := ArrayIndex(token); ok && at < len(elements) {
				raw, found = elements[at], true
			}
		}
		if err != nil {
			return nil, false, fmt.Errorf("look up %q: %w", FormatPointer(tokens[:i]), err)
		}
		if !found {
			return nil, false, nil
		}
	}
	return raw, true, nil
}

// ArrayIndex parses 0, or digits without a leading zero. "-" is the element after the last one and exists in no array.
func ArrayIndex(token string) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && strconv.Itoa(i) == token && i >= 0
}

// ParsePointer splits a pointer into unescaped tokens.
func ParsePointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	if pointer[0] != '/' {
		return nil, fmt.Errorf("json pointer: want a leading slash")
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, token := range tokens {
		rest := strings.ReplaceAll(strings.ReplaceAll(token, "~0", ""), "~1", "")
		if strings.Contains(rest, "~") {
			return nil, fmt.Errorf("json pointer: want ~0 or ~1 where there is a tilde")
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// FormatPointer returns unescaped tokens as a JSON Pointer.
func FormatPointer(tokens []string) string {
	var b strings.Builder
	for _, token := range tokens {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// ApplyPatches returns the JSON value after the patches, applied in order, in canonical form. An error names the path
// that does not fit and why, but no value. The argument is not changed.
func ApplyPatches(value json.RawMessage, patches []Patch) (json.RawMessage, error) {
	tree, err := DecodeNumbers(value)
	if err != nil {
		return nil, errors.New("the state is not JSON")
	}
	for _, p := range patches {
		if tree, err = p.Apply(tree); err != nil {
			return nil, fmt.Errorf("at %s: %w", ShownPath(p.Path), err)
		}
	}
	return AppendCanonical(nil, tree), nil
}

// PatchOverlap returns the first two patches, one of each list, that change the same value; false if none do. A
// malformed path counts as the whole value.
func PatchOverlap(a, b []Patch) (i, j int, found bool) {
	for i := range a {
		path, _ := ParsePointer(a[i].Path)
		for j := range b {
			if other, _ := ParsePointer(b[j].Path); overlap(path, other) {
				return i, j, true
			}
		}
	}
	return 0, 0, false
}

// overlap reports whether one path leads to the other's value or into it. Two paths with "-" at a common place overlap
// in any case, because "-" decides what a missing parent becomes and in which order a list grows.
func overlap(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == "-" || b[i] == "-":
			return true
		case a[i] != b[i]:
			return false
		}
	}
	return true
}
