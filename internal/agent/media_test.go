package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var someDigest = strings.Repeat("0123456789abcdef", 4)

func TestMediaCheck(t *testing.T) {
	for _, c := range []struct {
		media Media
		want  string // "" = fine
	}{
		{Media{MediaType: "image/png", Data: "AAAA"}, ""},
		{Media{Name: "a.txt", MediaType: "text/plain; charset=utf-8", Blob: someDigest}, ""},
		{Media{Data: "AAAA"}, "mediaType"},
		{Media{MediaType: "png", Data: "AAAA"}, `mediaType: got "png"`},
		{Media{MediaType: "/png", Data: "AAAA"}, "mediaType"},
		{Media{MediaType: "image/", Data: "AAAA"}, "mediaType"},
		{Media{MediaType: "image/png\r\nX: y", Data: "AAAA"}, "mediaType"},
		{Media{MediaType: "image/" + strings.Repeat("x", 250), Data: "AAAA"}, "mediaType"},
		{Media{MediaType: "image/png"}, "either data or blob"},
		{Media{MediaType: "image/png", Data: "AAAA", Blob: someDigest}, "either data or blob"},
		{Media{MediaType: "image/png", Blob: "x"}, `blob: got "x"`},
		{Media{MediaType: "image/png", Blob: strings.ToUpper(someDigest)}, "lower-case hex"},
		{Media{MediaType: "image/png", Blob: "sha256:" + someDigest}, "blob"},
		{Media{MediaType: "image/png", Blob: someDigest + "\n"}, "blob"},
	} {
		err := c.media.Check()
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}

// What people send is checked where it is read, whichever way it comes in.
func TestParseMessageChecksMedia(t *testing.T) {
	said, err := ParseMessage(json.RawMessage(`[{"type":"media","name":"a.pdf","mediaType":"application/pdf","blob":"` + someDigest + `"},{"type":"text","text":"this"}]`))
	require.NoError(t, err)
	require.Equal(t, []UserBlock{{Media{Name: "a.pdf", MediaType: "application/pdf", Blob: someDigest}}, {Text{"this"}}}, said)
	_, err = ParseMessage(json.RawMessage(`[{"type":"text","text":"x"},{"type":"media","mediaType":"image/png","blob":"x"}]`))
	require.ErrorContains(t, err, "block 1: blob")
	one := `{"type":"media","mediaType":"image/png","data":"AAAA"},`
	_, err = ParseMessage(json.RawMessage("[" + strings.TrimSuffix(strings.Repeat(one, MaxMessageMedia), ",") + "]"))
	require.NoError(t, err)
	_, err = ParseMessage(json.RawMessage("[" + strings.TrimSuffix(strings.Repeat(one, MaxMessageMedia+1), ",") + "]"))
	require.ErrorContains(t, err, "at most 100 media")
}

func TestFitMedia(t *testing.T) {
	picture := func(blob string) Message {
		return Message{Role: RoleUser, Block: Media{Name: blob + ".png", MediaType: "image/png", Blob: blob}, Base: 3}
	}
	inline := Message{Role: RoleUser, Block: Media{MediaType: "image/png", Data: "AAAA"}}
	messages := []Message{picture("old"), inline, picture("big"), picture("mid"), picture("new")}
	before := append([]Message(nil), messages...)
	got := FitMedia(messages, map[string]int64{"old": 40, "big": 101, "mid": 60, "new": 40}, 100)
	require.Equal(t, before, messages, "the argument is left alone")
	require.Equal(t, Text{"[big.png (image/png) is not shown: it has 101 bytes, and one request carries at most 100 bytes of media, the newest first]"}, got[2].Block)
	require.IsType(t, Text{}, got[0].Block, "what is older than what fits goes")
	require.Equal(t, []Message{inline, picture("mid"), picture("new")}, []Message{got[1], got[3], got[4]})
	require.Equal(t, int64(3), got[0].Base)
	require.Equal(t, []string{"new", "mid", "big", "old"}, MediaBlobs(append(messages, picture("new"))))
}

// However many and large they are, what is carried is within the bound, and nothing is left out that would have been the only one.
func TestFitMediaHoldsTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := map[string]int64{}
		var messages []Message
		for i := range rapid.IntRange(0, 12).Draw(t, "n") {
			blob := fmt.Sprint(rapid.IntRange(0, i).Draw(t, "blob"))
			if _, ok := sizes[blob]; !ok {
				sizes[blob] = rapid.Int64Range(1, 120).Draw(t, "size")
			}
			messages = append(messages, Message{Role: RoleUser, Block: Media{MediaType: "a/b", Blob: blob}})
		}
		got := FitMedia(messages, sizes, 100)
		require.Len(t, got, len(messages))
		total := int64(0)
		for i := len(got) - 1; i >= 0; i-- {
			size := sizes[messages[i].Block.(Media).Blob]
			if m, ok := got[i].Block.(Media); ok {
				require.Equal(t, messages[i].Block, m)
				total += size
			} else {
				require.Greater(t, total+size, int64(100), "it would have fitted")
			}
		}
		require.LessOrEqual(t, total, int64(100))
	})
}
