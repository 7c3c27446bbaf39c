package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// parentSubject is the correlation key that travels in a start's input and is not the model's business (seed 000).
const parentSubject = "parentSubject$$"

// StartMessages are a run's first messages: what a user said, or the input as one user text, less the parent-subject key. Exactly
// one of the two must be given; input must be strict JSON.
func StartMessages(said []UserBlock, input json.RawMessage) ([]UserBlock, error) {
	switch {
	case len(said) > 0 && input != nil:
		return nil, errors.New("message and input are given; want one of them")
	case len(said) > 0:
		return said, nil
	case input == nil:
		return nil, errors.New("nothing to start with; want message or input")
	}
	text, err := CompactJSON(input, JSONLimits{})
	if err != nil {
		return nil, err
	}
	if text, err = withoutParent(text); err != nil {
		return nil, err
	}
	return []UserBlock{{Text{Text: string(text)}}}, nil
}

// withoutParent drops the parent-subject key of an object and keeps the order and digits of the rest.
func withoutParent(raw json.RawMessage) (json.RawMessage, error) {
	return editMembers(raw, func(key string, value json.RawMessage) (json.RawMessage, error) {
		if key == parentSubject {
			return nil, nil
		}
		return value, nil
	})
}

// editMembers is an object with what edit makes of each member's value, nil for a member that goes. What is no object stays as it is.
func editMembers(raw json.RawMessage, edit func(key string, value json.RawMessage) (json.RawMessage, error)) (json.RawMessage, error) {
	if jsonKind(raw) != '{' {
		return raw, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out := []byte{'{'}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		name, _ := k.(string) // the decoder lets only strings be keys
		if v, err = edit(name, v); err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		key, err := MarshalVerbatim(name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), v...)
	}
	return append(out, '}'), nil
}

// ParseMessage reads a message as people send it: a string, or a list of content blocks that a user may say. Media have the form that
// Media.Check wants; whether their blobs are there is not looked at.
func ParseMessage(raw json.RawMessage) ([]UserBlock, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		if text == "" {
			return nil, errors.New("the message is empty")
		}
		return []UserBlock{{Text{Text: text}}}, nil
	}
	var blocks []UserBlock
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return nil, errors.New("want a string or a list of content blocks")
	}
	if len(blocks) == 0 {
		return nil, errors.New("the message is empty")
	}
	if err := userMaySay("message", blocks); err != nil {
		return nil, err
	}
	return blocks, checkMedia(blocks)
}

// checkMedia refuses media that are not whole, or too many of them.
func checkMedia(blocks []UserBlock) error {
	n := 0
	for i, b := range blocks {
		m, ok := b.Block.(Media)
		if !ok {
			continue
		}
		if n++; n > MaxMessageMedia {
			return fmt.Errorf("want at most %d media in a message", MaxMessageMedia)
		}
		if err := m.Check(); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
	}
	return nil
}
