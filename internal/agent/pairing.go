package agent

import "fmt"

// ResultsByCall finds the result of each call in a conversation that is about to be sent, the last one where there are several. An
// adapter places it directly behind its call, and a made-up one where it is missing. A call whose id is taken, and a result without
// its call before it, are errors of whoever made the request; they name the message by its place and quote nothing of it.
func ResultsByCall(messages []Message) (map[string]ToolResult, error) {
	uses, results := map[string]bool{}, map[string]ToolResult{}
	for i, m := range messages {
		switch b := m.Block.(type) {
		case ToolUse:
			if uses[b.ID] {
				return nil, fmt.Errorf("message %d is a tool_use whose id is taken", i)
			}
			uses[b.ID] = true
		case ToolResult:
			if !uses[b.ID] {
				return nil, fmt.Errorf("message %d is a tool_result without its tool_use", i)
			}
			results[b.ID] = b
		}
	}
	return results, nil
}
