package asl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// MaxData is the longest input, output or state data, in bytes of JSON, as Step Functions limits it.
const MaxData = 256 << 10

// maxDepth bounds the nesting of a definition.
const maxDepth = 100

// Values are what encoding/json makes of JSON: nil, bool, string, json.Number, []any and map[string]any. They are never
// changed once made, so states share them.

// decodeValue reads one JSON value; numbers keep their digits.
func decodeValue(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// encodeValue writes a value as compact JSON.
func encodeValue(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// sizeAtMost is a number of bytes that the JSON of v does not exceed. It is cheap.
func sizeAtMost(v any) int {
	const escaped, least = 6, 5 // \u0000; false
	size := least
	switch v := v.(type) {
	case string:
		size += escaped * len(v)
	case json.Number:
		size += len(v)
	case []any:
		for _, e := range v {
			size += 1 + sizeAtMost(e)
		}
	case map[string]any:
		for k, e := range v {
			size += 4 + escaped*len(k) + sizeAtMost(e)
		}
	}
	return size
}

// strictDecoder reads a definition: duplicate keys are errors, and every string value goes through text.
type strictDecoder struct {
	*json.Decoder
	text func(string) (string, error)
}

func decodeStrict(data []byte, text func(string) (string, error)) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("invalid UTF-8")
	}
	d := strictDecoder{Decoder: json.NewDecoder(bytes.NewReader(data)), text: text}
	d.UseNumber()
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

func (d strictDecoder) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '{' {
			return d.object(depth)
		}
		return d.array(depth)
	case string:
		return d.text(tok)
	default:
		return tok, nil
	}
}

func (d strictDecoder) object(depth int) (any, error) {
	m := map[string]any{}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return nil, err
		}
		key := tok.(string) // the decoder lets nothing else through
		if _, ok := m[key]; ok {
			return nil, fmt.Errorf("duplicate key %q", key)
		}
		if m[key], err = d.value(depth + 1); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	_, err := d.Token()
	return m, err
}

func (d strictDecoder) array(depth int) (any, error) {
	list := []any{}
	for d.More() {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", len(list), err)
		}
		list = append(list, v)
	}
	_, err := d.Token()
	return list, err
}
