package dialect

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// LoopBreakingArguments are those of all three tools.
type LoopBreakingArguments struct {
	Result      json.RawMessage `json:"result"`
	Question    string          `json:"question"`
	Suggestions []string        `json:"suggestions"`
	Message     string          `json:"message"`
}

// CompletedValue is the result of a completion whose run has to end in JSON: the value itself, or the one that a text
// spells where the output's schema wants no text.
func CompletedValue(d *agent.Definition, input json.RawMessage) (json.RawMessage, error) {
	var in LoopBreakingArguments
	if len(input) == 0 || input[0] != '{' || json.Unmarshal(input, &in) != nil {
		return nil, errors.New("want an object with a result")
	}
	if len(in.Result) == 0 {
		return nil, errors.New("result is missing")
	}
	value, err := jsonx.CompactJSON(in.Result, agent.OutputLimits)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		return value, nil
	}
	schema, err := agent.ReadSchema(d.Output.Schema)
	if err != nil {
		schema = nil
	}
	spelled, err := jsonx.CompactJSON([]byte(text), agent.OutputLimits)
	if err != nil || schema["type"] != nil && allowsType(schema, "string") || schema["type"] == nil && spelled[0] != '{' && spelled[0] != '[' {
		return value, nil
	}
	return spelled, nil
}
