package prompt_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
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

var someDigest = strings.Repeat("0123456789abcdef", 4)

func TestMediaCheck(t *testing.T) {
	for _, c := range []struct {
		media run.Media
		want  string // "" = fine
	}{
		{run.Media{MediaType: "image/png", Data: "AAAA"}, ""},
		{run.Media{Name: "a.txt", MediaType: "text/plain; charset=utf-8", Blob: someDigest}, ""},
		{run.Media{Data: "AAAA"}, "mediaType"},
		{run.Media{MediaType: "png", Data: "AAAA"}, `mediaType: got "png"`},
		{run.Media{MediaType: "/png", Data: "AAAA"}, "mediaType"},
		{run.Media{MediaType: "image/", Data: "AAAA"}, "mediaType"},
		{run.Media{MediaType: "image/png\r\nX: y", Data: "AAAA"}, "mediaType"},
		{run.Media{MediaType: "image/" + strings.Repeat("x", 250), Data: "AAAA"}, "mediaType"},
		{run.Media{MediaType: "image/png"}, "either data or blob"},
		{run.Media{MediaType: "image/png", Data: "AAAA", Blob: someDigest}, "either data or blob"},
		{run.Media{MediaType: "image/png", Blob: "x"}, `blob: got "x"`},
		{run.Media{MediaType: "image/png", Blob: strings.ToUpper(someDigest)}, "lower-case hex"},
		{run.Media{MediaType: "image/png", Blob: "sha256:" + someDigest}, "blob"},
		{run.Media{MediaType: "image/png", Blob: someDigest + "\n"}, "blob"},
	} {
		err := agent.CheckMedia(c.media)
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}

// However many and large they are, what is carried is within the bound, and nothing is left out that would have been the only one.
func TestFitMediaHoldsTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := map[string]int64{}
		var messages []run.Message
		for i := range rapid.IntRange(0, 12).Draw(t, "n") {
			blob := fmt.Sprint(rapid.IntRange(0, i).Draw(t, "blob"))
			if _, ok := sizes[blob]; !ok {
				sizes[blob] = rapid.Int64Range(1, 120).Draw(t, "size")
			}
			messages = append(messages, run.Message{Role: run.RoleUser, Block: run.Media{MediaType: "a/b", Blob: blob}})
		}
		got := prompt.FitMedia(messages, sizes, 100)
		require.Len(t, got, len(messages))
		total := int64(0)
		for i := len(got) - 1; i >= 0; i-- {
			size := sizes[messages[i].Block.(run.Media).Blob]
			if m, ok := got[i].Block.(run.Media); ok {
				require.Equal(t, messages[i].Block, m)
				total += size
			} else {
				require.Greater(t, total+size, int64(100), "it would have fitted")
			}
		}
		require.LessOrEqual(t, total, int64(100))
	})
}
