package jsonx

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Lookup finds the value at a JSON Pointer (RFC 6901) in JSON that CompactJSON has accepted, and returns it as it is
// spelled. A pointer that leads nowhere is (nil, false, nil); an error means that the pointer or the JSON is malformed.
func Lookup(raw json.RawMessage, pointer string) (json.RawMessage, bool, error) {
	tokens, err := ParsePointer(pointer)
	if err != nil {
		return nil, false, err
	}
	for i, token := range tokens {
		next, ok, err := child(raw, token)
		if err != nil {
			return nil, false, fmt.Errorf("look up %q: %w", FormatPointer(tokens[:i]), err)
		}
		if !ok {
			return nil, false, nil
		}
		raw = next
	}
	return raw, true, nil
}

func child(raw json.RawMessage, token string) (json.RawMessage, bool, error) {
	switch JSONKind(raw) {
	case '{':
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return nil, false, err
		}
		v, ok := members[token]
		return v, ok, nil
	case '[':
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &elements); err != nil {
			return nil, false, err
		}
		i, ok := ArrayIndex(token)
		if !ok || i >= len(elements) {
			return nil, false, nil
		}
		return elements[i], true, nil
	}
	return nil, false, nil
}

// ArrayIndex reads 0, or digits without a leading zero; "-" is the element after the last and exists in no array.
func ArrayIndex(token string) (int, bool) {
	if token == "" || digitsLength([]byte(token)) != len(token) || len(token) > 1 && token[0] == '0' {
		return 0, false
	}
	i, err := strconv.Atoi(token)
	return i, err == nil
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

// FormatPointer writes unescaped tokens as a JSON Pointer.
func FormatPointer(tokens []string) string {
	var b strings.Builder
	for _, token := range tokens {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1"))
	}
	return b.String()
}
