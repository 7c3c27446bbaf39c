package hook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Plugin is what a plugin does at each phase; nil = nothing. It keeps nothing between two phases but in the run's
// shared state: the next phase may be another process. Functions return soon, and may run for several runs at once.
type Plugin struct {
	RunStart        func(ctx context.Context, m *Moment) error
	StepStart       func(ctx context.Context, m *Moment) error
	BeforeInference func(ctx context.Context, m *BeforeInference) error
	AfterInference  func(ctx context.Context, m *AfterInference) error
	StepEnd         func(ctx context.Context, m *Moment) error
	BeforeTool      func(ctx context.Context, m *BeforeTool) error
	AfterTool       func(ctx context.Context, m *AfterTool) error
	RunEnd          func(ctx context.Context, m *Moment) error
}

// Moment is what every phase has: the run to look at, and its shared state to change. What it gives out stays as it is.
type Moment struct {
	def     *agent.Definition
	run     *run.AgentState
	patches []run.Patch
	patched int // size of patches in bytes
	invalid error
}

// Agent is the definition that the run is pinned to.
func (m *Moment) Agent() *agent.Definition { return m.def }

// Run is the run as it is, with what plugins before this one have patched.
func (m *Moment) Run() *run.AgentState { return m.run }

// Value reads the value at a JSON Pointer of the shared state into v, and reports whether there is one. A value that
// does not fit v is an error.
func (m *Moment) Value(path string, v any) (bool, error) {
	if len(m.run.Shared) == 0 {
		return false, nil
	}
	raw, ok, err := jsonx.Lookup(m.run.Shared, path)
	if err != nil || !ok {
		return false, err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return true, fmt.Errorf("read %s of the shared state: %w", path, err)
	}
	return true, nil
}

// Patch sets the value at a JSON Pointer of the shared state. What is no JSON, or no place, fails the phase; so do more
// than 64 KiB in one phase, from all plugins together.
func (m *Moment) Patch(path string, value any) {
	if m.patched > maxTexts { // the phase has failed, which is said once
		return
	}
	raw, err := json.Marshal(value)
	p, state := []run.Patch{{Path: path, Value: raw}}, m.run.Shared
	if err == nil {
		err = policy.CheckPatch(m.run.SharedState(), p)
	}
	if m.patched += policy.PatchSize(p); err == nil && m.patched > maxTexts {
		err = fmt.Errorf("patches of %d bytes, want at most %d in one phase", m.patched, maxTexts)
	}
	if err == nil {
		state, err = run.ApplyPatches(state, p)
	}
	if err != nil {
		m.invalid = errors.Join(m.invalid, err)
		return
	}
	m.run.Shared, m.patches = state, append(m.patches, p...)
}

// BeforeInference is the moment before the model is asked. What is added to the request is in this request alone.
type BeforeInference struct {
	Moment

	ending
	plugin          string // that has the word
	system, session []string
	excluded        map[string]bool
	included        map[string]bool // nil = nobody has said
	transforms      []transform
}

// AddSystem adds a paragraph to the system text.
func (m *BeforeInference) AddSystem(text string) { m.system = append(m.system, text) }

// AddSession adds a message of the system's before the conversation.
func (m *BeforeInference) AddSession(text string) { m.session = append(m.session, text) }

// Exclude takes tools, by original name, out of the request, whoever includes them. A call of such a tool fails.
func (m *BeforeInference) Exclude(tools ...string) {
	for _, t := range tools {
		m.excluded[t] = true
	}
}

// IncludeOnly leaves in the request what is named, by original name, here or by another plugin that includes; none of
// these, no tool.
func (m *BeforeInference) IncludeOnly(tools ...string) {
	if m.included == nil {
		m.included = map[string]bool{}
	}
	for _, t := range tools {
		m.included[t] = true
	}
}

// Transform changes the request, which is a copy whose lists are shared: change is to make new ones. Transforms run in
// order, after everything that is added; whether the result is one that a provider takes is theirs to see to. A request
// for notes of what leaves the context before the inference is changed, too.
func (m *BeforeInference) Transform(change func(agent.Request) agent.Request) {
	m.transforms = append(m.transforms, transform{m.plugin, change})
}

// AfterInference is the moment after the model has answered. The answer stands in the run, not in the journal yet.
type AfterInference struct {
	Moment

	ending
	failure *agent.ModelError
}

// Failure is why there is no answer, where the model failed for good and the run is about to end; else nil.
func (m *AfterInference) Failure() *agent.ModelError { return m.failure }

// ending is the effect of the phases that may end a run. The first reason counts.
type ending struct {
	reason  run.Reason
	problem error
}

// End ends the run as plugin_requested, with the last text so far as its output: the model is not asked, and calls that
// it has asked for are not carried out.
func (e *ending) End() { e.set(run.ReasonPluginRequested) }

// Stop ends the run as stopped:<code>, which is 1 to 40 of a to z and _; another code fails the phase. Before an
// inference that is at once; behind one, once the calls it asked for have finished.
func (e *ending) Stop(code string) {
	if !run.ValidStopCode(code) {
		e.problem = errCode
	}
	e.set(run.Stopped(code))
}

// errCode is the error of a plugin that stops a run and does not say what for.
var errCode = errors.New("it stopped the run without a code of 1 to 40 of a to z and _")

func (e *ending) set(r run.Reason) { e.reason = cmp.Or(e.reason, r) }

// BeforeTool is the moment before a call is carried out: for a new call, and again for one that was suspended and goes
// on. The newest word is not the last: of what all plugins say, blocking counts before suspending and that before a
// result, and of two that say the same the first does. Rules of the definition hold whatever plugins say.
type BeforeTool struct {
	Moment

	call run.Call
	gate agent.PluginGate
	fit  func(run.Ticket) error // what only a runtime sees of a ticket; nil = nothing
}

// Call is the call.
func (m *BeforeTool) Call() run.Call { return ownInput(m.call) }

// ownInput is the call with arguments that a plugin may change.
func ownInput(c run.Call) run.Call {
	c.Input = bytes.Clone(c.Input)
	return c
}

// Tool is the call's tool; false where the agent has none of that name.
func (m *BeforeTool) Tool() (agent.ToolSpec, bool) { return m.def.Tool(m.call.Tool) }

// Resumed reports whether the call was suspended and goes on.
func (m *BeforeTool) Resumed() bool { return m.call.Status == run.StatusResuming }

// Granted reports whether somebody who may has approved this very call. Whether it still holds the gate sees.
func (m *BeforeTool) Granted() bool { return m.call.Grant != nil }

// Block refuses the call: it fails, and the model reads why, of which 2000 characters are kept.
func (m *BeforeTool) Block(reason string) { m.gate.Block = cmp.Or(m.gate.Block, &reason) }

// Suspend has somebody asked before the call runs, who may approve under the agent's permission. Once they have, this
// phase runs again, and the call has the answer as its Resume; the tool does not get it, as it is none to a question of
// its own. A ticket that nobody could be asked, or whose answer nothing could be checked against, fails the phase.
func (m *BeforeTool) Suspend(t run.Ticket) {
	t, err := policy.NormalizeTicket(t)
	if err == nil && m.fit != nil {
		err = m.fit(t)
	}
	m.invalid = errors.Join(m.invalid, err)
	m.gate.Suspend = cmp.Or(m.gate.Suspend, &t)
}

// SetResult is the call's result in the tool's place: it is not entered. A result that asks people fails the phase:
// that is what Suspend is for.
func (m *BeforeTool) SetResult(r agent.ToolResultData) {
	if r.Suspend != nil {
		m.invalid = errors.Join(m.invalid, errors.New("its result asks people, want Suspend"))
	}
	m.gate.Result = cmp.Or(m.gate.Result, &r)
}

// Allow withdraws what plugins before this one have said of the call. Those behind it may say something again.
func (m *BeforeTool) Allow() { m.gate = agent.PluginGate{} }

// AfterTool is the moment after a call came to something here: a result, an error, a refusal, a suspension.
type AfterTool struct {
	Moment

	call run.Call
	says []run.PluginText
	size int // of says in bytes
}

// maxTexts bounds what plugins add behind one call, and their patches in one phase, in bytes: one entry stores each.
const maxTexts = 64 << 10

// Call is the call, with its status and result.
func (m *AfterTool) Call() run.Call { return ownInput(m.call) }

// AddReminder adds a message of the system's behind the results of the round. More than 64 KiB behind one call, from
// all plugins together, fail the phase.
func (m *AfterTool) AddReminder(text string) { m.say(run.PluginText{Text: text, Reminder: true}) }

// AddMessage adds a message of the user's behind the results of the round. It has the bound of AddReminder.
func (m *AfterTool) AddMessage(text string) { m.say(run.PluginText{Text: text}) }

func (m *AfterTool) say(t run.PluginText) {
	fitted := m.size <= maxTexts
	m.says, m.size = append(m.says, t), m.size+len(t.Text)
	if fitted && m.size > maxTexts { // said once
		m.invalid = errors.Join(m.invalid, fmt.Errorf("messages of %d bytes, want at most %d", m.size, maxTexts))
	}
}

// ReminderPath is where a run keeps its reminders for the plugin reminder: a list of texts, to which tools and other
// plugins may add.
const ReminderPath = "/reminders"

type reminderConfig struct {
	Texts []string `json:"texts"` // what the list begins with in every attempt
	Keep  bool     `json:"keep"`  // the list is not emptied by a call of the model
}

// reminder puts each text of a list into the request, once, as session context, and empties the list when the model has
// been called (presets 10).
func reminder(config json.RawMessage) (Plugin, error) {
	var c reminderConfig
	if err := decode(config, &c); err != nil {
		return Plugin{}, err
	}
	p := Plugin{BeforeInference: func(_ context.Context, m *BeforeInference) error {
		for _, text := range reminders(&m.Moment) {
			m.AddSession(text)
		}
		return nil
	}}
	if len(c.Texts) > 0 {
		p.RunStart = func(_ context.Context, m *Moment) error {
			have := reminders(m)
			if list := deduplicated(append(slices.Clone(have), c.Texts...)); len(list) != len(have) {
				m.Patch(ReminderPath, list)
			}
			return nil
		}
	}
	if !c.Keep {
		p.AfterInference = func(_ context.Context, m *AfterInference) error {
			if m.Failure() == nil && len(reminders(&m.Moment)) > 0 {
				m.Patch(ReminderPath, []string{})
			}
			return nil
		}
	}
	return p, nil
}

// reminders is the run's list, each text once. What is there and is no list of texts reminds of nothing.
func reminders(m *Moment) []string {
	var list []string
	if _, err := m.Value(ReminderPath, &list); err != nil {
		return nil
	}
	return deduplicated(list)
}

func deduplicated(list []string) []string {
	var once []string
	for _, text := range list {
		if text != "" && !slices.Contains(once, text) {
			once = append(once, text)
		}
	}
	return once
}

// toolPolicyConfig is the configuration of the plugin tool-policy: patterns over original names, in which '*' stands
// for any run of characters.
type toolPolicyConfig struct {
	Allow   []string `json:"allow"`   // these alone; none = all
	Exclude []string `json:"exclude"` // not these, whatever is allowed
}

// toolPolicy takes tools out of every request, and blocks their calls should they be made all the same (presets 10).
func toolPolicy(config json.RawMessage) (Plugin, error) {
	var c toolPolicyConfig
	if err := decode(config, &c); err != nil {
		return Plugin{}, err
	}
	return Plugin{
		BeforeInference: func(_ context.Context, m *BeforeInference) error {
			if len(c.Allow) > 0 {
				m.IncludeOnly()
			}
			for _, t := range policy.ToolsIn(m.Agent(), m.Run()) {
				switch allowed := c.allows(m.Agent(), t.Name); {
				case allowed && len(c.Allow) > 0:
					m.IncludeOnly(t.Name)
				case !allowed && matchesAny(c.Exclude, t.Name):
					m.Exclude(t.Name)
				}
			}
			return nil
		},
		BeforeTool: func(_ context.Context, m *BeforeTool) error {
			if !c.allows(m.Agent(), m.Call().Tool) {
				m.Block("the agent's tool policy does not allow it")
			}
			return nil
		},
	}, nil
}

// allows reports whether a tool may be offered and called. The tools that end a run always may, as nothing else ends
// it, and results may be read on unless that is excluded.
func (c toolPolicyConfig) allows(d *agent.Definition, tool string) bool {
	return d.BreaksLoop(tool) || !matchesAny(c.Exclude, tool) &&
		(len(c.Allow) == 0 || matchesAny(c.Allow, tool) || tool == agent.ReadMore && d.KeepsWhole())
}

func matchesAny(patterns []string, tool string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return agent.MatchTool(p, tool) })
}
