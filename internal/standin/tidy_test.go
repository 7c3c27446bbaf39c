package standin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
)

func TestTitle(t *testing.T) {
	for _, c := range []struct{ name, text, old, want string }{
		{"first line", "Grandma's lentil soup (for 4)\n\n250 g", "asdf.txt", "grandmas_lentil_soup_for.txt"},
		{"more lines while short", "2 l milk\neggs (12)\nflour", "untitled.txt", "milk_eggs.txt"},
		{"window buttons are no word", "eee Terminal: nightly backup", "S 1.PNG", "terminal_nightly_backup.png"},
		{"at most five words", "one two three four five six", "a.txt", "one_two_three_four_five.txt"},
		{"no words", "12 34\n--", "a.txt", "a.txt"},
		{"taken", "Weekly notes", "a.txt", "weekly_notes_2.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, title(c.text, c.old, map[string]bool{"weekly_notes.txt": true}))
		})
	}
}

func use(id, name, input string) run.Message {
	return run.Message{Role: run.RoleAssistant, Block: run.ToolUse{ID: id, Name: name, Input: []byte(input)}}
}

func result(id, content string, failed bool) run.Message {
	return run.Message{Role: run.RoleUser, Block: run.ToolResult{ID: id, Content: content, IsError: failed}}
}

// The stand-in goes by the conversation alone: cut it anywhere and the next call is the same.
func TestDecideFollowsTheConversation(t *testing.T) {
	talk := []run.Message{
		use("1", listTool, `{"path":"."}`), result("1", "file 120 a.txt\nfolder - sub\nfile 90 b c.png", false),
		use("2", readTool, `{"path":"a.txt"}`), result("2", "Team meeting\n...", false),
		use("3", moveTool, `{"source":"a.txt","destination":"team_meeting.txt"}`), result("3", "Moved.", false),
		use("4", ocrTool, `{"path":"b c.png"}`), result("4", "Flight booked", false),
		use("5", moveTool, `{"source":"b c.png","destination":"flight_booked.png"}`), result("5", "Denied by user:ana.", true),
	}
	for i := 0; i < len(talk); i += 2 {
		reply := decide(readTurn(talk[:i]))
		require.Len(t, reply.Calls, 1)
		want := talk[i].Block.(run.ToolUse)
		require.Equal(t, want.Name, reply.Calls[0].Name)
		require.JSONEq(t, string(want.Input), string(reply.Calls[0].Input))
	}
	last := decide(readTurn(talk))
	require.Empty(t, last.Calls)
	require.Contains(t, last.Text, "a.txt is now team_meeting.txt")
	require.Contains(t, last.Text, "b c.png (Denied by user:ana.)")
}
