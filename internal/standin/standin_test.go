package standin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

func TestGenerateNeedsTheToolsOfAJob(t *testing.T) {
	_, err := Model{}.Generate(t.Context(), agent.Request{Tools: []agent.ToolSpec{{Name: "refunds.create"}}})
	var failed *agent.ModelError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, agent.ModelInvalid, failed.Class)
	require.Contains(t, failed.Message, "agents/screenshots, agents/screenshots-mcp, agents/refunds, agents/incident, agents/research, agents/research-searcher and agents/research-critic")
}

func said(text string) agent.Message {
	return agent.Message{Role: agent.RoleUser, Block: agent.Text{Text: text}}
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

	{"rolled back", "The alarm a went off.\nService: shop", responding.tools, append(looked(`{"runs":"v2","now":9,"while":[{"version":"v1","value":1},{"version":"v2","value":9}]}`),
		turn{rollbackTool, `{"service":"shop","to":"v1","reason":"9 % of requests fail on v2, and far fewer did on v1."}`, "{}", false},
		turn{metricsTool, `{"service":"shop","metric":"errors_percent"}`, `{"runs":"v1","now":1}`, false},
	), "shop was rolled back and runs v1. 1 % of its requests fail now."},
	{"rollback denied", "Service: shop", responding.tools, append(looked(`{"runs":"v2","now":9,"while":[{"version":"v1","value":1},{"version":"v2","value":9}]}`),
		turn{rollbackTool, `{"service":"shop","to":"v1","reason":"9 % of requests fail on v2, and far fewer did on v1."}`, "Denied by user:ben.", true},
		turn{pageTool, `{"service":"shop","summary":"shop has 9 % errors on v2, and it was not rolled back: Denied by user:ben."}`, "I am on it.", false},
	), "A person was woken: I am on it."},
	{"no deploy to blame", "service shop", responding.tools, append(looked(`{"runs":"v2","now":4,"while":[{"version":"v1","value":1},{"version":"v2","value":4}]}`),
		turn{pageTool, `{"service":"shop","summary":"An alarm is on for shop, and its errors (4 %) point at no deploy."}`, "OK", false},
	), "A person was woken: OK"},
	{"no metrics", "service shop", responding.tools, []turn{{metricsTool, `{"service":"shop","metric":"errors_percent"}`, "There is no service shop.", true}}, "There is no service shop."},
	{"asked and checked", "Why?", researching.tools, []turn{
		{askSearcher, `{"message":"Why?"}`, `"So." [sky]`, false}, {askCritic, `{"message":"\"So.\" [sky]"}`, "Every quote is in its source.", false},
	}, "\"So.\" [sky]\nChecked: Every quote is in its source."},
	{"asked and not checked", "Why?", researching.tools, []turn{
		{askSearcher, `{"message":"Why?"}`, `"So." [sky]`, false}, {askCritic, `{"message":"\"So.\" [sky]"}`, "Agent research-critic did not finish.", true},
	}, "Nobody has checked this: Agent research-critic did not finish."},
	{"nobody to ask", "Why?", researching.tools, []turn{{askSearcher, `{"message":"Why?"}`, "Agent research-searcher did not finish.", true}}, "Nobody could look it up"},
	{"searched", "Why is the sky blue?", searching.tools, []turn{
		{searchTool, `{"query":"Why is the sky blue?"}`, `[{"document":"sky"},{"document":"sea"}]`, false},
		{openTool, `{"document":"sky"}`, "# Sky\n\nIt is wide. Air scatters\nblue light most. It is high.", false},
	}, `"Air scatters blue light most." [sky]`},
	{"nothing found", "Why?", searching.tools, []turn{{searchTool, `{"query":"Why?"}`, `[]`, false}}, "I found nothing."},
	{"a quote that is not there", `"within 90 days" [returns], "at once" [shipping]`, criticising.tools, []turn{
		{openTool, `{"document":"returns"}`, "within\n30 days", false}, {openTool, `{"document":"shipping"}`, "There is no document shipping.", true},
	}, "\"within 90 days\" is not in returns.\n\"at once\" is not in shipping."},
	{"quotes that are there", `"within 30 days" [returns]`, criticising.tools, []turn{{openTool, `{"document":"returns"}`, "within\n30 days", false}}, "Every quote"},
	{"no quote", "Refunds take 90 days.", criticising.tools, nil, "Nothing is quoted"},

	{"files of a server", "Tidy up.", tidyingServed.tools, []turn{
		{served[listTool], `{"path":"."}`, "[FILE] a b.txt\n[DIR] sub", false}, {served[readTool], `{"path":"a b.txt"}`, "Team meeting", false},
		{served[moveTool], `{"source":"a b.txt","destination":"team_meeting.txt"}`, "Successfully moved", false},
	}, "a b.txt is now team_meeting.txt"},

	{"no service", "An alarm!", responding.tools, nil, "there is none"},
}

func looked(metrics string) []turn {
	return []turn{
		{metricsTool, `{"service":"shop","metric":"errors_percent"}`, metrics, false},
		{deploysTool, `{"service":"shop"}`, "{}", false},
		{logsTool, `{"service":"shop","level":"error"}`, "[]", false},
	}
}

// The stand-in goes by the conversation alone: cut it anywhere and the next call is the same.
func TestJobs(t *testing.T) {
	for _, j := range jobsToDo {
		t.Run(j.name, func(t *testing.T) {
			r := agent.Request{Messages: []agent.Message{said(j.asked)}}
			for _, name := range j.tools {
				r.Tools = append(r.Tools, agent.ToolSpec{Name: name})
			}
			for i, step := range j.turns {
				reply, err := Model{}.Generate(t.Context(), r)
				require.NoError(t, err)
				require.Len(t, reply.Calls, 1, reply.Text)
				require.Equal(t, step.tool, reply.Calls[0].Name)
				require.JSONEq(t, step.input, string(reply.Calls[0].Input))
				require.Equal(t, i == 0, reply.Text != "", "it says what it is in its first text")
				id := string(rune('a' + i))
				r.Messages = append(r.Messages, use(id, step.tool, step.input), result(id, step.result, step.failed))
			}
			reply, err := Model{}.Generate(t.Context(), r)
			require.NoError(t, err)
			require.Empty(t, reply.Calls)
			require.Contains(t, reply.Text, j.end)
		})
	}
}
