package badinput_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/badinput"
)

// recorder is a test that records its failures.
type recorder struct {
	testing.TB
	failures []string
}

func (h *recorder) Helper() {}

func (h *recorder) Errorf(format string, args ...any) {
	h.failures = append(h.failures, fmt.Sprintf(format, args...))
}

func (h *recorder) Fatalf(format string, args ...any) { h.Errorf(format, args...) }

// RequireRefused fails for each thing that an edge can do wrong, and for none that it does right.
func TestRequireRefused(t *testing.T) {
	for what, c := range map[string]struct {
		got    badinput.Answer
		writes bool
		log    string
		fails  string
	}{
		"right":                 {got: badinput.Answer{Code: "400", Message: "amount: want a number"}},
		"taken":                 {got: badinput.Answer{}, fails: `got ""`},
		"another error":         {got: badinput.Answer{Code: "500", Message: "amount"}, fails: `got "500"`},
		"a write":               {got: badinput.Answer{Code: "400", Message: "amount"}, writes: true, fails: "something was written"},
		"no key":                {got: badinput.Answer{Code: "400", Message: "bad"}, fails: "does not name the key"},
		"an echo in the error":  {got: badinput.Answer{Code: "400", Message: "amount: got " + badinput.Canary}, fails: "the error has it"},
		"an echo in a header":   {got: badinput.Answer{Code: "400", Message: "amount", Other: "X: " + badinput.Canary}, fails: "what is sent back has it"},
		"an echo in a log":      {got: badinput.Answer{Code: "400", Message: "amount"}, log: "read " + badinput.Canary, fails: "a log or a metric has it"},
		"words of the program":  {got: badinput.Answer{Code: "400", Message: "amount: cannot unmarshal into Go value"}, fails: "tells of the program"},
		"a quotation too long ": {got: badinput.Answer{Code: "400", Message: "amount: " + badinput.Canary + strings.Repeat("x", 400)}, fails: "bytes"},
	} {
		t.Run(what, func(t *testing.T) {
			h, state := &recorder{TB: t}, ""
			e := &badinput.Edge{
				Code: "400", State: func() string { return state }, Observed: func() string { return c.log },
				Send: func(badinput.Case) badinput.Answer {
					if c.writes {
						state = "row"
					}
					return c.got
				},
			}
			e.RequireRefused(h, badinput.Case{Key: "/amount"})
			if c.fails == "" {
				require.Empty(t, h.failures)
				return
			}
			require.Contains(t, strings.Join(h.failures, "\n"), c.fails)
		})
	}
}

// Each case is another text than the good one, and breaks it in the way that it says.
func TestCases(t *testing.T) {
	const good = `{"a":"x","list":[{"n":1}]}`
	table := map[string]badinput.Field{"/a": {Takes: "s", Required: true, Max: 20, Bad: map[string]string{`""`: "404"}}, "/list": {Takes: "a"}, "/list/0/n": {Takes: "i"}}
	seen := map[string]bool{}
	for _, c := range append(badinput.Cases(good, table), badinput.WholeCases(good)...) {
		require.NotEqual(t, good, string(c.Body), c.String())
		seen[c.String()] = true
	}
	for _, want := range []string{"/a: left out", "/a: null", "/a: of kind n", "/a: a byte too long", "/a: given twice", "/list/0/n: the number 1e999", "/zzz: an unknown key", "/list/0/zzz: an unknown key"} {
		require.True(t, seen[want], want)
	}
	require.JSONEq(t, `{"list":[{"n":1}]}`, badinput.Without(good, "/a"))
	require.JSONEq(t, `{"a":"x","list":[{"n":2}]}`, badinput.With(good, "/list/0/n", "2"))
}

func TestKeysOfATypeAreAllItsKeys(t *testing.T) {
	type under struct {
		N    int             `json:"n"`
		When time.Time       `json:"when"`
		Any  json.RawMessage `json:"any"`
	}
	type whole struct {
		under
		List   []under           `json:"list"`
		By     *under            `json:"by,omitempty"`
		Texts  []string          `json:"texts"`
		Labels map[string]string `json:"labels"`
		hidden int
		Left   int `json:"-"`
	}
	require.Zero(t, whole{}.hidden)
	require.Equal(t, []string{
		"/any", "/by", "/by/any", "/by/n", "/by/when", "/labels", "/list", "/list/0/any", "/list/0/n", "/list/0/when", "/n", "/texts", "/when",
	}, badinput.Keys(reflect.TypeFor[whole]()))
}
