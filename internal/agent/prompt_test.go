package agent_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// The turn's words stand before the newest words of the user and behind results and their media; in no message of the request itself.
func TestTurnPlace(t *testing.T) {
	user := func(b run.Block) run.Message { return run.Message{Role: run.RoleUser, Block: b} }
	model := run.Message{Role: run.RoleAssistant, Block: run.Text{Text: "hm"}}
	said, result, media := user(run.Text{Text: "said"}), user(run.ToolResult{ID: "c1"}), user(run.Media{Name: "m"})
	for name, c := range map[string]struct {
		messages []run.Message
		want     int
	}{
		"nothing is said":                  {nil, 0},
		"the beginning":                    {[]run.Message{said}, 0},
		"a turn of several":                {[]run.Message{said, model, media, said}, 2},
		"behind results":                   {[]run.Message{said, model, result, result}, 4},
		"behind results, before a message": {[]run.Message{said, model, result, said, said}, 3},
		"behind a result's media":          {[]run.Message{said, model, result, media, media, result, said}, 6},
		"the user's own media":             {[]run.Message{said, model, result, said, media}, 3},
		"the model has spoken last":        {[]run.Message{said, model}, 2},
	} {
		r := agent.Request{Turn: "turn", Messages: c.messages}
		sent := r.WithNotices()
		require.Equal(t, c.want, slices.IndexFunc(sent.Messages, func(m run.Message) bool { return m.Block == run.Text{Text: "turn"} }), name)
		require.Len(t, r.Messages, len(sent.Messages)-1, name)
		require.Equal(t, sent, sent.WithNotices(), "it is said once")
	}
}
