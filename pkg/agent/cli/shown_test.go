package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTextShowsWhatOneCannotSee(t *testing.T) {
	for in, want := range map[string]string{
		"":                       `""`,
		"plain text, 1 + 2 = 3!": `"plain text, 1 + 2 = 3!"`,
		"Zoë, 東京, Київ, ½, €":    `"Zoë, 東京, Київ, ½, €"`,
		"a\"b\\c":                `"a\"b\\c"`,
		"two\nlines\tand a tab":  `"two\nlines\tand a tab"`,
		"\u202eevil":             `"\u{202E}evil"`,
		"a\u200bb\ufeffc":        `"a\u{200B}b\u{FEFF}c"`,
		"\x1b[2Jgone\x00":        `"\u{001B}[2Jgone\u{0000}"`,
		"\u00a0\u2003\u3000":     `"\u{00A0}\u{2003}\u{3000}"`,
		"\u2800\u3164\uffa0":     `"\u{2800}\u{3164}\u{FFA0}"`,
		"\u115f\u034f\u180e":     `"\u{115F}\u{034F}\u{180E}"`,
		"a\ufe0f\U000e0100":      `"a\u{FE0F}\u{E0100}"`,
		"\U000e0041":             `"\u{E0041}"`,
		"\ue000\u0378":           `"\u{E000}\u{0378}"`,
		"bad \xff byte":          `"bad \x{FF} byte"`,
		`\u{202E}`:               `"\\u{202E}"`,
		"a    b":                 `"a\{4 spaces}b"`,
		"a   b":                  `"a   b"`,
		"a\n\n\n\nb":             `"a\{4 line ends}b"`,
		`a\n\n\n`:                `"a\\n\\n\\n"`,
		"pаypal":                 `"pаypal" \{mixes scripts}`, // a Cyrillic а
		"Ελλάδα and paypal":      `"Ελλάδα and paypal"`,
	} {
		require.Equal(t, want, text(in))
	}
}

func TestTextIsUnambiguous(t *testing.T) {
	s := rapid.StringOfN(rapid.RuneFrom([]rune(" \n\\u{}\"n4s\u202eаa")), 0, 12, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := s.Draw(t, "a"), s.Draw(t, "b")
		require.Equal(t, a == b, text(a) == text(b), "%q %q", text(a), text(b))
	})
}

func FuzzEscape(f *testing.F) {
	f.Add("a\u202eb\xff\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, shown := range []string{line(s), lines(s), text(s)} {
			for _, r := range strings.ReplaceAll(shown, "\n", "") {
				require.True(t, visible(r), "%q", r)
			}
		}
		require.NotContains(t, line(s)+text(s), "\n")
	})
}

func TestArgumentsAreShownCompletely(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:  "(none)\n",
		`"x"`: "\"x\"\n",
		`[]`:  "[]\n",
		`{"a":10000000000000000001,"b":1.50,"c":true,"d":null,"e":""}`: "a: 10000000000000000001\nb: 1.50\nc: true\nd: null\ne: \"\"\n",
		`{"to":{"name":"Ana","tags":["x",["y"],{}]},"last":[]}`:        "to:\n  name: \"Ana\"\n  tags:\n    - \"x\"\n    -\n      - \"y\"\n    - {}\nlast: []\n",
		`{"od\u202ed key":1,"":2}`:                                     "\"od\\u{202E}d key\": 1\n\"\": 2\n",
	} {
		var b strings.Builder
		require.NoError(t, writeArguments(&b, "", []byte(in)))
		require.Equal(t, want, b.String())
	}
	long := strings.Repeat("x", 100_000)
	var b strings.Builder
	require.NoError(t, writeArguments(&b, "  ", []byte(`{"a":"`+long+`"}`)))
	require.Equal(t, `  a: "`+long+"\"\n", b.String())
	require.Error(t, writeArguments(&b, "", []byte(`{"a":`)))
}

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"plain-1.2/x": "plain-1.2/x", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "a\nb": "'a\nb'",
	} {
		require.Equal(t, want, quoted(in))
	}
}
