package script

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/internal/agent"

	"github.com/countersign/countersign/internal/run"
)

// requestView is a request as `want` sees it.
type requestView struct {
	System    string            `json:"system"`
	Turn      string            `json:"turn,omitempty"` // words before the newest user turn, which no message holds
	Messages  []messageView     `json:"messages"`
	Tools     []json.RawMessage `json:"tools"`
	Lifecycle run.Lifecycle     `json:"lifecycle"`
	Exhausted bool              `json:"exhausted"`
	Output    *outputView       `json:"output,omitempty"` // absent: free text
}

type outputView struct {
	Format string          `json:"format"` // json
	Schema json.RawMessage `json:"schema,omitempty"`
}

type messageView struct {
	Role      run.Role        `json:"role"`
	SeenCount int64           `json:"seenCount"` // before the call
	Content   json.RawMessage `json:"content"`
}

type toolView struct {
	Name        string          `json:"name"` // model-facing
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// differences lists where r is not what want wants. An error means that r cannot be written as JSON.
func differences(want json.RawMessage, r agent.Request) ([]Mismatch, error) {
	if len(want) == 0 {
		return nil, nil
	}
	r = r.Prompted()
	v := requestView{System: r.System, Turn: r.Turn, Messages: make([]messageView, len(r.Messages)), Lifecycle: r.Lifecycle, Exhausted: r.Exhausted}
	if r.Output.JSON {
		v.Output = &outputView{"json", r.Output.Schema}
	}
	for i, m := range r.Messages {
		content, err := run.MarshalBlock(m.Block)
		if err != nil {
			return nil, fmt.Errorf("write message %d: %w", i, err)
		}
		v.Messages[i] = messageView{m.Role, m.Seen(r.Inferences), content}
	}
	var err error
	if v.Tools, err = viewTools(want, r.Tools); err != nil {
		return nil, err
	}
	got, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	return Match(want, got), nil
}

// viewTools shows each tool as want speaks of it: as an object where it has an object in that place, else as its name.
func viewTools(want json.RawMessage, specs []agent.ToolSpec) ([]json.RawMessage, error) {
	var w struct {
		Tools json.RawMessage `json:"tools"`
	}
	var wanted []json.RawMessage
	// A tools that is no list is Match's to report.
	if json.Unmarshal(want, &w) != nil || json.Unmarshal(w.Tools, &wanted) != nil {
		wanted = nil
	}
	views := make([]json.RawMessage, len(specs))
	for i, t := range specs {
		var shown any = t.ModelName()
		if i < len(wanted) && bytes.HasPrefix(wanted[i], []byte("{")) {
			shown = toolView{t.ModelName(), t.Description, t.Schema}
		}
		raw, err := json.Marshal(shown)
		if err != nil {
			return nil, fmt.Errorf("write tool %s: %w", t.Name, err)
		}
		views[i] = raw
	}
	return views, nil
}

// malformed lists what no provider would take: a tool_result without its tool_use before it, a tool_use without exactly
// one result, a result that does not stand behind the turn of its tool_use.
func malformed(messages []run.Message) []Mismatch {
	var found []Mismatch
	type use struct{ at, turn, results int }
	uses := map[string]*use{}
	var order []string
	turn := 0 // the model's, counted: its words behind a user's begin another one
	for i, m := range messages {
		if m.Role == run.RoleAssistant && i > 0 && messages[i-1].Role == run.RoleUser {
			turn++
		}
		switch b := m.Block.(type) {
		case run.ToolUse:
			if uses[b.ID] != nil {
				found = append(found, mismatchAt(i, fmt.Sprintf("tool_use %q a second time", b.ID), "ids that are unique"))
				continue
			}
			uses[b.ID], order = &use{at: i, turn: turn}, append(order, b.ID)
		case run.ToolResult:
			if uses[b.ID] == nil {
				found = append(found, mismatchAt(i, fmt.Sprintf("tool_result %q", b.ID), "its tool_use before it"))
				continue
			}
			if uses[b.ID].turn != turn {
				found = append(found, mismatchAt(i, fmt.Sprintf("tool_result %q behind another turn", b.ID), "it behind the turn of its tool_use"))
			}
			uses[b.ID].results++
		}
	}
	for _, id := range order {
		if u := uses[id]; u.results != 1 {
			found = append(found, mismatchAt(u.at, fmt.Sprintf("tool_use %q with %d results", id, u.results), "exactly one result"))
		}
	}
	return found
}

func mismatchAt(message int, got, want string) Mismatch {
	return Mismatch{Path: fmt.Sprintf("messages[%d]", message), Got: got, Want: want}
}
