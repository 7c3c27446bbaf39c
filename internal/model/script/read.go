package script

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

var errUnknownKey = errors.New("unknown key")

// keyError is an error with the key it is about; nested keys make a path.
type keyError struct {
	path string
	err  error
}

func (e *keyError) Error() string { return e.path + ": " + e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

// withKey prefixes an error with a key.
func withKey(key string, err error) error {
	var inner *keyError
	if errors.As(err, &inner) {
		return &keyError{path: key + "." + inner.path, err: inner.err}
	}
	return &keyError{path: key, err: err}
}

// eachMember calls f for each member of an object, in order, and refuses a key that is there twice.
func eachMember(raw []byte, f func(key string, value json.RawMessage) error) error {
	if !json.Valid(raw) || bytes.TrimSpace(raw)[0] != '{' {
		return errors.New("not a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		name := key.(string) // the decoder lets only strings be keys
		if seen[name] {
			return withKey(name, errors.New("key is there twice"))
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		if err := f(name, value); err != nil {
			return err
		}
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func readString(raw json.RawMessage) (s string, err error) {
	if isNull(raw) || json.Unmarshal(raw, &s) != nil {
		return "", errors.New("not a string")
	}
	return s, nil
}

func readName(raw json.RawMessage) (string, error) {
	s, err := readString(raw)
	if err == nil && s == "" {
		err = errors.New("empty")
	}
	return s, err
}

func readList(raw json.RawMessage) (l []json.RawMessage, err error) {
	if json.Unmarshal(raw, &l) != nil || len(l) == 0 {
		return nil, errors.New("not a list of one or more")
	}
	return l, nil
}

func readStrings(raw json.RawMessage) ([]string, error) {
	items, err := readList(raw)
	if err != nil {
		return nil, err
	}
	l := make([]string, len(items))
	for i, item := range items {
		if l[i], err = readString(item); err != nil {
			return nil, withKey(fmt.Sprint(i), err)
		}
	}
	return l, nil
}

// readObject is the compact text of an object.
func readObject(raw json.RawMessage) (string, error) {
	if err := eachMember(raw, func(string, json.RawMessage) error { return nil }); err != nil {
		return "", err
	}
	compacted, err := compact(raw)
	return string(compacted), err
}

// compact drops the space between tokens.
func compact(raw json.RawMessage) (json.RawMessage, error) {
	var b bytes.Buffer
	err := json.Compact(&b, raw)
	return b.Bytes(), err
}

func readTrue(raw json.RawMessage) error {
	if string(raw) != "true" {
		return errors.New("not true")
	}
	return nil
}

func readClass(raw json.RawMessage) (agent.ModelErrorClass, error) {
	s, err := readString(raw)
	if err != nil {
		return "", err
	}
	class := agent.ModelErrorClass(s)
	if !class.Valid() {
		return "", fmt.Errorf("%q is not a class of model errors", s)
	}
	return class, nil
}

func readUsage(raw json.RawMessage) (u run.Usage, err error) {
	err = eachMember(raw, func(key string, value json.RawMessage) error {
		var n int64
		if isNull(value) || json.Unmarshal(value, &n) != nil || n < 0 {
			return withKey(key, errors.New("not a whole number of at least 0"))
		}
		switch key {
		case "input":
			u.Input = n
		case "output":
			u.Output = n
		default:
			return withKey(key, errUnknownKey)
		}
		return nil
	})
	return u, err
}

func readCalls(raw json.RawMessage) ([]agent.ReplyCall, error) {
	items, err := readList(raw)
	if err != nil {
		return nil, err
	}
	calls := make([]agent.ReplyCall, len(items))
	for i, item := range items {
		if calls[i], err = readCall(item); err != nil {
			return nil, withKey(fmt.Sprint(i), err)
		}
	}
	return calls, nil
}

// readCall reads one call. Without an id the core mints one; without input it is {}.
func readCall(raw json.RawMessage) (agent.ReplyCall, error) {
	c := agent.ReplyCall{Input: json.RawMessage(`{}`)}
	err := eachMember(raw, func(key string, value json.RawMessage) (err error) {
		switch key {
		case "id":
			c.ID, err = readString(value)
		case "name":
			c.Name, err = readName(value)
		case "input":
			c.Input, err = compact(value)
		default:
			err = errUnknownKey
		}
		if err != nil {
			return withKey(key, err)
		}
		return nil
	})
	if err == nil && c.Name == "" {
		err = withKey("name", errors.New("missing"))
	}
	return c, err
}

// readReasoning reads reasoning: a text, an object, or a list of those.
func readReasoning(raw json.RawMessage) ([]run.RepliedReasoning, error) {
	if len(raw) == 0 || raw[0] != '[' {
		b, err := readThought(raw)
		return []run.RepliedReasoning{{Reasoning: b}}, err
	}
	items, err := readList(raw)
	if err != nil {
		return nil, err
	}
	all := make([]run.RepliedReasoning, len(items))
	for i, item := range items {
		if all[i].Reasoning, err = readThought(item); err != nil {
			return nil, withKey(fmt.Sprint(i), err)
		}
	}
	return all, nil
}

// readThought reads a text, {text, signature}, or {redacted}, which is base64.
func readThought(raw json.RawMessage) (b run.Reasoning, err error) {
	if len(raw) == 0 || raw[0] != '{' {
		b.Text, err = readName(raw)
		return b, err
	}
	err = eachMember(raw, func(key string, value json.RawMessage) (err error) {
		switch key {
		case "text":
			b.Text, err = readName(value)
		case "signature":
			b.Signature, err = readName(value)
		case "redacted":
			var s string
			if s, err = readName(value); err != nil {
				return withKey(key, err)
			}
			if b.Redacted, err = base64.StdEncoding.Strict().DecodeString(s); err != nil {
				err = errors.New("not base64")
			}
		default:
			err = errUnknownKey
		}
		if err != nil {
			return withKey(key, err)
		}
		return nil
	})
	if said := b.Text + b.Signature; err == nil && (said == "") == (b.Redacted == nil) {
		err = errors.New("not text and signature, or redacted alone")
	}
	return b, err
}

// lifecycles are the words of docs/scenarios.md, those of presets to come included.
var lifecycles = []string{"init", "tool_result", "output_error_feedback", "input", "nudge", "summary", "notes", "plan",
	"route", "synthesis"}

func checkWant(raw json.RawMessage) error {
	err := eachMember(raw, func(key string, value json.RawMessage) error {
		switch key {
		case "system", "turn", "messages", "tools", "exhausted", "output":
			return nil
		case "lifecycle":
			s, err := readString(value)
			if err == nil && s != "" && s[0] != '~' && !slices.Contains(lifecycles, s) {
				err = fmt.Errorf("%q is not one of %v", s, lifecycles)
			}
			if err != nil {
				return withKey("lifecycle", err)
			}
			return nil
		default:
			return withKey(key, errUnknownKey)
		}
	})
	if err != nil {
		return err
	}
	return Check(raw)
}

// Check says why want cannot be a pattern: it is not exactly one JSON value, an object has a key twice, or a string
// starting with ~ is not an RE2 expression. The error names the path.
func Check(want json.RawMessage) error {
	var one json.RawMessage
	if err := json.Unmarshal(want, &one); err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(one))
	dec.UseNumber()
	return checkValue(dec, "")
}

func checkValue(dec *json.Decoder, path string) error {
	tok, err := dec.Token()
	if err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '{' {
			return checkObject(dec, path)
		}
		for i := 0; dec.More(); i++ {
			if err := checkValue(dec, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return closing(dec)
	case string:
		if pattern, isPattern := strings.CutPrefix(tok, "~"); isPattern {
			if _, err := regexp.Compile(pattern); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return nil
}

func checkObject(dec *json.Decoder, path string) error {
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return fmt.Errorf("read JSON: %w", err)
		}
		key, at := tok.(string), Join(path, tok.(string)) // the decoder lets only strings be keys
		if seen[key] {
			return fmt.Errorf("%s: key is there twice", at)
		}
		seen[key] = true
		if err := checkValue(dec, at); err != nil {
			return err
		}
	}
	return closing(dec)
}

// closing reads the bracket after the last element.
func closing(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	return nil
}
