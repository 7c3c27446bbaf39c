package people_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/people"
)

func TestB3WhatOneCannotSeeIsEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     `""`,
		"plain text, 1 + 2 = 3!":               `"plain text, 1 + 2 = 3!"`,
		"Zoë, 東京, Київ, ½, €":                  `"Zoë, 東京, Київ, ½, €"`,
		"a\"b\\c":                              `"a\"b\\c"`,
		"two\nlines\tand a tab":                `"two\nlines\tand a tab"`,
		"\u202eevil":                           `"\u{202E}evil"`,
		"a\u200bb\ufeffc":                      `"a\u{200B}b\u{FEFF}c"`,
		"\x1b[2Jgone\x00":                      `"\u{001B}[2Jgone\u{0000}"`,
		"\u00a0\u2003\u3000":                   `"\u{00A0}\u{2003}\u{3000}"`,
		"\u2800\u3164\uffa0":                   `"\u{2800}\u{3164}\u{FFA0}"`,
		"\u115f\u034f\u180e":                   `"\u{115F}\u{034F}\u{180E}"`,
		"a\ufe0f\U000e0100":                    `"a\u{FE0F}\u{E0100}"`,
		"\U000e0041":                           `"\u{E0041}"`,
		"\ue000\u0378\ufffd":                   `"\u{E000}\u{0378}\u{FFFD}"`,
		"bad \xff byte":                        `"bad \x{FF} byte"`,
		"half \xed\xa0\x80":                    `"half \x{ED}\x{A0}\x{80}"`,
		`\u{202E}`:                             `"\\u{202E}"`,
		`\{4 spaces}`:                          `"\\{4 spaces}"`,
		"bank.example\u2044x":                  `"bank.example\u{2044}x"`,
		"\u212aelvin":                          `"\u{212A}elvin"`,
		"caf\u00e9 cafe\u0301":                 `"café cafe\u{0301}"`,
		"\u0301a":                              `"\u{0301}a"`,
		"\u0939\u093f\u0928\u094d\u0926\u0940": `"हिन्दी"`,
		"שלום, עולם 5 אב":                      `"\rtl{שלום, עולם} 5 \rtl{אב}"`,
		"\u05d0(\u05d1)":                       `"\rtl{א}(\rtl{ב})"`,
	} {
		require.Equal(t, want, people.QuotedText(in).String())
		require.Equal(t, want, `"`+people.BareText(in).String()+`"`)
	}
}

func TestB3RunsAreCounted(t *testing.T) {
	for in, want := range map[string]string{
		"a   b": "a   b", "a    b": `a\{4 spaces}b`, "a\n\nb": `a\n\nb`, "a\n\n\n\nb": `a\{4 line ends}b`,
		`a\n\n\n`:                             `a\\n\\n\\n`,
		"a" + strings.Repeat("\n ", 50) + "b": `a\{50 times \n\s}b`,
		"a" + strings.Repeat("\r\n", 9):       `a\{9 times \r\n}`,
		"a" + strings.Repeat("\u200b", 200):   `a\{200 times \u{200B}}`,
		"a\t\t\tb":                            `a\t\t\tb`,
		strings.Repeat("=", 50):               strings.Repeat("=", 50),
		strings.Repeat(`\`, 8):                strings.Repeat(`\\`, 8),
	} {
		require.Equal(t, want, people.BareText(in).String())
	}
}

func TestB3LookAlikesAreMarked(t *testing.T) {
	for in, want := range map[string]string{
		"pаypal.com":            `pаypal\{mixed scripts}.com`, // a Cyrillic а
		"send it to раураӏ.com": `send it to раураӏ\{looks like Latin}.com`,
		"раураӏ":                `раураӏ\{looks like Latin}`,
		"раураӏ и другие":       `раураӏ\{looks like Latin} и другие`,
		"Мы с ним":              "Мы с ним", // one letter, in its own script
		"to: с":                 `to: с\{looks like Latin}`,
		"Ελλάδα and paypal":     "Ελλάδα and paypal",
		"ᏙᎪᎩ":                   `ᏙᎪᎩ\{looks like Latin}`,
		"𝐩𝐚𝐲":                   `𝐩𝐚𝐲\{odd letters}`,
		"１００":                   `１００\{odd letters}`,
		"ɡoogle":                `ɡoogle\{odd letters}`,
		"Ƅank":                  `Ƅank\{odd letters}`,
		"5Ƽ Ɩtd DE1Ȣ ſunds":     `5Ƽ\{odd letters} Ɩtd\{odd letters} DE1Ȣ\{odd letters} ſunds\{odd letters}`,
		"paypaʟ Ǉ":              `paypaʟ\{odd letters} Ǉ\{odd letters}`,
		"Tシャツ, 卡拉OK":            "Tシャツ, 卡拉OK",
		"gססgle":                `g\rtl{סס}gle\{mixed scripts}`,
		"paypa1 ışık straße":    "paypa1 ışık straße",
	} {
		require.Equal(t, want, people.BareText(in).String())
	}
}

func TestB3HeapsOfMarksAreTakenApart(t *testing.T) {
	require.Equal(t, `a`+strings.Repeat(`\u{0300}`, 3), people.BareText("a"+strings.Repeat("\u0300", 3)).String())
	require.Equal(t, "\u0e01\u0e34\u0e48\u0e4c"+`\u{0E49}\u{0E4A}`, people.BareText("\u0e01\u0e34\u0e48\u0e4c\u0e49\u0e4a").String())
	require.Equal(t, `f\u{0336}r\u{0336}`, people.BareText("f\u0336r\u0336").String())
	require.Equal(t, `x\u{20DD}`, people.BareText("x\u20dd").String())
	require.Equal(t, `ж\u{0488}`, people.BareText("ж\u0488").String())
}

// Every string of the corpus is shown with visible characters alone, and all of it.
func TestB3TheCorpusIsShownHarmlesslyAndCompletely(t *testing.T) {
	for _, c := range badinput.HostileTexts() {
		whole(t, c.Text)
	}
}

// escapeInvisible holds a text to what every channel relies on.
func escapeInvisible(t require.TestingT, shown people.Text, of string) {
	for i, s := range shown {
		require.NotEmpty(t, s.Text, of)
		require.NotContains(t, s.Text, "\n", of)
		for _, r := range s.Text {
			require.True(t, people.Visible(r), "%s: %U", of, r)
		}
		if s.Kind == people.SpanPlain {
			require.NotContains(t, s.Text, `\`, of)
			require.False(t, i > 0 && shown[i-1].Kind == people.SpanPlain, "%s: two plain spans", of)
		}
	}
	require.NoError(t, badinput.CheckHarmless(shown.String()), of)
}

// anything are strings rich in what escaping is about.
func anything() *rapid.Generator[string] {
	pieces := rapid.SampledFrom([]string{
		" ", "\n", "\r\n", "\t", `\`, `"`, "{", "}", "u", "x", "n", "s", "4", "1 ", "spaces", "rtl{", "times", "a", "p", "а", "о", "ο", "é", "e", "\u0301", "\u0300", "\u0336", "ש", "ם",
		"ا", "\u064b", "5", ",", ".", "\u200b", "\u202e", "\ufeff", "\u00a0", "\xff", "\xed\xa0\x80", "\U000e0041", "東", "😀", "\u200d", "\ufe0f", "\u0e01", "\u0e49", "𝐩", "1", "mixed scripts",
	})
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 14).Draw(t, "pieces") {
			b.WriteString(strings.Repeat(pieces.Draw(t, "piece"), rapid.SampledFrom([]int{1, 1, 1, 2, 3, 4, 5}).Draw(t, "times")))
		}
		return b.String()
	})
}

func TestB3NoTwoStringsAreShownAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anything().Draw(t, "a"), anything().Draw(t, "b")
		for _, of := range []func(string) people.Text{people.QuotedText, people.BareText} {
			require.Equal(t, a == b, of(a).String() == of(b).String(), "%s", of(a))
		}
		whole(t, a)
	})
}

// whole holds that a string is shown harmlessly, and can be had back from what is shown.
func whole(t require.TestingT, s string) {
	shown := people.BareText(s)
	escapeInvisible(t, shown, s)
	escapeInvisible(t, people.QuotedText(s), s)
	got, err := badinput.Unescape(shown.String())
	require.NoError(t, err, "%s", shown)
	require.Equal(t, s, got, "%s", shown)
}

func FuzzEscape(f *testing.F) {
	for _, c := range badinput.HostileTexts() {
		if len(c.Text) < 1000 {
			f.Add(c.Text)
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		whole(t, s)
		require.NotContains(t, people.EscapeLine(s), "\n")
		require.Equal(t, strings.ReplaceAll(people.EscapeLines(s), "\n", `\n`), people.EscapeLine(s))
	})
}

// Quotes, as JSON has them, stay readable where nothing stands in quotes around a text; what was written is still told
// apart.
func TestB3QuotesMayStayAsTheyAre(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": 1}`:     `{"a": 1}`,
		`{"a": "\"}"}`: `{"a": "\\"}"}`,
		"\"\u202e\"":   `"\u{202E}"`,
	} {
		shown := people.PlainQuotes(people.BareText(in)).String()
		require.Equal(t, want, shown)
		back, err := badinput.Unescape(shown)
		require.NoError(t, err)
		require.Equal(t, in, back)
	}
}

// In a conversation lines end and indent where they did; what hides something is written out all the same.
func TestWords(t *testing.T) {
	long := strings.Repeat("\n", 50)
	for in, want := range map[string]string{
		"one\ntwo\r\n\r\nthree":           "one\ntwo\n\nthree",
		"list:\n    - \"a\"\n\t- C:\\dir": "list:\n    - \"a\"\n\t- C:\\dir",
		" ends with spaces  ":             " ends with spaces  ",
		"above" + long + "below":          `above\{50 line ends}below`,
		"x" + strings.Repeat(" ", 200):    `x\{200 spaces}`,
		"pay \u202eeve\u202c":             `pay \u{202E}eve\u{202C}`,
		"bell\a, half\rover":              `bell\u{0007}, half\rover`,
		"key AKIAIOSFODNN7EXAMPLE\nnext":  "key " + `\{masked, 20 characters}` + "\nnext",
		"שלום\nworld":                     `\rtl{שלום}` + "\nworld",
		"":                                "",
	} {
		require.Equal(t, want, people.ConversationText(in).String(), "%q", in)
	}
}

// Digits that are not 0 to 9 are marked wherever they stand: many look like other ones, and a program may read them as
// what they are.
func TestB3DigitsOfOtherScriptsAreMarked(t *testing.T) {
	const mark = `\{digits of another script}`
	for in, want := range map[string]string{
		"100":           "100",
		"৪00":           "৪00" + mark,
		"1,৪৭0.00 EUR":  "1,৪৭0" + mark + ".00 EUR",
		"pay ١٢٣ now":   "pay ١٢٣" + mark + " now",
		"लागत १२३":      "लागत १२३" + mark,
		"DE8৪3704":      "DE8৪3704" + mark,
		"߁߀ and ൦":      "߁߀" + mark + " and ൦" + mark,
		"1〇〇":           "1〇〇" + mark,
		"10² m":         "10²" + mark + " m",
		"m² and ½":      "m² and ½",
		"2024年":         "2024年",
		"１２":            `１２\{odd letters}`,
		"שלום ١٢٣ שלום": `\rtl{שלום} ١٢٣` + mark + ` \rtl{שלום}`,
		"paypa1 𝟏":      `paypa1 𝟏\{odd letters}`,
	} {
		require.Equal(t, want, people.ForeignText(in).String())
		require.Equal(t, want, people.BareText(in).String())
		whole(t, in)
	}
	lines, _ := people.ReadArguments([]byte(`{"amount":"৪00","৪":1}`), nil)
	require.Equal(t, `amount "৪00`+mark+`"`, lines[0].Label.String()+" "+lines[0].Value.String())
	require.Equal(t, `"৪`+mark+`"`, lines[1].Label.String())
}
