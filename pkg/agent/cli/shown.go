package cli

import (
	"github.com/countersign/countersign/internal/people/show"
)

// What foreign text and moments look like, on one line and on several.
var (
	line  = show.Line
	lines = show.Lines
	stamp = show.FormatTime
)

// text is foreign text as a value: in quotes, unambiguous, with secrets masked.
func text(s string) string { return `"` + show.Foreign(s).String() + `"` }

// cut shortens a line of progress. What is decided on is never cut.
func cut(s string, limit int) string {
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	return string(r[:limit]) + "…"
}
