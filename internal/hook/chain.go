package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Chain is the plugins of one agent, in order. The nil Chain has none. Safe for concurrent use if its plugins are.
type Chain struct{ plugins []named }

type named struct {
	name string
	Plugin
}

// Chain makes the plugins that an agent names. An error says which of them is not to be had; it is fit to be shown.
func (s Set) Chain(specs []agent.PluginSpec) (*Chain, error) {
	if len(specs) == 0 {
		return nil, nil //nolint:nilnil // the nil Chain is one without plugins
	}
	c := &Chain{}
	for _, spec := range specs {
		p, err := s.plugin(spec)
		if err != nil {
			return nil, err
		}
		c.plugins = append(c.plugins, p)
	}
	return c, nil
}

// Error is a plugin's failure, or an output check's. Its text is fit to be stored and shown if the plugin's own is.
type Error struct {
	Plugin string
	Phase  run.Phase
	Cause  error
}

func (e *Error) Error() string {
	if e.Phase == phaseOutput {
		return fmt.Sprintf("output check %s failed: %s", e.Plugin, agent.Bounded(e.Cause.Error()))
	}
	return fmt.Sprintf("plugin %s failed in %s: %s", e.Plugin, e.Phase, agent.Bounded(e.Cause.Error()))
}

func (e *Error) Unwrap() error { return e.Cause }

// errPanicked is the cause where a plugin panicked. What it panicked with may hold anything, so nobody is told.
var errPanicked = errors.New("it panicked")

var errMissing = errors.New("this deployment does not have it")

// BeginsRuns reports whether a plugin has something to do at run_start.
func (c *Chain) BeginsRuns() bool {
	return c != nil && slices.ContainsFunc(c.plugins, func(p named) bool { return p.RunStart != nil })
}

func (c *Chain) each(ctx context.Context, phase run.Phase, m *Moment, call func(p named) error) error {
	if c == nil {
		return nil
	}
	for _, p := range c.plugins {
		err := CallSafely(func() error { return call(p) })
		if err == nil {
			err = m.invalid
		}
		if ctx.Err() != nil { // the invocation is at its end; the next one enters it again
			return ctx.Err()
		}
		if err != nil {
			return &Error{Plugin: p.name, Phase: phase, Cause: err}
		}
	}
	return nil
}

// moment is that of a run: a copy of it, where there are plugins that may patch it.
func (c *Chain) moment(d *agent.Definition, s *run.AgentState) Moment {
	if c != nil {
		seen := *s
		s = &seen
	}
	return Moment{def: d, run: s}
}

// enter calls what a plugin does at a phase, if it does anything.
func enter[M any](ctx context.Context, m M, do func(context.Context, M) error) error {
	if do == nil {
		return nil
	}
	return do(ctx, m)
}

// CallSafely calls code of the deployment. A panic becomes an error that does not hold the panic's value.
func CallSafely(call func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	return call()
}

// State runs one of the phases that only change the shared state.
func (c *Chain) State(
	ctx context.Context, phase run.Phase, d *agent.Definition, s *run.AgentState,
) (run.Hooked, error) {
	moment := c.moment(d, s)
	m := &moment
	err := c.each(ctx, phase, m, func(p named) error {
		return enter(ctx, m, map[run.Phase]func(context.Context, *Moment) error{
			run.PhaseRunStart: p.RunStart, run.PhaseStepStart: p.StepStart,
			run.PhaseStepEnd: p.StepEnd, run.PhaseRunEnd: p.RunEnd,
		}[phase])
	})
	return run.Hooked{Phase: phase, Patches: m.patches}, err
}

// Additions is what plugins add to one request. The zero value adds nothing.
type Additions struct {
	system, session []string
	transforms      []transform
}

type transform struct {
	plugin string
	change func(agent.Request) agent.Request
}

// BeforeInference runs the phase: what was decided, and what the request gets beside it.
func (c *Chain) BeforeInference(
	ctx context.Context, d *agent.Definition, s *run.AgentState,
) (run.Hooked, Additions, error) {
	m := &BeforeInference{Moment: c.moment(d, s), excluded: map[string]bool{}}
	err := c.each(ctx, run.PhaseBeforeInference, &m.Moment, func(p named) error {
		m.plugin = p.name
		return errors.Join(enter(ctx, m, p.BeforeInference), m.ending.problem)
	})
	h := run.Hooked{Phase: run.PhaseBeforeInference, Patches: m.patches, End: m.reason}
	for _, t := range policy.ToolsIn(m.def, m.run) { // what anybody excludes, and nobody includes where somebody does
		if m.excluded[t.Name] || m.included != nil && !m.included[t.Name] {
			h.Hidden = append(h.Hidden, t.Name)
		}
	}
	return h, Additions{m.system, m.session, m.transforms}, err
}

// To is the request with the additions: the system's text first, then messages before the conversation, then the
// transforms in order.
func (a Additions) To(r agent.Request) (agent.Request, error) {
	return a.Transform(r.WithContext(a.system, a.session))
}

// Transform is the request after the transforms alone, for the one for notes of what leaves the context.
func (a Additions) Transform(r agent.Request) (agent.Request, error) {
	if len(a.transforms) > 0 { // they may change messages in place
		r.Messages = slices.Clone(r.Messages)
	}
	for _, t := range a.transforms {
		if err := CallSafely(func() error { r = t.change(r); return nil }); err != nil {
			return r, &Error{Plugin: t.plugin, Phase: run.PhaseBeforeInference, Cause: err}
		}
	}
	return r, nil
}

// AfterInference runs the phase; failure is why the model gave no answer, nil where it did.
func (c *Chain) AfterInference(
	ctx context.Context, d *agent.Definition, s *run.AgentState, failure *agent.ModelError,
) (run.Hooked, error) {
	m := &AfterInference{Moment: c.moment(d, s), failure: failure}
	err := c.each(ctx, run.PhaseAfterInference, &m.Moment, func(p named) error {
		return errors.Join(enter(ctx, m, p.AfterInference), m.ending.problem)
	})
	return run.Hooked{Phase: run.PhaseAfterInference, Patches: m.patches, End: m.reason}, err
}

// BeforeTool runs the phase for a call: what was decided, and what the gate is to know. Fit says what is wrong with a
// ticket that is well formed; nil = nothing is.
func (c *Chain) BeforeTool(
	ctx context.Context, d *agent.Definition, s *run.AgentState, call run.Call, fit func(run.Ticket) error,
) (run.Hooked, agent.PluginGate, error) {
	m := &BeforeTool{Moment: c.moment(d, s), call: call, fit: fit}
	err := c.each(ctx, run.PhaseBeforeTool, &m.Moment, func(p named) error { return enter(ctx, m, p.BeforeTool) })
	switch g := &m.gate; { // of what was said of the call, one thing counts
	case g.Block != nil:
		g.Suspend, g.Result = nil, nil
	case g.Suspend != nil:
		g.Result = nil
	}
	return run.Hooked{Phase: run.PhaseBeforeTool, Call: call.ID, Patches: m.patches}, m.gate, err
}

// AfterTool runs the phase for a call that came to something.
func (c *Chain) AfterTool(
	ctx context.Context, d *agent.Definition, s *run.AgentState, call run.Call,
) (run.Hooked, error) {
	m := &AfterTool{Moment: c.moment(d, s), call: call}
	err := c.each(ctx, run.PhaseAfterTool, &m.Moment, func(p named) error { return enter(ctx, m, p.AfterTool) })
	return run.Hooked{Phase: run.PhaseAfterTool, Call: call.ID, Patches: m.patches, Texts: m.says}, err
}

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

// permission lets calls pass, blocks them, or has people asked: by their tool, or else the default, ask (presets 10).
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
		switch answer := c.answer(m, call.Tool); {
		case answer == answerDeny:
			m.Block("permission denied")
		case answer == answerAllow || m.Granted():
		case call.ID == "":
			m.Block("permission is asked for, and the call has no id to ask about")
		default:
			m.Suspend(confirmation(call))
		}
		return nil
	}}, nil
}

// answer is the run's own, the file's, or ask; a run's own that cannot be read is ask.
func (c permissionConfig) answer(m *BeforeTool, tool string) string {
	var own struct {
		Default *string           `json:"default"`
		Tools   map[string]string `json:"tools"`
	}
	if _, err := m.Value(PermissionPath, &own); err != nil {
		return answerAsk
	}
	for _, tools := range []map[string]string{own.Tools, c.Tools} {
		if answer, ok := tools[tool]; ok {
			return answer
		}
	}
	switch {
	case m.Agent().BreaksLoop(tool): // it only ends the run
		return answerAllow
	case own.Default != nil:
		return *own.Default
	}
	return c.Default
}

// confirmation asks for a call by the pseudo-call that front ends of seed 001 know.
func confirmation(c run.Call) run.Ticket {
	args, _ := jsonx.MarshalVerbatim(struct { // stored arguments always marshal
		Tool string          `json:"tool_name"`
		Args json.RawMessage `json:"tool_args"`
	}{c.Tool, c.Input})
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
	err := jsonx.DecodeStrict(config, v)
	if bad := (*jsonx.JSONError)(nil); errors.As(err, &bad) { // no offset in the author's file
		return fmt.Errorf("config%s: want %s", bad.Pointer, bad.Want)
	}
	return err
}
