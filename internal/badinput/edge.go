package badinput

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign/countersign/internal/store"
)

// Answer is an edge's answer to an input.
type Answer struct {
	Code    string // of the error; "" = the input was accepted
	Message string // the error message to the sender
	Other   string // the rest of the answer: headers, a page
}

// Edge is a place where input enters the program.
type Edge struct {
	Send     func(c Case) Answer
	Code     string        // of the error for unreadable input
	State    func() string // everything that is stored or was sent out
	Observed func() string // everything that was logged and measured
	before   *string       // State before the first case
	Quotes   bool          // the error message may quote at most maxQuoted characters of the input
}

// maxQuoted is the largest number of characters that an error quotes.
const maxQuoted = 400

// RequireRefused sends a case. The edge must return the right error, which names the key. Nothing may be written, sent
// or logged of the input.
func (e *Edge) RequireRefused(t testing.TB, c Case) {
	t.Helper()
	if e.before == nil {
		e.before = new(e.State())
	}
	got := e.Send(c)
	want := cmp.Or(c.Code, e.Code)
	if got.Code != want {
		t.Errorf("%s: got %q (%.300s), want %q", c, got.Code, got.Message, want)
	}
	after := e.State()
	if after != *e.before {
		t.Fatalf("%s: something was written:\n%s\nafter it got %q", c, difference(*e.before, after), got.Code)
	}
	// Errors about stored objects are not about the form of the input.
	isOfState := strings.HasPrefix(want, "404") || strings.HasPrefix(want, "409") || strings.HasPrefix(want, "413")
	if !c.KeyNotNamed && c.Key != "" && !isOfState && !strings.Contains(strings.ToLower(got.Message),
		strings.ToLower(c.Name())) {
		t.Errorf("%s: the error does not name the key: %.300s", c, got.Message)
	}
	// The input must not leak outside the answer, and the answer must not quote too much of it.
	if observed := e.Observed(); strings.Contains(observed, Canary) {
		t.Errorf("%s: a log or a metric has it: %.300s", c, excerpt(observed))
	}
	if strings.Contains(got.Other, Canary) {
		t.Errorf("%s: what is sent back has it: %.300s", c, excerpt(got.Other))
	}
	if strings.Contains(got.Message, Canary) && !e.Quotes {
		t.Errorf("%s: the error has it: %.300s", c, got.Message)
	}
	if strings.Contains(got.Message, Canary) && len(got.Message) > maxQuoted {
		t.Errorf("%s: the error has %d bytes: %.300s", c, len(got.Message), got.Message)
	}
	for _, secret := range []string{"goroutine ", "Go struct", "Go value", "a Go "} {
		if strings.Contains(got.Message+got.Other, secret) {
			t.Errorf("%s: the error tells of the program: %.300s", c, got.Message)
		}
	}
}

// RequireAccepted sends a valid input.
func (e *Edge) RequireAccepted(t testing.TB, what, body string) {
	t.Helper()
	if got := e.Send(Case{What: what, Body: []byte(body)}); got.Code != "" {
		t.Errorf("%s: want it to be taken, got %q: %.300s", what, got.Code, got.Message)
	}
}

func excerpt(text string) string {
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

// State formats the content of memory tables, memory blobs, folders (by path) and other values (as JSON). It panics if
// one of them cannot be read.
func State(all ...any) string {
	out := ""
	for _, one := range all {
		switch held := one.(type) {
		case *store.Memory:
			for _, it := range held.All() {
				out += fmt.Sprintf("%v %v %v %v %q\n", it.Key, it.Attrs, it.Index, it.IndexSort, it.Body)
			}
		case *store.MemoryBlobs:
			out += strings.Join(held.Names(), "\n")
		case string:
			must(filepath.WalkDir(held, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				data, err := os.ReadFile(path)
				out += fmt.Sprintf("%s %x\n", path, store.BlobDigest(data))
				return err
			}))
		default:
			data, err := json.Marshal(held)
			must(err)
			out += string(data)
		}
		out += "\n"
	}
	return out
}

func must(err error) {
	if err != nil {
		panic("badinput: " + err.Error())
	}
}
