package tool_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/tool"
)

// kept are secrets by tenant/name.
type kept map[string]string

func (k kept) Secret(_ context.Context, tenant, name string) (string, error) {
	v, ok := k[tenant+"/"+name]
	if !ok {
		return "", tool.ErrNoSecret
	}
	return v, nil
}

func TestExpandSecrets(t *testing.T) {
	from := kept{"acme/KEY": "k-123456", "acme/other.one": "${secret:KEY}", "globex/KEY": "not acme's", "acme/short": "abc"}
	for template, want := range map[string]struct {
		text string
		used []string
		err  string
	}{
		"":                                   {},
		"nothing":                            {text: "nothing"},
		"Bearer ${secret:KEY}":               {text: "Bearer k-123456", used: []string{"KEY"}},
		"${secret:KEY}${secret:KEY}":         {text: "k-123456k-123456", used: []string{"KEY"}},
		"${secret:other.one} $ {secret:KEY}": {text: "${secret:KEY} $ {secret:KEY}", used: []string{"other.one"}},
		"${secret:missing}":                  {err: "read secret missing: there is no such secret"},
		"${secret:short}":                    {err: "read secret short: want at least 4 bytes"},
		"${secret:}":                         {err: "want ${secret:NAME}"},
		"${secret:..}":                       {err: "want ${secret:NAME}"},
		"${secret:a/b}":                      {err: "want ${secret:NAME}"},
		"${secret:KEY":                       {err: "want ${secret:NAME}"},
		"${secret:" + strings.Repeat("x", 65) + "}": {err: "want ${secret:NAME}"},
	} {
		d := tool.NewDisclosure(from, "acme")
		text, err := d.Expand(t.Context(), template)
		if want.err != "" {
			require.ErrorContains(t, err, want.err, template)
			require.NotContains(t, err.Error(), "abc")
			continue
		}
		require.NoError(t, err, template)
		require.Equal(t, want.text, text)
		require.Equal(t, want.used, d.Names())
	}
	_, err := tool.NewDisclosure(nil, "acme").Expand(t.Context(), "${secret:KEY}")
	require.ErrorIs(t, err, tool.ErrNoSecret)
}

// However an answer writes a secret that it was sent, it is taken out of it, and the text around it stays.
func TestRedactTakesSecretsOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[!-~]{8,40}`).Draw(t, "secret")
		before, after := rapid.StringMatching(`[a-z ]{0,5}`).Draw(t, "before"), rapid.StringMatching(`[a-z ]{0,5}`).Draw(t, "after")
		d := tool.NewDisclosure(kept{"acme/KEY": secret}, "acme")
		_, err := d.Value(t.Context(), "KEY")
		if err != nil {
			t.Fatal(err)
		}
		quoted, _ := json.Marshal(secret)
		for name, written := range map[string]string{
			"plain": secret, "JSON": string(quoted), "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
			"hex": hex.EncodeToString([]byte(secret)), "HTML": html.EscapeString(secret), "HTML of JSON": html.EscapeString(string(quoted)),
			"percent": each(secret, "%%%02X"), "JSON all": each(secret, `\u%04x`), "entities": each(secret, "&#%d;"), "JSON twice": strings.ReplaceAll(string(quoted), `\`, `\\`),
		} {
			text := d.Redact(before + written + after)
			if strings.Contains(text, written) || !strings.Contains(text, "${secret:KEY}") || !strings.HasPrefix(text, before) || !strings.HasSuffix(text, after) {
				t.Fatalf("%s: %q came out as %q", name, written, text)
			}
		}
		for lead := range 4 {
			user := strings.Repeat("u", lead)
			text := d.Redact("Basic " + base64.StdEncoding.EncodeToString([]byte(user+secret)))
			if !strings.Contains(text, "${secret:KEY}") || len(text) > len("Basic ${secret:KEY}")+8 {
				t.Fatalf("behind %d bytes in base64: %q", lead, text)
			}
		}
	})
}

func each(secret, form string) string {
	var all strings.Builder
	for _, c := range []byte(secret) {
		fmt.Fprintf(&all, form, c)
	}
	return all.String()
}

// Characters beyond ASCII are spelled in more ways, and what is no secret stays, however it is spelled.
func TestRedactKnowsOtherCharacters(t *testing.T) {
	d := tool.NewDisclosure(kept{"acme/KEY": "пароль😀é"}, "acme")
	_, err := d.Value(t.Context(), "KEY")
	require.NoError(t, err)
	for _, written := range []string{
		"пароль😀é", url.QueryEscape("пароль😀é"), `\u043f\u0430\u0440\u043e\u043b\u044c\ud83d\ude00\u00e9`, "&#1087;&#1072;&#1088;&#1086;&#1083;&#1100;&#128512;&eacute;",
		hex.EncodeToString([]byte("пароль😀é")),
	} {
		require.Equal(t, "a ${secret:KEY} b", d.Redact("a "+written+" b"))
		for cut := 1; cut < len(written); cut++ {
			require.Equal(t, "a ", d.RedactCut("a "+written[:cut]), "%q", written[:cut])
		}
	}
	for _, text := range []string{"пароль", `\u043f\u0430`, "%D0%BF", "&amp;&lt;&#65;&", `C:\\x\u0041`, "100%", "deadbeef"} {
		require.Equal(t, text, d.Redact(text))
	}
}

// A long answer costs no second, whatever is in it: the deadline is that of something which is not linear.
func TestRedactIsLinear(t *testing.T) {
	d := tool.NewDisclosure(kept{"acme/KEY": `u"x%/ 1+`, "acme/A": strings.Repeat("a", 4000), "acme/PCT": `"pass\word%25&amp;`}, "acme")
	for _, name := range []string{"KEY", "A", "PCT"} {
		_, err := d.Value(t.Context(), name)
		require.NoError(t, err)
	}
	for _, piece := range []string{`\`, `\u`, `\\x5`, "%", "%25", "&", "&amp;", "&#0", "6161", "a", "b", "61:"} {
		text := strings.Repeat(piece, (1<<18)/len(piece)) + "!"
		done := make(chan string)
		go func() { done <- d.RedactCut(text) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("%q, again and again, takes more than 20 seconds", piece)
		}
	}
}

// A text that ends within a secret does not keep the part that is there.
func TestRedactCut(t *testing.T) {
	d := tool.NewDisclosure(kept{"acme/KEY": "hunter2-hunter2", "acme/LONG": "hunter2-hunter2-and-more"}, "acme")
	text, err := d.Expand(t.Context(), "${secret:KEY} ${secret:LONG}")
	require.NoError(t, err)
	for cut := range text {
		require.NotContains(t, d.RedactCut(text[:cut]), "hunter2")
	}
	require.Equal(t, "${secret:KEY} ${secret:LONG}", d.RedactCut(text), "the longest secret that is there")
	require.Equal(t, "ab", d.RedactCut("ab"))
	require.Equal(t, []string{"KEY", "LONG"}, d.Names())
}
