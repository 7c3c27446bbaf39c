package hook

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// PermissionPath is where a run keeps its own answers for the permission plugin: {"default": ANSWER, "tools": {NAME:
// ANSWER}}, in the place of those of the agent's file.
const PermissionPath = "/permissions"

// permissionConfig is the configuration of the plugin permission, and the form of what stands at PermissionPath.
type permissionConfig struct {
	Default string            `json:"default"` // allow | deny | ask; "" = ask
	Tools   map[string]string `json:"tools"`   // by original name
}

// The answers. Any other is taken for ask.
const (
	answerAllow = "allow"
	answerDeny  = "deny"
	answerAsk   = "ask"
)

// permission lets calls pass, blocks them, or has a person asked: for their tool, or else by default, which is to ask
// (presets 10).
func permission(config json.RawMessage) (Plugin, error) {
	var c permissionConfig
	if err := decode(config, &c); err != nil {
		return Plugin{}, err
	}
	for _, answer := range append(slices.Collect(maps.Values(c.Tools)), c.Default) {
		if answer != "" && answer != answerAllow && answer != answerDeny && answer != answerAsk {
			return Plugin{}, errors.New("want allow, deny or ask for default and for each of tools")
		}
	}
	return Plugin{BeforeTool: func(_ context.Context, m *BeforeTool) error {
		call := m.Call()
		switch c.answer(m, call.Tool) {
		case answerAllow:
		case answerDeny:
			m.Block("permission denied")
		default:
			switch {
			case m.Granted():
			case call.ID == "":
				m.Block("permission is asked for, and the call has no id to ask about")
			default:
				m.Suspend(confirmation(call))
			}
		}
		return nil
	}}, nil
}

// answer is the run's own, the file's, or ask; a run's own that cannot be read is ask.
func (c permissionConfig) answer(m *BeforeTool, tool string) string {
	var own struct {
		Default *string            `json:"default"`
		Tools   map[string]*string `json:"tools"`
	}
	if _, err := m.Value(PermissionPath, &own); err != nil {
		return answerAsk
	}
	switch answer, ok := own.Tools[tool]; {
	case ok && answer == nil:
		return answerAsk
	case ok:
		return *answer
	}
	if answer, ok := c.Tools[tool]; ok {
		return answer
	}
	if own.Default != nil {
		return *own.Default
	}
	return c.Default
}

// confirmation asks for a call by the pseudo-call that front ends of seed 001 know.
func confirmation(c run.Call) run.Ticket {
	args, err := run.MarshalVerbatim(struct {
		Tool string          `json:"tool_name"`
		Args json.RawMessage `json:"tool_args"`
	}{c.Tool, c.Input})
	if err != nil { // stored arguments always marshal
		args = nil
	}
	return run.Ticket{
		ID: c.ID, Action: "tool:" + c.Tool, Parameters: c.Input, Mode: "replay",
		Pending: run.Pending{ID: "fc_" + c.ID, Name: "PermissionConfirm", Arguments: args},
	}
}

// decode reads a plugin's configuration strictly; none is the zero one. Errors name keys and never values.
func decode(config json.RawMessage, v any) error {
	if len(config) == 0 || string(config) == "null" {
		return nil
	}
	return jsonx.DecodeStrict(config, v)
}
