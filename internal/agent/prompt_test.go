package agent

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The turn's words stand before the newest words of the user and behind results and their media; in no message of the request itself.
func TestTurnPlace(t *testing.T) {
	user := func(b Block) Message { return Message{Role: RoleUser, Block: b} }
	model := Message{Role: RoleAssistant, Block: Text{Text: "hm"}}
	said, result, media := user(Text{Text: "said"}), user(ToolResult{ID: "c1"}), user(Media{Name: "m"})
	for name, c := range map[string]struct {
		messages []Message
		want     int
	}{
		"nothing is said":                  {nil, 0},
		"the beginning":                    {[]Message{said}, 0},
		"a turn of several":                {[]Message{said, model, media, said}, 2},
		"behind results":                   {[]Message{said, model, result, result}, 4},
		"behind results, before a message": {[]Message{said, model, result, said, said}, 3},
		"behind a result's media":          {[]Message{said, model, result, media, media, result, said}, 6},
		"the user's own media":             {[]Message{said, model, result, said, media}, 3},
		"the model has spoken last":        {[]Message{said, model}, 2},
	} {
		r := Request{Turn: "turn", Messages: c.messages}
		sent := r.WithNotices()
		require.Equal(t, c.want, slices.IndexFunc(sent.Messages, func(m Message) bool { return m.Block == Text{Text: "turn"} }), name)
		require.Len(t, r.Messages, len(sent.Messages)-1, name)
		require.Equal(t, sent, sent.WithNotices(), "it is said once")
	}
}
