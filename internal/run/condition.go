package run

import (
	"encoding/json"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
)

// Condition compares the value at a JSON Pointer of a call's arguments.
type Condition = jsonx.Condition

// Checked is what a precondition gave when people were asked.
type Checked struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
	// its text; with Compare an object of these values by pointer, without those that are not there
	Content string    `json:"content"`
	IsError bool      `json:"isError,omitempty"`
	At      time.Time `json:"at"`
	// what it gave when people were last asked about the call, which is why they are asked again; nil = this is the first
	// time
	Was *Was `json:"was,omitempty"`
}

// Was is what a precondition gave before.
type Was struct {
	Args    json.RawMessage `json:"args"`
	Content string          `json:"content"`
	IsError bool            `json:"isError,omitempty"`
	At      time.Time       `json:"at"`
}

// Same reports whether both gave the same of the same.
func (k Checked) Same(o Checked) bool {
	return k.Tool == o.Tool && string(k.Args) == string(o.Args) && k.IsError == o.IsError &&
		jsonx.CanonicalText(json.RawMessage(k.Content)) == jsonx.CanonicalText(json.RawMessage(o.Content))
}

// Voice is one approval as the desk recorded it: who the person is was authenticated when they decided.
type Voice struct {
	By     string    `json:"by"`
	Groups []string  `json:"groups,omitempty"`
	At     time.Time `json:"at"`
	Tools  []string  `json:"tools,omitempty"` // of a request about tools: those that are approved, by original name

	Via       Via     `json:"via,omitempty"`
	Confirmed Confirm `json:"confirmed,omitempty"`
}
