package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	Knows string // what this build reads there, such as: forms 1 to 1
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s: found %s, this build knows %s: written by a newer version; deploy it, or wait until it is deployed", e.What, e.Found, e.Knows)
}

// Is makes errors.Is(err, ErrNewer) true.
func (e *NewerError) Is(target error) bool { return target == ErrNewer }

// ReadStored decodes a stored form into v, a pointer. A key that v has no field for is a *NewerError: whoever wrote it meant something by it that this
// build would leave out. What follows the value, and a value of another shape, is an error like any other. What names the form in it.
func ReadStored(what string, data []byte, v any) error {
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
	return fmt.Errorf("%s: %w", what, err)
}

// eventForm splits an event's stored name: call_finished is its first form, call_finished/2 its second. A fact whose meaning changes gets the next form; one
// that only gains what may be left out does not.
func eventForm(name string) (base, form string) {
	base, form, found := strings.Cut(name, "/")
	if !found {
		form = "1"
	}
	return base, form
}

// unknownEvent says what this build knows instead of a name that it does not.
func unknownEvent(name string) error {
	base, form := eventForm(name)
	if _, known := eventTypes[base]; known {
		return &NewerError{What: "event " + base, Found: "form " + form, Knows: "form 1"}
	}
	return &NewerError{What: "event", Found: fmt.Sprintf("%q", Bounded(name)), Knows: fmt.Sprintf("%d others", len(eventTypes))}
}

// checkWords refuses a fact with a word that decides what happens and that this build does not know: folded, it would mean something else.
func checkWords(name string, e Event) error {
	switch e := e.(type) {
	case CallSuspended:
		if err := knownWord(name, "for", e.For, ForApproval, ForOutcome, ForInput, ForAnswer); err != nil {
			return err
		}
		return knownWord(name, "why", e.Why, WhyPolicyChanged, WhyStateChanged)
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
	return &NewerError{What: "event " + event + ": " + key, Found: fmt.Sprintf("%q", Bounded(string(w))), Knows: strings.Join(words, ", ")}
}
