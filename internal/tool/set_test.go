package tool

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// bare is a hand-written tool.
type bare agent.ToolSpec

func (b bare) Spec() agent.ToolSpec { return agent.ToolSpec(b) }

func (b bare) Call(context.Context, Call) (agent.ToolResultData, error) { return Text(b.Name), nil }

func plainTool(name string) bare {
	return bare{Name: name, Description: "d", Schema: json.RawMessage(`{"type":"object"}`)}
}

func TestSetKeepsOrder(t *testing.T) {
	s, err := NewSet(plainTool("z"), plainTool("a.b"), plainTool("m"))
	require.NoError(t, err)
	require.Equal(t, []string{"z", "a.b", "m"}, run.Map(s.Specs(), func(s agent.ToolSpec) string { return s.Name }))
	got, ok := s.Lookup("a.b")
	require.True(t, ok)
	require.Equal(t, plainTool("a.b"), got)
	_, ok = s.Lookup("a_b")
	require.False(t, ok, "lookup is by original name")
	s.Specs()[0].Schema[0] = 'x'
	require.True(t, json.Valid(s.Specs()[0].Schema))
	_, ok = (&Set{}).Lookup("a")
	require.False(t, ok)
}

func TestSetRefuses(t *testing.T) {
	with := func(change func(*bare)) bare {
		b := plainTool("odd")
		change(&b)
		return b
	}
	for name, tc := range map[string]struct {
		tools []Tool
		want  string
	}{
		"the same name":  {[]Tool{plainTool("a.b"), plainTool("a.b")}, `tools "a.b" and "a.b" are both "a_b" to the model`},
		"the same to it": {[]Tool{plainTool("a.b"), plainTool("c"), plainTool("a_b")}, `tools "a.b" and "a_b" are both "a_b" to the model`},
		"nil":            {[]Tool{plainTool("a"), nil}, "tool 1 is nil"},
		"name":           {[]Tool{plainTool("a b")}, `tool "a b": the name`},
		"effect":         {[]Tool{with(func(b *bare) { b.Effect = "x" })}, `effect "x"`},
		"no schema":      {[]Tool{with(func(b *bare) { b.Schema = nil })}, "want a JSON value"},
		"array schema":   {[]Tool{with(func(b *bare) { b.Schema = json.RawMessage(`{"type":"array"}`) })}, "type: object"},
		"any schema":     {[]Tool{with(func(b *bare) { b.Schema = json.RawMessage(`true`) })}, "type: object"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewSet(tc.tools...)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "make tool set")
		})
	}
}
