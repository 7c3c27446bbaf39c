package prompt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// PlanFacts turns a model's reply to a request of the plan into the events that are committed: the reply's own, and
// PlanLeft behind it if the plan cannot go on. requests counts all requests for the reply. accepts reports whether
// arguments fit a tool. results is as in BuildPlanRequest. All decisions are in the events, so that folding them
// decides nothing.
func PlanFacts(
	d *agent.Definition, s *run.AgentState, a policy.Action, r agent.Reply, requests int,
	accepts func(t agent.ToolSpec, args json.RawMessage) bool, results map[string]string,
) []run.Event {
	took := run.PlanFact{
		N: s.Plan.Facts + 1, Model: cmp.Or(r.Model, "?"), Requests: requests,
		Usage: r.Usage, Units: r.Usage.Total(),
		Cost: PlanModel(d, a.Lifecycle).ChainModel(r.Place).Price.Of(r.Usage),
	}
	if !r.At.IsZero() {
		took.At = r.At.UnixMilli()
	}
	r = understoodForPlan(d, a, r)
	switch a.Lifecycle {
	case run.LifecyclePlan:
		return planFacts(d, s, r, took)
	case run.LifecycleRoute:
		return routeFacts(d, s, a, r, took, accepts)
	default:
		return []run.Event{synthesised(d, s, r, took, results)}
	}
}

// understoodForPlan returns a reply in the form that PlanFacts takes. For a model that writes its calls as text, the
// first pair of tool tags is the step's call, and thinking is dropped. A call that cannot be read is none. The
// arguments of a step's call are repaired as those of any other.
func understoodForPlan(d *agent.Definition, a policy.Action, r agent.Reply) agent.Reply {
	asked := PlanModel(d, a.Lifecycle)
	if asked.ChainModel(r.Place).Dialect == agent.DialectXML && len(r.Calls) == 0 {
		said := policy.ReadToolText(agent.ValidText(r.Text))
		r = said.Reply(r)
		if a.Lifecycle == run.LifecycleRoute && said.Called {
			if call, err := said.Call(d.XML.MissingServer); err == nil {
				r.Calls = []agent.ReplyCall{policy.Call(d, call)}
			}
		}
	}
	if len(r.Calls) > 0 {
		r.Calls = slices.Clone(r.Calls)
		r.Calls[0] = policy.RepairCall(asked, r, r.Calls[0])
	}
	return r
}

// PlanFailed is PlanFacts for a model that failed. An improved plan and a synthesis are then left out.
func PlanFailed(
	d *agent.Definition, s *run.AgentState, a policy.Action, failed *agent.ModelError, requests int,
	results map[string]string,
) []run.Event {
	took := run.PlanFact{N: s.Plan.Facts + 1, Requests: requests}
	switch {
	case a.Lifecycle == run.LifecycleSynthesis:
		return []run.Event{synthesised(d, s, agent.Reply{}, took, results)}
	case s.Plan.Stage == run.PlanAgain:
		return []run.Event{run.Planned{PlanFact: carriedOut(took, known(s)[0].Step)}}
	default:
		left := LeavePlan(s, LeftModelFailed, failed.Error())
		left.Requests = requests
		return []run.Event{left}
	}
}

func planFacts(d *agent.Definition, s *run.AgentState, r agent.Reply, e run.PlanFact) []run.Event {
	plan, err := ParsePlan(r.Text)
	if policy.IsCutShort(r.StopReason) { // perhaps between two of its steps
		err = fmt.Errorf("%w: it was cut short", ErrPlan)
	}
	first := s.Plan.Stage != run.PlanAgain
	switch {
	case !first && (err != nil || len(plan.Steps) < 2 || len(plan.Steps) > d.Orchestrator.MaxSteps):
		// used only if it has more steps
		e = carriedOut(e, known(s)[0].Step)
	case err != nil:
		return leaving(s, run.Planned{PlanFact: e}, LeftUnreadable, err.Error())
	case len(plan.Steps) > d.Orchestrator.MaxSteps: // what is beyond would be left undone, and the answer would not say so
		return leaving(s, run.Planned{PlanFact: e}, LeftTooLong, "")
	case plan.Direct != "":
		e.Text, e.Stage = plan.Direct, run.PlanDone
	default:
		e = carriedOut(e, plan.Steps...)
		if first && len(plan.Steps) == 1 && asksForMore(planBuilder{d: d, s: s}.request()) {
			e.Stage = run.PlanAgain
		}
	}
	e.Halt = policy.HaltInPlan(d, s, e, "", e.Text)
	return []run.Event{run.Planned{PlanFact: e}}
}

// carriedOut returns the event of a plan whose steps are to be carried out.
func carriedOut(e run.PlanFact, steps ...Step) run.PlanFact {
	states := run.Map(steps, func(s Step) StepState { return StepState{Step: s} })
	e.Stage, e.Memory = run.PlanSteps, remember(states...)
	return e
}

// leaving returns an event and a PlanLeft behind it.
func leaving(s *run.AgentState, e run.Event, why LeaveReason, detail string) []run.Event {
	left := LeavePlan(s, why, detail)
	left.N++
	return []run.Event{e, left}
}

// routeFacts judges a router's reply: its first call is the step's. After the last attempt, a tool that the text names
// is called with the planner's hints, if it is the only tool named and accepts them.
func routeFacts(d *agent.Definition, s *run.AgentState, a policy.Action, r agent.Reply, e run.PlanFact,
	accepts func(agent.ToolSpec, json.RawMessage) bool) []run.Event {
	steps := known(s)
	at := next(steps)
	step := &steps[at]
	e.Step, e.Offered = step.Number, a.Offered
	calls := r.Calls
	last := step.Tries+1 >= d.Orchestrator.Retries
	if len(calls) == 0 && last {
		calls = namedCall(d, s, a, *step, r.Text, accepts)
	}
	if at+1 == len(steps) && (len(calls) > 0 || last) {
		e.Stage = run.PlanSynthesis
	}
	if len(calls) > 0 {
		used := func(id string) bool { return s.UsedID(id, s.Prior+1) }
		c := marked(a, d, policy.PlannedCall(d, agent.CallID(calls[0].ID, used, s.Prior+1, 0), calls[0]))
		e.Call, e.Sequential = &c, d.Executor == agent.ExecutorSequential
		e.Halt = policy.HaltInPlan(d, s, e, c.Original(), "")
		return []run.Event{run.StepRouted{PlanFact: e}}
	}
	step.Tries++
	step.Failed = last
	e.Memory = remember(steps...)
	e.Halt = policy.HaltInPlan(d, s, e, "", "")
	if why := failedStep(steps, at); why != "" {
		return leaving(s, run.StepRouted{PlanFact: e}, why, "")
	}
	return []run.Event{run.StepRouted{PlanFact: e}}
}

// failedStep says why the loop takes over after a step without a call: a later step needs its result, or it was the
// last one and no step has called a tool. "" means that the plan goes on.
func failedStep(steps []StepState, at int) LeaveReason {
	if !steps[at].Failed {
		return ""
	}
	needs := func(st StepState) bool { return slices.Contains(mentioned(st.Description), steps[at].Number) }
	if slices.ContainsFunc(steps[at+1:], needs) {
		return LeftStepFailed
	}
	called := slices.ContainsFunc(steps[:at], func(st StepState) bool { return st.Call.ID != "" })
	if at+1 == len(steps) && !called {
		return LeftNothingDone
	}
	return ""
}

// namedCall returns the call of the one offered tool that a text names, with the planner's hints as arguments; nil if
// there is none.
func namedCall(d *agent.Definition, s *run.AgentState, a policy.Action, step StepState, text string,
	accepts func(agent.ToolSpec, json.RawMessage) bool) []agent.ReplyCall {
	var found []agent.ToolSpec
	for _, t := range d.Tools {
		if !policy.Disabled(s, t) && !slices.Contains(s.Hidden, t.Name) && a.Offers(t.Name) &&
			(names(text, t.Name) || names(text, t.ModelName())) {
			found = append(found, t)
		}
	}
	if len(found) != 1 {
		return nil
	}
	args := step.Hints
	if args == nil {
		args = json.RawMessage(`{}`)
	}
	if !accepts(found[0], args) {
		return nil
	}
	return []agent.ReplyCall{{Name: found[0].ModelName(), Input: args}}
}

// names reports whether a text contains a tool's whole name.
func names(text, tool string) bool {
	return regexp.MustCompile(`(?:^|[^\w.-])` + regexp.QuoteMeta(tool) + `(?:$|[^\w.-]|\.(?:$|[^\w-]))`).MatchString(text)
}

// synthesised returns the event of the plan's answer: the model's text, or the results of the steps.
func synthesised(d *agent.Definition, s *run.AgentState, r agent.Reply, e run.PlanFact,
	results map[string]string) run.Synthesised {
	e.Stage, e.Text = run.PlanDone, agent.ValidText(strings.TrimSpace(r.Text))
	if e.Text == "" {
		e.Static = planBuilder{d: d, s: s, steps: known(s), results: results}.bullets()
	}
	e.Halt = policy.HaltInPlan(d, s, e, "", e.Text)
	return run.Synthesised{PlanFact: e}
}
