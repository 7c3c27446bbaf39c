package hook_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/run"
)

var definition = agent.Definition{Tools: []agent.ToolSpec{{Name: "look"}, {Name: "mail.send"}, {Name: "pay"}}}

// chain is the chain of plugins of code, p0, p1 and so on, in this order.
func chain(t *testing.T, plugins ...hook.Plugin) *hook.Chain {
	t.Helper()
	set := hook.Set{Plugins: map[string]hook.Factory{}}
	var specs []agent.PluginSpec
	for i, p := range plugins {
		name := "p" + string(rune('0'+i))
		set.Plugins[name] = func(json.RawMessage) (hook.Plugin, error) { return p, nil }
		specs = append(specs, agent.PluginSpec{Name: name})
	}
	c, err := set.Chain(specs)
	require.NoError(t, err)
	return c
}

// built is the chain of one built-in plugin.
func built(t *testing.T, name, config string) *hook.Chain {
	t.Helper()
	c, err := hook.Set{}.Chain([]agent.PluginSpec{{Name: name, Config: json.RawMessage(config)}})
	require.NoError(t, err)
	return c
}

func errorText(g agent.PluginGate) string {
	var said []string
	if g.Block != nil {
		said = append(said, "block "+*g.Block)
	}
	if g.Suspend != nil {
		said = append(said, "suspend "+g.Suspend.ID)
	}
	if g.Result != nil {
		said = append(said, "result "+g.Result.Content)
	}
	if said == nil {
		return "run"
	}
	return strings.Join(said, " and ")
}

func TestFirstEndCounts(t *testing.T) {
	end := hook.Plugin{AfterInference: func(_ context.Context, m *hook.AfterInference) error { m.End(); return nil }}
	stop := hook.Plugin{
		AfterInference: func(_ context.Context, m *hook.AfterInference) error { m.Stop("enough"); return nil },
	}
	for _, c := range []struct {
		plugins []hook.Plugin
		want    run.Reason
	}{{nil, ""}, {[]hook.Plugin{end, stop}, run.ReasonPluginRequested}, {[]hook.Plugin{stop, end}, "stopped:enough"}} {
		h, err := chain(t, c.plugins...).AfterInference(context.Background(), &definition, &run.AgentState{}, nil)
		require.NoError(t, err)
		require.Equal(t, c.want, h.End)
	}
}

func TestFailures(t *testing.T) {
	patch := func(path string, value any, err error) func(context.Context, *hook.Moment) error {
		return func(_ context.Context, m *hook.Moment) error { m.Patch(path, value); return err }
	}
	read := func(path string, into any) func(context.Context, *hook.Moment) error {
		return func(_ context.Context, m *hook.Moment) error { _, err := m.Value(path, into); return err }
	}
	fails := func(text string) func(context.Context, *hook.Moment) error {
		return func(context.Context, *hook.Moment) error { return errors.New(text) }
	}
	for name, c := range map[string]struct {
		do   func(context.Context, *hook.Moment) error
		want string
	}{
		"an error":                   {fails("no luck"), "plugin p0 failed in run_end: no luck"},
		"a long one":                 {fails(strings.Repeat("x", 3000)), strings.Repeat("x", 2000) + " […]"},
		"a panic":                    {func(context.Context, *hook.Moment) error { panic("secret") }, "plugin p0 failed in run_end: it panicked"},
		"a patch of the root":        {patch("", 1, nil), "want an object"},
		"a patch below a scalar":     {patch("/n/x", 1, nil), "neither an object nor a list"},
		"a patch that is no JSON":    {patch("/f", func() {}, nil), "unsupported type"},
		"a value of another type":    {read("/n", new(string)), "read /n of the shared state"},
		"a pointer that is not one":  {read("n", nil), "leading slash"},
		"an error after one of them": {patch("", 1, errors.New("first")), "first"},
	} {
		_, err := chain(t, hook.Plugin{RunEnd: c.do}).State(
			context.Background(), run.PhaseRunEnd, &definition, &run.AgentState{Shared: json.RawMessage(`{"n":3}`)},
		)
		var failed *hook.Error
		require.ErrorAs(t, err, &failed, name)
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), "secret", name)
	}
	transform := hook.Plugin{BeforeInference: func(_ context.Context, m *hook.BeforeInference) error {
		m.Transform(func(agent.Request) agent.Request { panic("secret") })
		return nil
	}}
	_, add, err := chain(t, hook.Plugin{}, transform).BeforeInference(context.Background(), &definition, &run.AgentState{})
	require.NoError(t, err)
	_, err = add.To(agent.Request{})
	require.EqualError(t, err, "plugin p1 failed in before_inference: it panicked")
}

// Effects that nothing could be made of fail their phase.
func TestEffectsThatFail(t *testing.T) {
	asks := hook.Plugin{BeforeTool: func(_ context.Context, m *hook.BeforeTool) error {
		m.SetResult(agent.ToolResultData{Suspend: &run.Ticket{}})
		return nil
	}}
	_, _, err := chain(t, asks).BeforeTool(context.Background(), &definition, &run.AgentState{}, run.Call{}, nil)
	require.EqualError(t, err, "plugin p0 failed in before_tool_execute: its result asks people, want Suspend")
	says := hook.Plugin{AfterTool: func(_ context.Context, m *hook.AfterTool) error {
		m.AddMessage(strings.Repeat("x", 40<<10))
		if len(m.Call().ID) > 0 {
			m.AddMessage(strings.Repeat("x", 40<<10))
			m.AddMessage("once more")
		}
		return nil
	}}
	patches := hook.Plugin{RunEnd: func(_ context.Context, m *hook.Moment) error {
		m.Patch("/x", strings.Repeat("x", 40<<10))
		return nil
	}}
	_, err = chain(t, patches, patches).State(t.Context(), run.PhaseRunEnd, &definition, &run.AgentState{})
	require.EqualError(t, err, "plugin p1 failed in run_end: patches of 81972 bytes, want at most 65536 in one phase")
	h, err := chain(t, says).AfterTool(context.Background(), &definition, &run.AgentState{}, run.Call{})
	require.NoError(t, err)
	require.Len(t, h.Texts, 1)
	_, err = chain(t, says, says).AfterTool(context.Background(), &definition, &run.AgentState{}, run.Call{})
	require.EqualError(t, err, "plugin p1 failed in after_tool_execute: messages of 81920 bytes, want at most 65536")
	_, err = chain(t, says).AfterTool(context.Background(), &definition, &run.AgentState{}, run.Call{ID: "c1"})
	require.EqualError(t, err, "plugin p0 failed in after_tool_execute: messages of 81920 bytes, want at most 65536")
}

// An invocation that is at its end has not failed: the next one enters the plugin again.
func TestTheEndOfAnInvocationIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	late := hook.Plugin{StepEnd: func(ctx context.Context, _ *hook.Moment) error { cancel(); return ctx.Err() }}
	_, err := chain(t, late).State(ctx, run.PhaseStepEnd, &definition, &run.AgentState{})
	require.Equal(t, context.Canceled, err)
}

func TestNamesAndConfigurations(t *testing.T) {
	broken := func(json.RawMessage) (hook.Plugin, error) { return hook.Plugin{}, errors.New("want a mood") }
	set := hook.Set{Plugins: map[string]hook.Factory{"moody": broken, "reminder": broken}}
	require.Equal(t, []string{"moody", "permission", "reminder", "tool-policy"}, set.PluginNames())
	for name, c := range map[string]struct{ config, want string }{
		"ghost":       {``, `there is no plugin "ghost"; known: moody, permission, reminder, tool-policy`},
		"moody":       {``, "plugin moody: want a mood"},
		"reminder":    {``, "plugin reminder: want a mood"}, // a deployment's own comes first
		"permission":  {`{"default":"sometimes"}`, "plugin permission: want allow, deny or ask"},
		"tool-policy": {`{"allow":5}`, `plugin tool-policy: `},
	} {
		err := set.CheckPlugin(agent.PluginSpec{Name: name, Config: json.RawMessage(c.config)})
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), "sometimes")
	}
	require.NoError(t, hook.Set{}.CheckPlugin(agent.PluginSpec{Name: "permission"}))
	require.NoError(t, hook.Set{}.CheckPlugin(agent.PluginSpec{Name: "tool-policy", Config: json.RawMessage("null")}))
}
