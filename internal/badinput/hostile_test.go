package badinput_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/badinput"
)

func TestTheCorpusIsLargeAndEveryStringIsItsOwn(t *testing.T) {
	all := badinput.HostileTexts()
	require.GreaterOrEqual(t, len(all), 200)
	seen, stored := map[string]string{}, 0
	for _, c := range all {
		require.NotEmpty(t, c.Comment)
		require.Empty(t, seen[c.Text], "%s is %s", c.Comment, seen[c.Text])
		seen[c.Text] = c.Comment
		if c.IsStorable() {
			stored++
			var text string
			require.NoError(t, json.Unmarshal(c.JSON, &text))
			require.Equal(t, text, c.Text, c.Comment)
		}
		require.True(t, c.JSON == nil || json.Valid(c.Args()), c.Comment)
	}
	require.GreaterOrEqual(t, stored, 200, "strings that arguments can hold")
}

func TestWhatIsHarmless(t *testing.T) {
	require.NoError(t, badinput.CheckHarmless("Zoë <b> \\u{202E} שלום 東京\nnext"))
	for _, s := range []string{"\u202e", "a\u200b", "\x00", "\x1b[2J", "\u00a0", "\u2800", "\u3164", "\ufe0f", "\U000e0041", "\xff", "\ue000", "a\u0300\u0300\u0300\u0300", "\u0301", "\ufffd"} {
		require.Error(t, badinput.CheckHarmless(s), "%q", s)
	}
}

func TestOriginalReadsEscapes(t *testing.T) {
	for shown, want := range map[string]string{
		`plain`: "plain", `\\u{202E}`: `\u{202E}`, `\u{202E}x`: "\u202ex", `\x{FF}`: "\xff", `a\{4 spaces}b`: "a    b", `\{3 line ends}`: "\n\n\n",
		`\{4 times \u{200B}\s}`: "\u200b \u200b \u200b \u200b ", `\rtl{שלום}`: "שלום", `x\{mixed scripts}y`: "xy", `\"\n\r\t`: "\"\n\r\t",
	} {
		got, err := badinput.Unescape(shown)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, shown := range []string{`\`, `\q`, `\{masked, up to 16 characters}`, `\u{`, `\{x spaces}`} {
		_, err := badinput.Unescape(shown)
		require.Error(t, err, shown)
	}
}
