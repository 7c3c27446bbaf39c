package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
)

// storedLimits are those of what is stored: the bounds of what went into it are kept when it is written.
func storedLimits(data []byte) jsonx.JSONLimits {
	return jsonx.JSONLimits{Bytes: len(data) + 1, Depth: 256}
}

// ReadStored decodes a stored form into v, a pointer. It refuses whatever this version does not write: a key that v has
// no field for, a key twice or in other capitals, a value of another kind, anything behind the value. What names the
// form in the error. Raw JSON within v is as it was stored, to the byte.
func ReadStored(what string, data []byte, v any) error {
	if err := checkStored(data, v); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return readKnown(what, data, v)
}

// checkStored checks what a decoder would let pass.
func checkStored(data []byte, v any) error {
	if _, err := jsonx.CompactJSON(data, storedLimits(data)); err != nil {
		return err
	}
	if of := reflect.TypeOf(v); of.Elem().Kind() == reflect.Struct && jsonx.JSONKind(data) != '{' {
		return &jsonx.JSONError{Want: "an object"}
	}
	return jsonx.FieldCheck{Others: true}.Value(data, reflect.TypeOf(v), "")
}

// readKnown is ReadStored of what has been checked as part of a larger form.
func readKnown(what string, data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", what, jsonx.WithoutValue(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: want nothing behind the value", what)
	}
	return nil
}

// checkWords refuses a fact with a word that decides what happens and that this build does not know: folded, it would
// mean something else.
func checkWords(name string, e Event) error {
	switch e := e.(type) {
	case CallSuspended:
		if err := checkWord(name, "for", e.For, ForApproval, ForOutcome, ForInput, ForAnswer); err != nil {
			return err
		}
		return checkWord(name, "why", e.Why, WhyPolicyChanged, WhyStateChanged, WhyMiscounted)
	case Decided:
		return checkWord(name, "action", e.Action, ActionApprove, ActionDeny, ActionCancel, ActionFail, ActionAskAgain)
	case DecisionKept:
		return checkWord(name, "action", e.Action, ActionApprove, ActionDeny, ActionCancel, ActionFail, ActionAskAgain)
	default:
		return nil
	}
}

// checkWord refuses a word that is neither empty nor one of these.
func checkWord[W ~string](event, key string, w W, known ...W) error {
	if w == "" || slices.Contains(known, w) {
		return nil
	}
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	return fmt.Errorf("event %s: %s: want one of: %s", event, key, strings.Join(words, ", "))
}
