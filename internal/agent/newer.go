package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// ErrNewer is what every NewerError is: a newer version of this product wrote what was to be read.
var ErrNewer = errors.New("written by a newer version")

// NewerError says that a stored form is one that this build does not know. Nothing is wrong with it: whoever meets one writes nothing, and leaves what it is
// about as it is, for the version that wrote it. It matches ErrNewer.
type NewerError struct {
	What  string // what was read, such as: entry
	Found string // what stands there, such as: form 2
	Knows string // what this build reads there, such as: form 1
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s: found %s, this build knows %s: written by a newer version; deploy it, or wait until it is deployed", e.What, e.Found, e.Knows)
}

// Is makes errors.Is(err, ErrNewer) true.
func (e *NewerError) Is(target error) bool { return target == ErrNewer }

// storedLimits are those of what is stored: the bounds of what went into it are kept when it is written.
func storedLimits(data []byte) JSONLimits { return JSONLimits{Bytes: len(data) + 1, Depth: 256} }

// ReadStored decodes a stored form into v, a pointer. A key that v has no field for is a *NewerError: whoever wrote it meant something by it that this
// build would leave out. What no version writes is an error like any other: what is no JSON, or has a key twice, one in other capitals, a value of another
// kind or anything behind it. What names the form in it. Raw JSON within v is as it was stored, to the byte.
func ReadStored(what string, data []byte, v any) error {
	if err := checkStored(data, v); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return readKnown(what, data, v)
}

// ReadView is ReadStored of a view or a convenience: keys that this build does not know are left out, since nothing hangs on them.
func ReadView(what string, data []byte, v any) error {
	err := checkStored(data, v)
	if err == nil {
		err = withoutValue(json.Unmarshal(data, v))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// checkStored refuses what no version writes.
func checkStored(data []byte, v any) error {
	if _, err := CompactJSON(data, storedLimits(data)); err != nil {
		return err
	}
	if of := reflect.TypeOf(v); of.Elem().Kind() == reflect.Struct && jsonKind(data) != '{' {
		return &JSONError{Want: "an object"}
	}
	return fieldCheck{others: true}.value(data, reflect.TypeOf(v), "")
}

// readKnown is ReadStored of what has been checked as part of a larger form.
func readKnown(what string, data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return newerKey(what, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: want nothing behind the value", what)
	}
	return nil
}

// unknownKey is how encoding/json begins to say that there is no field for a key; it has no type for it.
const unknownKey = "json: unknown field "

func newerKey(what string, err error) error {
	var newer *NewerError
	if errors.As(err, &newer) { // of a type that decodes itself
		return err
	}
	if key, ok := strings.CutPrefix(err.Error(), unknownKey); ok {
		return &NewerError{What: what, Found: "the key " + key, Knows: "no such key"}
	}
	return fmt.Errorf("%s: %w", what, withoutValue(err))
}

// UnknownWord is the error of a word that decides what happens and that this build does not know: a *NewerError, unless no version would write such a
// word. Words are of small letters, digits and underscores.
func UnknownWord(what, word, knows string) error {
	for _, c := range []byte(word) {
		if (c < 'a' || c > 'z') && !isDigit(c) && c != '_' {
			word = ""
			break
		}
	}
	if word == "" {
		return fmt.Errorf("%s: want one of: %s", what, knows)
	}
	return &NewerError{What: what, Found: fmt.Sprintf("%q", Bounded(word)), Knows: knows}
}

// checkWords refuses a fact with a word that decides what happens and that this build does not know: folded, it would mean something else.
func checkWords(name string, e Event) error {
	switch e := e.(type) {
	case CallSuspended:
		if err := knownWord(name, "for", e.For, ForApproval, ForOutcome, ForInput, ForAnswer); err != nil {
			return err
		}
		return knownWord(name, "why", e.Why, WhyPolicyChanged, WhyStateChanged, WhyMiscounted)
	case Decided:
		return knownWord(name, "action", e.Action, ActionApprove, ActionDeny, ActionCancel, ActionFail, ActionAskAgain)
	case DecisionKept:
		return knownWord(name, "action", e.Action, ActionApprove, ActionDeny, ActionCancel, ActionFail, ActionAskAgain)
	default:
		return nil
	}
}

// knownWord refuses a word that is neither empty nor one of these.
func knownWord[W ~string](event, key string, w W, known ...W) error {
	if w == "" || slices.Contains(known, w) {
		return nil
	}
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	return UnknownWord("event "+event+": "+key, string(w), strings.Join(words, ", "))
}
