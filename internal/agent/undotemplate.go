package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// undoPlace is a value of an undo's arguments that is taken from elsewhere: an object of one key, result or args.
type undoPlace struct {
	from    string // result or args
	pointer string
}

// placeIn reads {"result": "/pointer"} and {"args": "/pointer"}; false for any other value.
func placeIn(raw json.RawMessage) (undoPlace, bool) {
	if jsonKind(raw) != '{' {
		return undoPlace{}, false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || len(members) != 1 {
		return undoPlace{}, false
	}
	for _, from := range []string{"result", "args"} {
		if pointer, ok := jsonString(members[from]); ok {
			return undoPlace{from, pointer}, true
		}
	}
	return undoPlace{}, false
}

// filledUndo is the template of an undo's arguments with what find gives for its places. The order of keys and the spelling of values stay.
func filledUndo(template json.RawMessage, find func(undoPlace) (json.RawMessage, error)) (json.RawMessage, error) {
	if p, ok := placeIn(template); ok {
		return find(p)
	}
	fill := func(v json.RawMessage) (json.RawMessage, error) { return filledUndo(v, find) }
	switch jsonKind(template) {
	case '{':
		return editMembers(template, func(_ string, v json.RawMessage) (json.RawMessage, error) { return fill(v) })
	case '[':
		return filledElements(template, fill)
	default:
		return template, nil
	}
}

func filledElements(list json.RawMessage, fill func(json.RawMessage) (json.RawMessage, error)) (json.RawMessage, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal(list, &elements); err != nil {
		return nil, err
	}
	for i, v := range elements {
		var err error
		if elements[i], err = fill(v); err != nil {
			return nil, err
		}
	}
	return append(append([]byte{'['}, bytes.Join(bytesOf(elements), []byte{','})...), ']'), nil
}

func bytesOf(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

// checkUndoArgs is what is wrong with a template: it is no object, or a place of it names no JSON Pointer.
func checkUndoArgs(template json.RawMessage) error {
	compact, err := CompactJSON(template, JSONLimits{})
	if err != nil || jsonKind(compact) != '{' {
		return errors.New("got something else, want a mapping")
	}
	if _, is := placeIn(compact); is {
		return errors.New("got one place for all arguments, want a mapping of arguments")
	}
	_, err = filledUndo(compact, func(p undoPlace) (json.RawMessage, error) {
		if _, err := parsePointer(p.pointer); err != nil {
			return nil, fmt.Errorf("%s: %w", p.from, err)
		}
		return json.RawMessage("null"), nil
	})
	return err
}
