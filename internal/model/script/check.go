package script

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

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
