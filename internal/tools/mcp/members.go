package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// errNoObject is the error of what was to be an object with keys.
var errNoObject = errors.New("want an object")

// members are the values of an object by their keys, as they came; the spelling of a key counts. Each of once may be
// there once: of two values, which one is meant would be a guess. A key that is null is there. Other errors than those
// are errNoObject.
func members(raw json.RawMessage, once ...string) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errNoObject
	}
	all := map[string]json.RawMessage{}
	for dec.More() {
		token, err := dec.Token()
		key, named := token.(string)
		var value json.RawMessage
		if err != nil || !named || dec.Decode(&value) != nil {
			return nil, errNoObject
		}
		if _, twice := all[key]; twice && slices.Contains(once, key) {
			return nil, fmt.Errorf("want the key %s once", key)
		}
		all[key] = value
	}
	return all, nil
}

// member decodes a key into one of its values; where it is missing or null, into keeps what it has. want says what it
// should be.
func member(all map[string]json.RawMessage, key string, into any, want string) error {
	raw, there := all[key]
	if !there || string(raw) == "null" {
		return nil
	}
	if json.Unmarshal(raw, into) != nil {
		return fmt.Errorf("want %s for the key %s", want, key)
	}
	return nil
}
