package local

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

func TestGenerateNeedsTheToolsOfAJob(t *testing.T) {
	_, err := DemoModel{}.Generate(t.Context(), agent.Request{Tools: []agent.ToolSpec{{Name: "deploys.rollback"}}})
	var failed *agent.ModelError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, agent.ModelInvalid, failed.Class)
	require.Contains(t, failed.Message, "use --model openai:MODEL")
}

func said(text string) run.Message {
	return run.Message{Role: run.RoleUser, Block: run.Text{Text: text}}
}

// turn is a call that the stand-in is to make next, and what comes of it.
type turn struct {
	tool, input, result string
	failed              bool
}

// jobsToDo are conversations of each job, to their ends.
var jobsToDo = []struct {
	name, asked string
	tools       []string
	turns       []turn
	end         string
}{
	{"all of it", "My lamp is broken. Order 1001.", refunding.tools, []turn{
		{orderTool, `{"order":"1001"}`, `{"item":"Desk lamp","paid":39.90}`, false},
		{refundTool, `{"order":"1001","amount":39.90,"reason":"My lamp is broken. Order 1001."}`, `{"amount":39.90}`, false},
	}, "on its way"},
	{"what is asked for", "Order no. 1001: refund 5.50", refunding.tools, []turn{
		{orderTool, `{"order":"1001"}`, `{"item":"Desk lamp","paid":39.90}`, false},
		{refundTool, `{"order":"1001","amount":5.50,"reason":"Order no. 1001: refund 5.50"}`, "Denied by user:ana.", true},
	}, "the refund for your desk lamp was not made. Denied by user:ana."},
	{"no more than was paid", "Order 1001: refund 500", refunding.tools, []turn{
		{orderTool, `{"order":"1001"}`, `{"item":"Desk lamp","paid":39.90}`, false},
		{refundTool, `{"order":"1001","amount":39.90,"reason":"Order 1001: refund 500"}`, "{}", false},
	}, "on its way"},
	{"no such order", "order 9", refunding.tools, []turn{{orderTool, `{"order":"9"}`, "There is no order 9.", true}}, "There is no order 9."},
	{"no order", "My lamp is broken.", refunding.tools, nil, "there is none"},

	{"files", "Tidy up.", tidying.tools, []turn{
		{listTool, `{"path":"."}`, "file 120 a.txt\nfolder - sub\nfile 90 b c.png", false},
		{readTool, `{"path":"a.txt"}`, "Team meeting\n...", false},
		{moveTool, `{"source":"a.txt","destination":"team_meeting.txt"}`, "Moved.", false},
		{ocrTool, `{"path":"b c.png"}`, "Flight booked", false},
		{moveTool, `{"source":"b c.png","destination":"flight_booked.png"}`, "Denied by user:ana.", true},
	}, "a.txt is now team_meeting.txt|b c.png (Denied by user:ana.)"},
	{"files of a server", "Tidy up.", tidyingServed.tools, []turn{
		{served[listTool], `{"path":"."}`, "[FILE] a b.txt\n[DIR] sub", false}, {served[readTool], `{"path":"a b.txt"}`, "Team meeting", false},
		{served[moveTool], `{"source":"a b.txt","destination":"team_meeting.txt"}`, "Successfully moved", false},
	}, "I looked through 1 file and renamed 1.|a b.txt is now team_meeting.txt"},
}

// The stand-in goes by the conversation alone: cut it anywhere and the next call is the same.
func TestJobs(t *testing.T) {
	for _, j := range jobsToDo {
		t.Run(j.name, func(t *testing.T) {
			r := agent.Request{Messages: []run.Message{said(j.asked)}}
			for _, name := range j.tools {
				r.Tools = append(r.Tools, agent.ToolSpec{Name: name})
			}
			for i, step := range j.turns {
				reply, err := DemoModel{}.Generate(t.Context(), r)
				require.NoError(t, err)
				require.Len(t, reply.Calls, 1, reply.Text)
				require.Equal(t, step.tool, reply.Calls[0].Name)
				require.JSONEq(t, step.input, string(reply.Calls[0].Input))
				require.Equal(t, i == 0, reply.Text != "", "it says what it is in its first text")
				id := string(rune('a' + i))
				r.Messages = append(r.Messages, use(id, step.tool, step.input), result(id, step.result, step.failed))
			}
			reply, err := DemoModel{}.Generate(t.Context(), r)
			require.NoError(t, err)
			require.Empty(t, reply.Calls)
			for _, end := range strings.Split(j.end, "|") {
				require.Contains(t, reply.Text, end)
			}
		})
	}
}

func use(id, name, input string) run.Message {
	return run.Message{Role: run.RoleAssistant, Block: run.ToolUse{ID: id, Name: name, Input: []byte(input)}}
}

func result(id, content string, failed bool) run.Message {
	return run.Message{Role: run.RoleUser, Block: run.ToolResult{ID: id, Content: content, IsError: failed}}
}
