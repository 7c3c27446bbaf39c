package prompt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// The measures of a plan's requests (presets 8).
const (
	planHistory     = 6   // messages before the user's that the planner is shown
	planTemperature = 0.1 // of planner and router, where their own specification says none
	contextWhole    = 200 // characters of an earlier step's result that a step is shown whole
	contextHead     = 150 // of a longer one
	synthesisResult = 500 // characters of a step's result that the answer is made of
)

// LeavesPlan returns the event that must precede the request a to the loop: the run has a plan that cannot go on. It is
// false if there is no such plan.
func LeavesPlan(s *run.AgentState, a policy.Action) (run.PlanLeft, bool) {
	if a.Kind != policy.ActInfer || a.Lifecycle.ForPlan() || !s.Plan.Active() {
		return run.PlanLeft{}, false
	}
	return leave(s, LeftLimit, ""), true
}

// LeavePlan returns the event that ends a plan and gives the run back to the loop. detail says what failed.
func LeavePlan(s *run.AgentState, why LeaveReason, detail string) run.PlanLeft {
	e := leave(s, why, detail)
	if s.Plan.Stage == run.PlanSteps {
		steps := known(s)
		e.Step = steps[next(steps)].Number
	}
	return e
}

func leave(s *run.AgentState, why LeaveReason, detail string) run.PlanLeft {
	e := run.PlanFact{N: s.Plan.Facts + 1, Stage: run.PlanAbandoned, Why: string(why), Detail: agent.Bounded(detail)}
	return run.PlanLeft{PlanFact: e}
}

// LeaveReason says why the loop takes over from a plan.
type LeaveReason string

// The reasons.
const (
	LeftUnreadable  LeaveReason = "unreadable"     // the planner's reply is no plan
	LeftTooLong     LeaveReason = "too_many_steps" // more than the definition allows
	LeftModelFailed LeaveReason = "model_failed"
	LeftIndexFailed LeaveReason = "index_failed"  // the tools could not be compared with the step
	LeftStepFailed  LeaveReason = "step_failed"   // and a later step needs what it would have given
	LeftNothingDone LeaveReason = "nothing_done"  // not all steps went well, and none called a tool
	LeftLimit       LeaveReason = "limit_reached" // of tokens or of cost: the loop ends as limits say
)

// PlanModel returns the model for a request of the plan.
func PlanModel(d *agent.Definition, l run.Lifecycle) agent.ModelSpec {
	own, m := d.Orchestrator.Planner, d.Model
	if l == run.LifecycleRoute {
		own = d.Orchestrator.Router
	}
	if own != nil {
		m = *own
	}
	if l == run.LifecycleSynthesis || own != nil && own.Temperature != nil {
		return m
	}
	cool := planTemperature
	m.Temperature = &cool
	m.Fallbacks = slices.Clone(m.Fallbacks)
	for i := range m.Fallbacks {
		m.Fallbacks[i].Temperature = &cool
	}
	return m
}

// Narrowing returns the text that the tools of the request for a are compared with, and how many are offered. narrows
// is false if all tools are offered. Once what users said has left the context, the summary of what left stands for it.
func Narrowing(d *agent.Definition, s *run.AgentState, a policy.Action) (query, server string, k int, narrows bool) {
	switch {
	case a.Lifecycle == run.LifecycleRoute:
		steps := known(s)
		step := steps[next(steps)]
		query, server, k = step.Description, step.Server, d.Orchestrator.TopK
	case a.Lifecycle.ForPlan() || a.Lifecycle == run.LifecycleSummary:
		return "", "", 0, false
	default:
		query, k = cmp.Or(newestWords(s.Messages.All()), s.Summary), d.Prefilter.TopK
	}
	return query, server, k, k > 0 && query != "" && len(d.Tools) > k
}

// BuildPlanRequest returns the request to a model for action a of Next, which belongs to s's plan. The planner and the
// synthesis have the agent's system text with their order behind it, the planner the summary of what left the context
// in between. The router has its own system text and a single turn. results has, by call, the whole results that are in
// blobs.
func BuildPlanRequest(
	d *agent.Definition, s *run.AgentState, a policy.Action, system string, results map[string]string,
) agent.Request {
	r := agent.Request{
		Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Inference: s.Replies() + 1, Attempt: s.Plan.Failed,
		Model:      PlanModel(d, a.Lifecycle),
		Inferences: s.Inferences, Lifecycle: a.Lifecycle, Interactions: s.Interactions,
	}
	b := planBuilder{d: d, s: s, steps: known(s), results: results}
	switch a.Lifecycle {
	case run.LifecyclePlan:
		r.System, r.Messages = agent.Paragraphs(withSummary(d, s, system), b.planSystem(a)), b.planMessages(r)
	case run.LifecycleRoute:
		r.System, r.Messages, r.Tools = d.Word(agent.WordStepSystem, nil), []run.Message{r.Once(b.step())},
			offeredToPlan(d, s, a)
	default:
		r.System, r.Messages = agent.Paragraphs(system, d.Word(agent.WordSynthesisSystem, nil)),
			[]run.Message{r.Once(b.synthesis())}
	}
	return r
}

// offeredToPlan returns the tools of a plan and its steps: those of the loop that do not end it.
func offeredToPlan(d *agent.Definition, s *run.AgentState, a policy.Action) []agent.ToolSpec {
	return slices.DeleteFunc(policy.Offered(d, s, a), func(t agent.ToolSpec) bool { return d.BreaksLoop(t.Name) })
}

type planBuilder struct {
	d       *agent.Definition
	s       *run.AgentState
	steps   []StepState
	results map[string]string
}

func (b planBuilder) planSystem(a policy.Action) string {
	var tools []string
	for _, t := range offeredToPlan(b.d, b.s, a) {
		line := "- " + t.Name
		if t.Description != "" {
			line += ": " + strings.Join(strings.Fields(t.Description), " ")
		}
		tools = append(tools, line)
	}
	return b.d.Word(agent.WordPlanSystem,
		map[string]any{"Tools": strings.Join(tools, "\n"), "MaxSteps": strconv.Itoa(b.d.Orchestrator.MaxSteps)})
}

// planMessages returns the newest messages before the request, the request itself, and, if the plan is made again, the
// first plan and why it is not enough.
func (b planBuilder) planMessages(r agent.Request) []run.Message {
	all := ShowMessages(b.d, b.s, b.s.Messages.All())
	from, _ := b.asked(all)
	history := quoted(all[:from])
	history = history[max(0, len(history)-planHistory):]
	for len(history) > 0 && history[0].Role != run.RoleUser { // a conversation begins with a user
		history = history[1:]
	}
	messages := slices.Concat(history, quoted(all[from:]))
	if b.s.Plan.Stage != run.PlanAgain {
		return messages
	}
	first := Plan{Steps: []Step{b.steps[0].Step}}.String()
	return append(messages, run.Message{Role: run.RoleAssistant, Block: run.Text{Text: first}, Base: -b.s.Inferences},
		r.Once(b.d.Word(agent.WordPlanAgain, nil)))
}

// asked returns the range of the conversation that the plan is for: the newest messages of users that no inference has
// carried. Messages behind the plan are not part of it.
func (b planBuilder) asked(all []run.Message) (from, to int) {
	to = len(all)
	for b.s.Plan.Working() && to > 0 && all[to-1].Source.Run == "" && all[to-1].Source.Seq > b.s.Plan.Since {
		to--
	}
	from = to
	for from > 0 && all[from-1].Role == run.RoleUser && all[from-1].Seen(b.s.Inferences) == 0 {
		from--
	}
	return from, to
}

// request returns what users asked for, in their words.
func (b planBuilder) request() string {
	all := b.s.Messages.All()
	from, to := b.asked(all)
	var said []string
	for _, m := range all[from:to] {
		if t, ok := m.Block.(run.Text); ok {
			said = append(said, t.Text)
		}
	}
	return strings.Join(said, "\n\n")
}

// quoted returns messages as a model without tools reads them: calls and results as text, no reasoning.
func quoted(messages []run.Message) []run.Message {
	out := make([]run.Message, 0, len(messages))
	for _, m := range messages {
		switch b := m.Block.(type) {
		case run.ToolUse:
			m.Block = run.Text{Text: "[called " + b.Name + " with " + excerpt(string(b.Input), contextWhole, contextHead) + "]"}
		case run.ToolResult:
			text := b.Content
			if text == "" && b.Blob != "" {
				text = "…"
			}
			m.Block = run.Text{Text: "[result: " + excerpt(text, contextWhole, contextHead) + "]"}
		case run.Reasoning:
			continue
		}
		out = append(out, m)
	}
	return out
}

// step returns the one turn for the router. It quotes the last successful step, and those that the step names.
func (b planBuilder) step() string {
	at := next(b.steps)
	step := b.steps[at]
	named := mentioned(step.Description)
	last := -1
	for i, before := range b.steps[:at] {
		if !before.Failed {
			last = i
		}
	}
	var lines []string
	for i, before := range b.steps[:at] {
		if !before.Failed && (i == last || slices.Contains(named, before.Number)) {
			lines = append(lines, fmt.Sprintf("Step %d (%s): %s", before.Number, before.Description,
				excerpt(b.result(before), contextWhole, contextHead)))
		}
	}
	text := b.d.Word(agent.WordStep, map[string]any{
		"Step": strconv.Itoa(step.Number), "Description": step.Description, "Hints": string(step.Hints),
		"Context": strings.Join(lines, "\n"),
	})
	if step.Tries > 0 {
		text = agent.Paragraphs(text, b.d.Word(agent.WordStepAgain, nil))
	}
	return text
}

// synthesis returns the one turn for the synthesis of the answer.
func (b planBuilder) synthesis() string {
	var results []string
	for _, step := range b.steps {
		text := "no tool was called"
		if !step.Failed {
			text = excerpt(b.result(step), synthesisResult, synthesisResult)
		}
		results = append(results, fmt.Sprintf("Step %d (%s): %s", step.Number, step.Description, text))
	}
	return b.d.Word(agent.WordSynthesis, map[string]any{"Request": b.request(), "Results": strings.Join(results, "\n")})
}

// bullets returns the answer when no model gives one: the results of the successful steps.
func (b planBuilder) bullets() string {
	var lines []string
	for _, step := range b.steps {
		if !step.Failed {
			lines = append(lines, "- "+step.Description+": "+excerpt(b.result(step), synthesisResult, synthesisResult))
		}
	}
	return b.d.Word(agent.WordSynthesisStatic, map[string]any{"Results": strings.Join(lines, "\n")})
}

// result returns the result of a step's call, "" if there is none.
func (b planBuilder) result(step StepState) string {
	if step.Call.Result == nil {
		return ""
	}
	if body, whole := b.results[step.Call.ID]; whole {
		return body
	}
	return step.Call.Result.Content
}

// PlanBodies returns, by call, the blobs of those results that the request for a quotes.
func PlanBodies(s *run.AgentState, a policy.Action) map[string]string {
	bodies := map[string]string{}
	if a.Lifecycle != run.LifecycleRoute && a.Lifecycle != run.LifecycleSynthesis {
		return bodies
	}
	for _, u := range s.Plan.Uses {
		if c, ok := s.Call(u.ID); ok && c.Result != nil && c.Result.Content == "" && c.Result.Blob != "" {
			bodies[c.ID] = c.Result.Blob
		}
	}
	return bodies
}

// excerpt returns a text of at most whole characters unchanged, else its first head characters and their total number.
func excerpt(text string, whole, head int) string {
	n := utf8.RuneCountInString(text)
	if n <= whole {
		return text
	}
	return fmt.Sprintf("%s… (%d characters)", text[:RuneOffset(text, head)], n)
}

// Step is one step of a plan. The zero value is not valid.
type Step struct {
	Number      int    `json:"number"` // from 1, rising: what other steps call it
	Description string `json:"description"`
	// Server is whose tools are likely to be needed: what stands before the first dot of their names; "" = not said.
	Server string          `json:"server,omitempty"`
	Hints  json.RawMessage `json:"hints,omitempty"` // arguments that the planner suggests, an object; nil = none
}

// StepState is a step and its progress. A run's plan is stored as a list of them (run.Plan.Memory).
type StepState struct {
	Step
	Tries  int      `json:"tries,omitempty"`  // replies without a call to it
	Failed bool     `json:"failed,omitempty"` // no call came of it
	Call   run.Call `json:"-"`                // as it is now; the zero Call = it has none yet
	Done   bool     `json:"-"`                // it failed, or its call has ended
	Now    bool     `json:"-"`                // it is being carried out
}

// Memory reads the steps of a plan's event; none if the event has none.
func Memory(raw json.RawMessage) (steps []StepState, err error) {
	if raw == nil {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &steps); err != nil {
		return nil, fmt.Errorf("read the memory of a plan: %w", err)
	}
	return steps, nil
}

// Steps returns the steps of the run's plan with their progress.
func Steps(s *run.AgentState) ([]StepState, error) {
	steps, err := Memory(s.Plan.Memory)
	if err != nil {
		return nil, err
	}
	for i := range steps {
		st := &steps[i]
		st.Done = st.Failed
		if u := slices.IndexFunc(s.Plan.Uses, func(u run.PlanUse) bool { return u.Step == st.Number }); u >= 0 {
			c, ok := s.Call(s.Plan.Uses[u].ID)
			st.Call, st.Call.ID, st.Done = c, s.Plan.Uses[u].ID, ok && !c.Open()
		}
	}
	at := next(steps)
	switch {
	case s.Plan.Stage == run.PlanSteps && at == len(steps), s.Plan.Stage == run.PlanAgain && len(steps) == 0:
		return nil, errors.New("read the memory of a plan: the step that is next is missing")
	case !s.Plan.Working():
	case at > 0 && !steps[at-1].Done:
		steps[at-1].Now = true
	case at < len(steps):
		steps[at].Now = true
	}
	return steps, nil
}

// known returns the steps of the run's plan, after Steps has read them once without an error.
func known(s *run.AgentState) []StepState {
	steps, _ := Steps(s)
	return steps
}

func remember(steps ...StepState) json.RawMessage {
	raw, _ := jsonx.MarshalVerbatim(steps) // hints are JSON (stepsPlan); a plan without its memory is an error of Steps
	return raw
}

// next returns the index of the next step to carry out, the number of steps if there is none.
func next(steps []StepState) int {
	i := slices.IndexFunc(steps, func(s StepState) bool { return s.Call.ID == "" && !s.Failed })
	if i < 0 {
		return len(steps)
	}
	return i
}
