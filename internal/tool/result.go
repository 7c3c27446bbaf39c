package tool

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Text is a successful result with that text.
func Text(s string) agent.ToolResultData { return agent.ToolResultData{Content: s} }

// JSON is a successful result holding v as JSON on one line, characters such as < and & as they are. It returns the
// error of encoding/json when v has no JSON form.
func JSON(v any) (agent.ToolResultData, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return agent.ToolResultData{}, fmt.Errorf("encode tool result: %w", err)
	}
	return Text(string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))), nil
}

// Ask is the result of a tool that has had no effect and cannot go on before people answer. Once they have, the call is
// entered again with their answer in Call.Resume, unless the ticket's mode says otherwise.
func Ask(t run.Ticket) agent.ToolResultData { return agent.ToolResultData{Suspend: &t} }

// Errorf is a tool's own, considered failure: the model hears the text.
func Errorf(format string, args ...any) agent.ToolResultData {
	return agent.ToolResultData{Content: fmt.Sprintf(format, args...), IsError: true}
}

// Refusal is Errorf for code deeper than a tool's own function: an error whose text is meant for the model. A tool made
// by New that returns one, wrapped or not, answers its text as an error result; every other error stays an error.
type Refusal string

// Error is the text for the model.
func (r Refusal) Error() string { return string(r) }

// Refusef makes a Refusal.
func Refusef(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }
