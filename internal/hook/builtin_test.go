package hook_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Semantics 3.9: a tool's own answer, else the default, else ask; what cannot be read is ask.
func TestPermission(t *testing.T) {
	config := `{"default":"deny","tools":{"look":"allow","pay":"ask"}}`
	for _, c := range []struct{ config, state, tool, want string }{
		{``, ``, "pay", "ask"}, {`{}`, ``, "pay", "ask"}, {`{"default":"allow"}`, ``, "pay", "run"}, {`{"tools":{"pay":"allow"}}`, ``, "look", "ask"},
		{config, ``, "look", "run"}, {config, ``, "pay", "ask"}, {config, ``, "mail.send", "deny"},
		{config, `{"permissions":{"tools":{"pay":"allow"}}}`, "pay", "run"}, {config, `{"permissions":{"tools":{"look":"deny"}}}`, "look", "deny"},
		{config, `{"permissions":{"default":"allow"}}`, "mail.send", "run"}, {config, `{"permissions":{"default":"allow"}}`, "pay", "ask"},
		{config, `{"permissions":{"default":"perhaps"}}`, "mail.send", "ask"}, {config, `{"permissions":{"tools":{"look":"perhaps"}}}`, "look", "ask"},
		{config, `{"permissions":{"tools":{"look":null}}}`, "look", "ask"}, {config, `{"permissions":{"tools":{"look":5}}}`, "look", "ask"},
		{config, `{"permissions":"allow"}`, "look", "ask"}, {config, `{"permissions":{"tools":[]}}`, "look", "ask"}, {config, `{"other":1}`, "look", "run"},
	} {
		call := run.Call{ID: "c1", Tool: c.tool, Input: json.RawMessage(`{"to":"<a>"}`)}
		s := &run.AgentState{Shared: json.RawMessage(c.state)}
		_, gate, err := built(t, "permission", c.config).BeforeTool(context.Background(), &definition, s, call, nil)
		require.NoError(t, err)
		want := map[string]string{"run": "run", "deny": "block permission denied", "ask": "suspend c1"}[c.want]
		require.Equal(t, want, errorText(gate), "%+v", c)
		call.Grant = &run.Grant{}
		_, gate, err = built(t, "permission", c.config).BeforeTool(context.Background(), &definition, s, call, nil)
		require.NoError(t, err)
		if c.want == "ask" {
			want = "run"
		}
		require.Equal(t, want, errorText(gate), "%+v, granted", c)
	}
}

func TestToolPolicy(t *testing.T) {
	for _, c := range []struct {
		config string
		hidden []string
	}{
		{`{}`, nil}, {`{"allow":["look"]}`, []string{"mail.send", "pay"}}, {`{"exclude":["mail.*"]}`, []string{"mail.send"}},
		{`{"allow":["*"],"exclude":["p*"]}`, []string{"pay"}}, {`{"allow":["nothing"]}`, []string{"look", "mail.send", "pay"}},
	} {
		p := built(t, "tool-policy", c.config)
		h, _, err := p.BeforeInference(context.Background(), &definition, &run.AgentState{})
		require.NoError(t, err)
		require.Equal(t, c.hidden, h.Hidden, c.config)
		for _, tool := range definition.Tools {
			_, gate, err := p.BeforeTool(context.Background(), &definition, &run.AgentState{}, run.Call{ID: "c", Tool: tool.Name}, nil)
			require.NoError(t, err)
			require.Equal(t, slices.Contains(c.hidden, tool.Name), gate.Block != nil, "%s, %s", c.config, tool.Name)
		}
	}
}

// The list is in the run's state, where anything may stand.
func TestReminder(t *testing.T) {
	for _, c := range []struct {
		config, state string
		begun         string // what run_start leaves of the list; "" = nothing changes
		said          int    // messages in the request
		kept          string // what the call of the model leaves; "" = nothing changes
	}{
		{`{}`, ``, "", 0, ""}, {`{}`, `{"reminders":["a","b","a",""]}`, "", 2, `[]`}, {`{}`, `{"reminders":[]}`, "", 0, ""},
		{`{"keep":true}`, `{"reminders":["a"]}`, "", 1, ""}, {`{}`, `{"reminders":"a"}`, "", 0, ""}, {`{}`, `{"reminders":[1]}`, "", 0, ""},
		{`{"texts":["a","a","b"]}`, ``, `["a","b"]`, 0, ""}, {`{"texts":["a"]}`, `{"reminders":["b"]}`, `["b","a"]`, 1, `[]`},
		{`{"texts":["a"]}`, `{"reminders":["a"]}`, "", 1, `[]`},
	} {
		p := built(t, "reminder", c.config)
		s := &run.AgentState{Shared: json.RawMessage(c.state)}
		h, err := p.State(context.Background(), run.PhaseRunStart, &definition, s)
		require.NoError(t, err)
		require.Equal(t, c.begun, value(h), "%+v", c)
		_, add, err := p.BeforeInference(context.Background(), &definition, s)
		require.NoError(t, err)
		r, err := add.To(agent.Request{Messages: []run.Message{{Role: run.RoleUser, Block: run.Text{Text: "Go."}}}, Inferences: 2})
		require.NoError(t, err)
		require.Len(t, r.Messages, c.said+1, "%+v", c)
		require.Equal(t, run.Text{Text: "Go."}, r.Messages[c.said].Block)
		require.Zero(t, r.Messages[0].Seen(2)*int64(c.said))
		h, err = p.AfterInference(context.Background(), &definition, s, nil)
		require.NoError(t, err)
		require.Equal(t, c.kept, value(h), "%+v", c)
		h, err = p.AfterInference(context.Background(), &definition, s, &agent.ModelError{})
		require.NoError(t, err)
		require.True(t, h.Empty(), "a failed call of the model has shown nothing")
	}
}

func value(h run.Hooked) string {
	if len(h.Patches) == 0 {
		return ""
	}
	return string(h.Patches[0].Value)
}
