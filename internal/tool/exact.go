package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a number in JSON we accept. They keep exact arithmetic cheap: 1e999999999 would be a gigabyte.
const (
	maxNumberBytes    = 256
	maxNumberExponent = 400
)

// exactJSON reads JSON that is checked or acted upon (reliability.md R13): duplicate keys, invalid UTF-8 and trailing
// data are refused, numbers keep their digits. Its errors are fit for a model.
type exactJSON struct {
	maxBytes, maxDepth, maxValues int

	dec    *json.Decoder
	values int
}

// decode returns map[string]any, []any, string, json.Number, bool or nil.
func (x *exactJSON) decode(raw []byte) (any, error) {
	if len(raw) > x.maxBytes {
		return nil, fmt.Errorf("%d bytes of JSON, at most %d are read", len(raw), x.maxBytes)
	}
	if !utf8.Valid(raw) {
		return nil, errors.New("the JSON is not UTF-8")
	}
	var whole json.RawMessage // exactly one JSON value
	if err := json.Unmarshal(raw, &whole); err != nil {
		var syntax *json.SyntaxError
		switch {
		case len(bytes.TrimSpace(raw)) == 0:
			return nil, errors.New("there is no JSON, give an object such as {}")
		case errors.As(err, &syntax):
			return nil, fmt.Errorf("not valid JSON at byte %d", syntax.Offset)
		default:
			return nil, errors.New("not valid JSON")
		}
	}
	x.dec = json.NewDecoder(bytes.NewReader(raw))
	x.dec.UseNumber()
	return x.value(1)
}

// value reads the next value; depth counts the containers around it, itself included.
func (x *exactJSON) value(depth int) (any, error) {
	if x.values++; x.values > x.maxValues {
		return nil, fmt.Errorf("more than %d values", x.maxValues)
	}
	tok, err := x.dec.Token()
	if err != nil {
		return nil, errors.New("not valid JSON")
	}
	switch t := tok.(type) {
	case json.Delim:
		if depth > x.maxDepth {
			return nil, fmt.Errorf("nested deeper than %d levels", x.maxDepth)
		}
		if t == '{' {
			return x.object(depth)
		}
		arr := []any{}
		for x.dec.More() {
			v, err := x.value(depth + 1)
			if err != nil {
				return nil, err
			}
			arr = append(arr, v)
		}
		return arr, x.end()
	case json.Number:
		return t, checkNumber(t)
	default:
		return tok, nil
	}
}

func (x *exactJSON) object(depth int) (any, error) {
	obj := map[string]any{}
	for x.dec.More() {
		tok, err := x.dec.Token()
		key, ok := tok.(string)
		if err != nil || !ok {
			return nil, errors.New("not valid JSON")
		}
		if _, twice := obj[key]; twice {
			return nil, fmt.Errorf("the key %s is given twice in one object", shortQuote(key))
		}
		if obj[key], err = x.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return obj, x.end()
}

// end takes the closing bracket.
func (x *exactJSON) end() error {
	if _, err := x.dec.Token(); err != nil {
		return errors.New("not valid JSON")
	}
	return nil
}

// checkNumber refuses numbers too long or too large for exact arithmetic.
func checkNumber(n json.Number) error {
	if len(n) > maxNumberBytes {
		return fmt.Errorf("a number of %d characters, at most %d are read", len(n), maxNumberBytes)
	}
	_, exponent, ok := strings.Cut(strings.ToLower(string(n)), "e")
	if !ok {
		return nil
	}
	if e, err := strconv.Atoi(exponent); err != nil || e > maxNumberExponent || e < -maxNumberExponent {
		return fmt.Errorf("the number %s is out of range", n)
	}
	return nil
}
