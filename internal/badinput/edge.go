package badinput

import (
	"strings"
	"testing"
)

// Answer is what an edge gives to an input.
type Answer struct {
	Code string // of the error; "" = it was taken
	Says string // what the sender is told is wrong
	More string // all else that is sent back: headers, a page
}

// Edge is where input comes in.
type Edge struct {
	Send   func(c Case) Answer
	Code   string        // of the error that input gets which cannot be read
	State  func() string // all that is stored or was sent out
	Heard  func() string // all that was logged and measured
	before *string       // State as of before, once there was a case
	Quotes bool          // what the sender is told may quote, at most maxQuoted characters of, what stands in place of a name
}

// maxQuoted is how many characters an error quotes at most.
const maxQuoted = 400

// Refuses sends a case. It must be refused by the right error, which names the key; nothing may be written or sent, and
// nothing of it told to others.
func (e *Edge) Refuses(t testing.TB, c Case) {
	t.Helper()
	if e.before == nil {
		e.before = new(string)
		*e.before = e.State()
	}
	got := e.Send(c)
	want := c.Code
	if want == "" {
		want = e.Code
	}
	if got.Code != want {
		t.Errorf("%s: got %q (%.300s), want %q", c, got.Code, got.Says, want)
	}
	after := e.State()
	if after != *e.before {
		t.Fatalf("%s: something was written:\n%s\nafter it got %q", c, difference(*e.before, after), got.Code)
	}
	if !c.Mute && c.Key != "" && !ofState(want) && !strings.Contains(strings.ToLower(got.Says), strings.ToLower(c.Name())) {
		t.Errorf("%s: the error does not name the key: %.300s", c, got.Says)
	}
	e.silent(t, c, got)
}

// ofState reports whether an error is about what there is, and not about how the input is written: it names that.
func ofState(code string) bool {
	return strings.HasPrefix(code, "404") || strings.HasPrefix(code, "409") || strings.HasPrefix(code, "413")
}

// silent fails where something of the input is heard elsewhere than in the answer, or too much of it there.
func (e *Edge) silent(t testing.TB, c Case, got Answer) {
	t.Helper()
	if heard := e.Heard(); strings.Contains(heard, Canary) {
		t.Errorf("%s: a log or a metric has it: %.300s", c, around(heard))
	}
	if strings.Contains(got.More, Canary) {
		t.Errorf("%s: what is sent back has it: %.300s", c, around(got.More))
	}
	if strings.Contains(got.Says, Canary) && !e.Quotes {
		t.Errorf("%s: the error has it: %.300s", c, got.Says)
	}
	if strings.Contains(got.Says, Canary) && len(got.Says) > maxQuoted {
		t.Errorf("%s: the error has %d bytes: %.300s", c, len(got.Says), got.Says)
	}
	for _, secret := range []string{"goroutine ", "Go struct", "Go value", "a Go "} {
		if strings.Contains(got.Says+got.More, secret) {
			t.Errorf("%s: the error tells of the program: %.300s", c, got.Says)
		}
	}
}

// Takes sends an input that is good.
func (e *Edge) Takes(t testing.TB, what, body string) {
	t.Helper()
	if got := e.Send(Case{What: what, Body: []byte(body)}); got.Code != "" {
		t.Errorf("%s: want it to be taken, got %q: %.300s", what, got.Code, got.Says)
	}
}

func around(text string) string {
	at := strings.Index(text, Canary)
	return text[max(0, at-150):min(len(text), at+50)]
}

func difference(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return "before: " + a[max(0, i-100):min(len(a), i+200)] + "\nafter:  " + b[max(0, i-100):min(len(b), i+200)]
}
