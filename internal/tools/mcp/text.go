package mcp

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible is text in which nothing hides: bytes that are no UTF-8 are replaced, and characters that are not seen, or
// that change how others are seen (controls, directions, joiners, tags), stand there by their number, as in <U+202E>.
// Line breaks and tabs stay.
func visible(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, "<U+%04X>", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Co, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r):
		return true
	default:
		return unicode.Is(unicode.Variation_Selector, r) && r > 0xFE0F || r == 0x115F || r == 0x1160 || r == 0x3164 || r == 0xFFA0 // fillers
	}
}

// bounded is the beginning of a text, of at most so many bytes, and says where it was cut.
func bounded(s string, most int) string {
	const cut = " […]"
	if len(s) <= most {
		return s
	}
	end := max(0, most-len(cut))
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cut
}
