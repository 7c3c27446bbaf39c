package prompt_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/prompt"
)

func TestShowResultTakes(t *testing.T) {
	for _, c := range []struct {
		name   string
		most   int64
		text   string
		taken  string
		notice string
	}{
		{"all of it", 5, "abcde", "abcde", ""},
		{"one byte more", 5, "abcdef", "abcde", "[The first 5 of 6 bytes of this result were taken, and the rest is lost: logs.get gives at most 5.]"},
		{"within a character", 4, "aéé", "aé", "[The first 3 of 5 bytes of this result were taken, and the rest is lost: logs.get gives at most 4.]"},
		{"nothing fits", 1, "é", "", "[The first 0 of 2 bytes of this result were taken, and the rest is lost: logs.get gives at most 1.]"},
		{"garbage", 10, "a\xff\xfe\x00b", "a\uFFFD\x00b", ""},
		{"garbage that grows", 5, "a\xffb\xffc", "a\uFFFDb", "[The first 5 of 5 bytes of this result were taken, and the rest is lost: logs.get gives at most 5.]"},
		{"the runtime's own", 0, strings.Repeat("x", agent.MaxResult), strings.Repeat("x", agent.MaxResult), ""},
	} {
		got := prompt.ShowResult(&agent.Definition{}, agent.ToolSpec{Name: "logs.get", MaxResult: c.most}, "c1", c.text, true)
		require.Equal(t, prompt.Shown{Text: c.taken, Lost: c.notice}, got, c.name)
	}
}

func FuzzShowResultTakes(f *testing.F) {
	f.Add("aéé\xff", int64(3))
	f.Add(strings.Repeat("\xff", 40)+"é", int64(7))
	f.Add("", int64(1))
	f.Fuzz(func(t *testing.T, text string, most int64) {
		if most < 1 || most > agent.MaxResult {
			most = agent.MaxResult
		}
		shown := prompt.ShowResult(&agent.Definition{}, agent.ToolSpec{Name: "t", MaxResult: most}, "c1", text, true)
		taken, notice := shown.Text, shown.Lost
		switch {
		case !utf8.ValidString(taken):
			t.Fatal("no valid text")
		case int64(len(taken)) > most:
			t.Fatalf("%d bytes of %d", len(taken), most)
		case notice == "" && taken != strings.ToValidUTF8(text, "\uFFFD"):
			t.Fatal("something is missing, and nobody says so")
		case int64(len(text)) > most && notice == "":
			t.Fatal("more than is taken, and nobody says so")
		case !strings.HasPrefix(strings.ToValidUTF8(text, "\uFFFD"), strings.TrimRight(taken, "\uFFFD")):
			t.Fatal("it is not how the text begins")
		}
	})
}
