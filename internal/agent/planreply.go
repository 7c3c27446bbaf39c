package agent

import (
	"encoding/json"
	"slices"
	"strings"
)

// PlanFacts turns a model's reply to a request for the plan, which took so many requests, into the facts that are committed: the reply's
// own, and PlanLeft behind it where the plan cannot go on. Accepts says whether arguments fit a tool. Results are as in BuildPlanRequest.
// What they decide is in them, so that a fold decides nothing.
func PlanFacts(d *Definition, s *AgentState, a Action, r Reply, requests int, accepts func(t ToolSpec, args json.RawMessage) bool, results map[string]string) []Event {
	took := spentOn(d, s, a, r, requests)
	r = understoodForPlan(d, a, r)
	switch a.Lifecycle {
	case LifecyclePlan:
		return planFacts(d, s, r, took)
	case LifecycleRoute:
		return routeFacts(d, s, a, r, took, accepts)
	default:
		return []Event{synthesised(d, s, r, took, results)}
	}
}

// understoodForPlan is a reply to a request for the plan as PlanFacts takes it: of a model that writes its calls as text, the first pair of
// tool tags is its call where a step is owed one, and what it thought is part of nothing. A call that cannot be read is none, and what
// stands in its tags names no tool. Arguments of a step's call are repaired as those of any other.
func understoodForPlan(d *Definition, a Action, r Reply) Reply {
	asked := d.PlanModel(a.Lifecycle)
	if asked.Answering(r.Place).Dialect == DialectXML && len(r.Calls) == 0 {
		said := ReadToolText(validText(r.Text))
		r = said.reply(r)
		if a.Lifecycle == LifecycleRoute && said.Called {
			if call, err := said.Call(d.XML.MissingServer); err == nil {
				r.Calls = []ReplyCall{d.call(call)}
			}
		}
	}
	if len(r.Calls) > 0 {
		r.Calls = slices.Clone(r.Calls)
		r.Calls[0] = whole(asked, r, r.Calls[0])
	}
	return r
}

// PlanFailed is PlanFacts where the model failed. One that was to improve a plan or to sum up is done without.
func PlanFailed(d *Definition, s *AgentState, a Action, failed *ModelError, requests int, results map[string]string) []Event {
	took := Spent{N: s.Plan.Facts + 1, Requests: requests}
	switch {
	case a.Lifecycle == LifecycleSynthesis:
		return []Event{synthesised(d, s, Reply{}, took, results)}
	case s.Plan.Stage == PlanAgain:
		return []Event{Planned{Spent: took, Steps: []PlanStep{s.Plan.Steps[0].PlanStep}}}
	default:
		left := LeavePlan(s, LeftModelFailed, failed.Error())
		left.Requests = requests
		return []Event{left}
	}
}

func spentOn(d *Definition, s *AgentState, a Action, r Reply, requests int) Spent {
	e := Spent{N: s.Plan.Facts + 1, Model: r.Model, Requests: requests, Usage: r.Usage, Units: r.Usage.Input + r.Usage.Output}
	if e.Model == "" {
		e.Model = "?"
	}
	if !r.At.IsZero() {
		e.At = r.At.UnixMilli()
	}
	e.Cost = d.PlanModel(a.Lifecycle).Answering(r.Place).Price.of(r.Usage)
	return e
}

// planFacts judges a planner's reply.
func planFacts(d *Definition, s *AgentState, r Reply, took Spent) []Event {
	e := Planned{Spent: took}
	plan, err := ParsePlan(r.Text)
	first := s.Plan.Stage != PlanAgain
	switch {
	case !first && (err != nil || len(plan.Steps) < 2 || len(plan.Steps) > d.Orchestrator.MaxSteps): // used only if it has more steps
		e.Steps = []PlanStep{s.Plan.Steps[0].PlanStep}
	case err != nil:
		return leaving(s, e, LeftUnreadable, err.Error())
	case len(plan.Steps) > d.Orchestrator.MaxSteps: // what is beyond would be left undone, and the answer would not say so
		return leaving(s, e, LeftTooLong, "")
	default:
		e.Steps, e.Text = plan.Steps, plan.Direct
		e.Again = first && len(plan.Steps) == 1 && asksForMore(planBuilder{d: d, s: s}.request())
	}
	e.Halt = haltedBeside(d, s, took, "", e.Text)
	return []Event{e}
}

// leaving is a fact behind which the loop takes over.
func leaving(s *AgentState, e Event, why LeaveReason, detail string) []Event {
	left := LeavePlan(s, why, detail)
	left.N++
	return []Event{e, left}
}

// routeFacts judges a router's reply: its first call is the step's. After the last attempt a tool that the text names is called with what
// the planner suggested, if it is the only one named and takes that.
func routeFacts(d *Definition, s *AgentState, a Action, r Reply, took Spent, accepts func(ToolSpec, json.RawMessage) bool) []Event {
	p := &s.Plan
	step := p.Steps[p.next()]
	e := StepRouted{Spent: took, Step: step.Number, Offered: a.Offered}
	calls := r.Calls
	last := p.Tries+1 >= d.Orchestrator.Retries
	if len(calls) == 0 && last {
		calls = namedCall(d, s, a, step, r.Text, accepts)
	}
	if len(calls) > 0 {
		used := func(id string) bool { return s.usedID(id, s.Prior+1) }
		c := a.marked(d, plannedCall(d, CallID(calls[0].ID, used, s.Prior+1, 0), calls[0]))
		e.Call, e.Sequential = &c, d.Executor == ExecutorSequential
		e.Halt = haltedBeside(d, s, took, c.original(), "")
		return []Event{e}
	}
	e.Failed = last
	e.Halt = haltedBeside(d, s, took, "", "")
	switch why := failedStep(p, step, last); why {
	case "":
		return []Event{e}
	default:
		return leaving(s, e, why, "")
	}
}

// failedStep says why the loop takes over once no reply to the step had a call: a later step needs what it would have given, or it was the
// last and none has called anything. "" = it does not.
func failedStep(p *Orchestration, step StepState, failed bool) LeaveReason {
	if !failed {
		return ""
	}
	at := p.next()
	for _, later := range p.Steps[at+1:] {
		if slices.Contains(mentioned(later.Description), step.Number) {
			return LeftStepFailed
		}
	}
	called := slices.ContainsFunc(p.Steps[:at], func(st StepState) bool { return st.Use.ID != "" })
	if at+1 == len(p.Steps) && !called {
		return LeftNothingDone
	}
	return ""
}

// namedCall is the call of the one offered tool that a text names, with the planner's suggestion as arguments; nil where there is none.
func namedCall(d *Definition, s *AgentState, a Action, step StepState, text string, accepts func(ToolSpec, json.RawMessage) bool) []ReplyCall {
	var found []ToolSpec
	for _, t := range d.Tools {
		if !s.Disabled(t) && !slices.Contains(s.Hidden, t.Name) && a.offers(t.Name) && (names(text, t.Name) || names(text, t.ModelName())) {
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
	return []ReplyCall{{Name: found[0].ModelName(), Input: args}}
}

// names reports whether a text names a tool, whole.
func names(text, tool string) bool {
	const word = letters + digits + "_-"
	for at := 0; ; {
		i := strings.Index(text[at:], tool)
		if i < 0 {
			return false
		}
		from, to := at+i, at+i+len(tool)
		before := from > 0 && strings.IndexByte(word+".", text[from-1]) >= 0
		behind := to < len(text) && strings.IndexByte(word, text[to]) >= 0 ||
			to+1 < len(text) && text[to] == '.' && strings.IndexByte(word, text[to+1]) >= 0
		if !before && !behind {
			return true
		}
		at = from + 1
	}
}

// synthesised is the plan's answer: the model's text, or what stands for it.
func synthesised(d *Definition, s *AgentState, r Reply, took Spent, results map[string]string) Synthesised {
	e := Synthesised{Spent: took, Text: validText(strings.TrimSpace(r.Text))}
	if e.Text == "" {
		e.Static = planBuilder{d: d, s: s, results: results}.bullets()
	}
	e.Halt = haltedBeside(d, s, took, "", e.Text)
	return e
}

// haltedBeside asks the stop policies about a reply for the plan, as far as they are about runs and not about inferences; nil = none stops
// the run.
func haltedBeside(d *Definition, s *AgentState, took Spent, tool, text string) *Halt {
	switch p := d.Stop; {
	case p.Timeout > 0 && took.At > 0 && s.ranFor(took.At) >= p.Timeout:
		return &Halt{Code: StopTimeout}
	case p.Tokens > 0 && s.Usage.Add(took.Usage).Total() >= p.Tokens:
		return &Halt{Code: StopTokens}
	case tool != "" && slices.Contains(p.OnTool, tool):
		return &Halt{Code: StopOnTool, Detail: tool}
	case p.Contains != "" && strings.Contains(text, p.Contains):
		return &Halt{Code: StopContains, Detail: p.Contains}
	default:
		return nil
	}
}
