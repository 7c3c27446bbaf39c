package letter

import (
	"html"
	"testing"

	"pgregory.net/rapid"
)

// What is escaped is what the standard library escapes.
func TestC2Escape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`[&<>"'a;#]*`)).Draw(t, "text")
		if got, want := escape(s), html.EscapeString(s); got != want {
			t.Fatalf("%q: got %q, want %q", s, got, want)
		}
	})
}
