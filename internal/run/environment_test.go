package run_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// A world is a small agent and everything that models, tools, people and broken machines may say to it: what the shell
// may commit next, given any state. The walk takes every step of it, the properties take random ones.
type world struct {
	name      string
	def       agent.Definition
	replies   [][]agent.ReplyCall // what the model may ask for; each goes through PlanReply
	texts     []string            // what it may say without calls; nil = "Done."
	cut       []string            // what it may say that is cut short
	maxCalls  int                 // in the whole run
	writers   []string            // invocations that may claim
	inputs    int                 // user messages after the first
	handovers int64
	plugins   bool         // a plugin may give a call's result without running it
	hooks     bool         // plugins may decide whatever they can: patch, hide, say, ask, end
	small     bool         // people only approve or deny, tools only succeed and nothing is lost, so that more can go on at once
	thinks    bool         // the model may say what it thinks, beside what it says or with nothing beside it
	tightens  bool         // policy may be tightened between a decision and the claim (A17)
	tickets   []run.Ticket // what a tool may ask for in place of a result, as long as its call was asked about less than three times
	early     bool         // people may decide before a call is suspended
	plans     []string     // what a planner may say
	twofold   bool         // the user asks for several things
}

// step is one journal entry that the environment may write next.
type step struct {
	name   string
	forced bool // somebody ends the run from outside
	writer string
	events []run.Event
}

var worldEpoch = time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)

// worldTime is when entry seq is written, so that a state alone says what may follow it.
func worldTime(seq int64) time.Time { return worldEpoch.Add(time.Duration(seq) * time.Second) }

const worldExpiry = 24 * time.Hour

func worldDefinition(change ...func(*agent.Definition)) agent.Definition {
	d := agent.Definition{
		Name: "small", Preset: agent.PresetCountersign, System: "Be small.", Batch: agent.BatchAll, Executor: agent.ExecutorParallelBatch,
		Wait: run.WaitAnyExternal, Resume: run.ResumeEach, TextBesideCalls: agent.TextBesideKeep,
		Limits: agent.Limits{Interactions: 2, OnLimit: agent.OnLimitError},
		Tools: []agent.ToolSpec{
			{Name: "look", Kind: agent.KindInternal, Effect: run.EffectRead},
			{Name: "peek", Kind: agent.KindInternal, Effect: run.EffectRead},
			{Name: "pay.now", Kind: agent.KindInternal, Effect: run.EffectNonIdempotent},
			{Name: "wire", Kind: agent.KindInternal, Effect: run.EffectNonIdempotent},
			{Name: "drop", Kind: agent.KindInternal, Effect: run.EffectNonIdempotent},
		},
		Permission: agent.Permission{
			Mode: agent.ModeSuspendAndReplay, Default: agent.DefaultAllow, Approvers: []string{"user:ana"}, Expires: worldExpiry,
			Rules: []agent.Rule{{Tool: "wire", Verdict: agent.VerdictAsk}, {Tool: "peek", Verdict: agent.VerdictAsk}, {Tool: "drop", Verdict: agent.VerdictDeny}},
		},
	}
	for _, f := range change {
		f(&d)
	}
	return d
}

func ask(names ...string) []agent.ReplyCall {
	var calls []agent.ReplyCall
	for i, n := range names {
		name, args, _ := strings.Cut(n, " ")
		if args == "" {
			args = `{"n":1.0,"to":"<A & B>"}`
		}
		calls = append(calls, agent.ReplyCall{ID: string(rune('a' + i)), Name: name, Input: json.RawMessage(args)})
	}
	return calls
}

// worldValid stands for the schema check: arguments that say bad are bad.
func worldValid(_ agent.ToolSpec, args json.RawMessage) error {
	if strings.Contains(string(args), "bad") {
		return errors.New("/bad: not allowed")
	}
	return nil
}

func (w *world) start() run.RunStarted {
	e := run.RunStarted{
		Tenant: "default", Run: "r1", Agent: w.def.Name, Definition: "d1", Owner: "r1-0", BodyDigest: "b1",
		Trace:    &run.Trace{Traceparent: "t"},
		Messages: []run.UserBlock{{Block: run.Text{Text: "Do it."}}}, MaxInteractions: w.def.Limits.Interactions,
	}
	if w.twofold {
		e.Messages = []run.UserBlock{{Block: run.Text{Text: "Look, and then pay."}}}
	}
	e.Wait, e.Resume = w.def.OpenRounds()
	if w.def.Builder != "" {
		e.Input, e.Messages = json.RawMessage(`{"do":"it"}`), nil
	}
	return e
}

// steps lists every entry that may follow s.
func (w *world) steps(s *run.AgentState) []step {
	switch s.Status {
	case "":
		return []step{{name: "start", writer: "api", events: []run.Event{w.start()}}}
	case run.RunWaiting:
		return append(w.outside(s), step{name: "wake", writer: "w1", events: []run.Event{run.Resumed{}}})
	case run.RunRunning:
		if facts := policy.ApplyEarlyDecisions(&w.def, s, nil, worldValid, worldTime(s.Entries)); len(facts) > 0 { // nothing else before that
			return append(w.outside(s), step{name: "early", writer: "w1", events: facts})
		}
		if due := policy.Consequences(&w.def, s); due != nil { // they are part of the entry that makes them due
			return append(w.outside(s), step{name: "settle", writer: "w1", events: due})
		}
		return append(append(append(w.outside(s), w.drained(s)...), w.expired(s)...), w.owed(s)...)
	default:
		return nil
	}
}

// outside is what may happen to a run whatever it does.
func (w *world) outside(s *run.AgentState) []step {
	steps := []step{
		{name: "cancel", forced: true, writer: "api", events: []run.Event{policy.InterruptRun(s, "user:ana", "stop")}},
		{name: "give up", forced: true, writer: "reaper", events: []run.Event{policy.Fail(run.CodeInternal, "given up")}},
	}
	if s.Generation < w.handovers {
		steps = append(steps, step{name: "take over", writer: "sweeper", events: []run.Event{run.HandedOver{Owner: "r1-1"}, run.Resumed{}}})
	}
	return steps
}

// drained is what people and lost claimants may have put into the next inbox slot.
func (w *world) drained(s *run.AgentState) []step {
	var steps []step
	add := func(name string, e run.Event) {
		steps = append(steps, step{name: name, writer: "w1", events: []run.Event{w.slotted(s, e)}})
	}
	for _, r := range s.Permissions.Asked {
		for _, d := range w.verdicts(r) {
			add("decide tools "+string(d.Action), d)
		}
	}
	for _, c := range s.Calls() {
		for _, d := range w.decisions(s, c) {
			add("decide "+string(d.Action), d)
		}
		if c.Executions > 0 && !w.small {
			for _, a := range answers(c) {
				add("answer", a)
			}
			add("late result", run.LateResult{Writer: "w1", CallFinished: run.CallFinished{Call: c.ID, Content: "late"}})
			add("late error", run.LateResult{Writer: "w1", CallFinished: run.CallFinished{Call: c.ID, Content: "late", IsError: true}})
			for i := range w.tickets[:min(1, len(w.tickets))] {
				if c.Asks < 2 {
					add("late ticket", run.LateSuspended{Writer: "w1", CallSuspended: run.CallSuspended{Call: c.ID, Ticket: &w.tickets[i], Digest: "d", Expires: worldEpoch.Add(policy.InputExpiry)}})
				}
			}
		}
	}
	steps = append(steps, w.children(s)...)
	for _, k := range worldKept() {
		if w.early && (len(s.Kept) == 0 || s.Kept[0].Target == k.Target) {
			add("decide early", k)
		}
	}
	if w.inputsLeft(s) {
		add("input", run.InputReceived{ID: "m1", By: "user:ana", Blocks: []run.UserBlock{{Block: run.Media{Name: "p", MediaType: "image/png", Blob: "b"}}, {Block: run.Text{Text: "And this."}}}})
	}
	return steps
}

func (w *world) slotted(s *run.AgentState, e run.Event) run.Event {
	slotted, err := run.WithSlot(e, s.Drained+1)
	if err != nil {
		panic(err)
	}
	return slotted
}

func (w *world) inputsLeft(s *run.AgentState) bool {
	said := 0
	for _, m := range s.Messages.All() {
		if t, ok := m.Block.(run.Text); ok && m.Role == run.RoleUser && t.Text == "And this." {
			said++
		}
	}
	return said+len(s.Queued) < w.inputs
}

// once reports whether an approval lets a tool run once.
func (w *world) once() bool {
	p := w.def.Permission
	return p.Grants == agent.GrantsOnce || p.Scope != agent.ScopeTool && p.Grants != agent.GrantsStanding
}

// verdicts on a request: each tool by itself, all at once, and that it failed.
func (w *world) verdicts(r run.PermissionRequest) []run.Decided {
	var all []string
	var out []run.Decided
	d, once := run.Decided{Approval: r.Approval, By: "user:ana"}, w.once()
	for _, t := range r.Tools {
		all = append(all, t.Tool)
		for _, a := range []run.DecisionAction{run.ActionApprove, run.ActionDeny, run.ActionCancel} {
			d.Action, d.Tools, d.Once = a, []string{t.Tool}, a == run.ActionApprove && once || a == run.ActionDeny && w.def.Permission.Scope != agent.ScopeTool
			out = append(out, d)
		}
	}
	d.Action, d.Tools, d.Once = run.ActionApprove, all, once
	failed := d
	failed.Action = run.ActionFail
	return append(out, d, failed)
}

// decisions on the newest request of a call, which may have been overtaken. An edit carries the edited action's digest;
// a decision under another policy carries a digest that will not fit.
func (w *world) decisions(s *run.AgentState, c run.Call) []run.Decided {
	if c.Asks == 0 {
		return nil
	}
	d := run.Decided{Call: c.ID, Approval: run.ApprovalID(s.Run, c.ID, c.Asks), Action: run.ActionApprove, By: "user:ana", Digest: w.digest(s, c)}
	if c.Wait != nil && c.Wait.For == run.ForInput {
		return w.inputDecisions(s, c, d)
	}
	if c.Wait == nil || c.Wait.For != run.ForApproval {
		return []run.Decided{d}
	}
	edit, voided, deny, cancel := d, d, d, d
	edit.Args = json.RawMessage(`{"n":2.50,"to":" &"}`)
	edited := c
	edited.Input = edit.Args
	edit.Digest = w.digest(s, edited)
	voided.Digest = "of something else"
	deny.Action, deny.Text = run.ActionDeny, agent.TextDenied("user:ana", "no")
	if w.small {
		return []run.Decided{d, deny}
	}
	cancel.Action, cancel.Text = run.ActionCancel, agent.TextCallCancelled("user:ana", "")
	if w.def.Permission.Scope == agent.ScopeTool {
		t, _ := w.def.Tool(c.Tool)
		d.Permit = policy.ToolDigest(&w.def, s, t, c.Input, policy.Decide(w.def.Permission, t, c.Input))
		deny.Permit, d.Once = d.Permit, w.once()
	}
	if w.def.Permission.GrantsExactArguments() {
		t, _ := w.def.Tool(c.Tool)
		permit := func(args json.RawMessage) string {
			return policy.ToolDigest(&w.def, s, t, args, policy.Decide(w.def.Permission, t, args))
		}
		d.Permit, edit.Permit, d.Standing, edit.Standing = permit(c.Input), permit(edit.Args), true, true
	}
	return []run.Decided{d, edit, voided, deny, cancel}
}

// inputDecisions are what people may say to a tool's question, in the words of the desk.
func (w *world) inputDecisions(s *run.AgentState, c run.Call, d run.Decided) []run.Decided {
	deny, cancel := d, d
	deny.Action, deny.Text = run.ActionDeny, agent.TextDenied("user:ana", "no")
	cancel.Action, cancel.Text = run.ActionCancel, agent.TextCallCancelled("user:ana", "")
	said := []run.Decided{deny, cancel}
	for _, answer := range []string{"null", `{"n":7}`, `{"bad":1}`} {
		if yes, err := policy.ResumeInput(&w.def, s, c, json.RawMessage(answer), "user:ana", may(policy.Principal{ID: "user:ana"}), worldValid); err == nil {
			said = append(said, yes)
		}
	}
	return said
}

// may is how p is let change a call.
func may(p policy.Principal) func(policy.Decision) bool {
	return func(d policy.Decision) bool { return d.MayAfter(p, 0) }
}

// worldKept are decisions on the first call before it is suspended: an approver's, somebody else's, and a denial.
func worldKept() []run.DecisionKept {
	return []run.DecisionKept{
		{Target: "a", Action: run.ActionApprove, By: "user:ana"}, {Target: "a", Action: run.ActionApprove, By: "user:eve"},
		{Target: "a", Action: run.ActionDeny, By: "user:ana"}, {Target: "s1", Action: run.ActionApprove, Result: json.RawMessage(`"x"`), By: "user:ana"},
	}
}

func (w *world) digest(s *run.AgentState, c run.Call) string {
	t, _ := w.def.Tool(c.Tool)
	return policy.ActionDigest(&w.def, s, c, t, policy.Decide(w.def.Permission, t, c.Input))
}

// answers about a call whose outcome is unknown, or was. Running it again is ordered once for each call.
func answers(c run.Call) []run.Answered {
	result := run.Answered{Call: c.ID, Content: "it happened", By: "user:ana"}
	if c.AwaitsAnswer() {
		return []run.Answered{result, {Call: c.ID, Content: "it did not", IsError: true, By: "svc"}, {Call: c.ID, Rerun: true, By: "user:ana"}}
	}
	if c.Wait == nil || c.Wait.For != run.ForOutcome {
		return []run.Answered{result}
	}
	failed := run.Answered{Call: c.ID, Content: "it did not", IsError: true, By: "user:ana"}
	if c.Asks > 2 {
		return []run.Answered{result, failed}
	}
	return []run.Answered{result, failed, {Call: c.ID, Rerun: true, By: "user:ana"}, {Call: c.ID, Rerun: true, NotRun: true, By: "user:ana"}}
}

// expired closes waits that nobody answered in time.
func (w *world) expired(s *run.AgentState) []step {
	var steps []step
	for _, r := range s.Permissions.Asked {
		steps = append(steps, step{name: "expire request", writer: "w1", events: policy.ExpireRequests(s, r.Expires)})
	}
	for _, c := range s.Waits() {
		e := run.CallCancelled{Call: c.ID, Reason: run.WhyExpired, Content: agent.TextExpired}
		switch c.Wait.For {
		case run.ForOutcome:
			e.Reason, e.Content = run.WhyOutcomeUnknown, agent.TextOutcomeExpired
		case run.ForAnswer:
			e.Content = agent.TextAnswerExpired
		}
		steps = append(steps, step{name: "expire", writer: "w1", events: []run.Event{e}})
	}
	return steps
}

// owed is what the run itself does next.
func (w *world) owed(s *run.AgentState) []step {
	switch a := policy.Next(&w.def, s); a.Kind {
	case policy.ActList:
		return w.listings()
	case policy.ActInfer:
		if a.Lifecycle.ForPlan() {
			return w.forPlan(s, a)
		}
		return w.inferred(s, a)
	case policy.ActWait:
		return []step{{name: "park", writer: "w1", events: []run.Event{run.Parked{Expires: a.Expires}}}}
	case policy.ActEnd:
		return []step{{name: "end", writer: "w1", events: []run.Event{a.End}}}
	case policy.ActContinue:
		return []step{{name: "continue", writer: "w1", events: []run.Event{run.HandedOver{Owner: "r1-next"}}}}
	case policy.ActTools:
		gate := func(s *run.AgentState, c run.Call) policy.Gate {
			return policy.GateHooked(&w.def, s, c, agent.PluginGate{}, worldValid, worldTime(s.Entries))
		}
		if blocked := policy.BlockRound(&w.def, s, gate, worldTime(s.Entries), func(string) bool { return false }); blocked != nil {
			return []step{{name: "block", writer: "w1", events: blocked}}
		}
		var steps []step
		for _, id := range a.Calls {
			c, _ := s.Call(id)
			steps = append(steps, w.carriedOut(s, c)...)
		}
		return steps
	default:
		return nil
	}
}

// inferred is what may come of an inference, behind what a context builder gave for it.
func (w *world) inferred(s *run.AgentState, a policy.Action) []step {
	if left, ok := prompt.LeavesPlan(s, a); ok { // in the entry of what comes of the inference
		d := run.NewDraft(*s, "w1", worldTime(s.Entries))
		if err := d.Add(left); err != nil {
			panic(err)
		}
		steps := w.inferred(&d.State, a)
		for i := range steps {
			steps[i].events = append([]run.Event{left}, steps[i].events...)
		}
		return steps
	}
	if w.def.Builder == "" || s.Built || s.Inferences > 0 {
		return w.answeredBy(s)
	}
	var steps []step
	for _, given := range [][]run.BuiltMessage{nil, {{Content: run.UserBlock{Block: run.Media{Name: "m", MediaType: "image/png", Blob: strings.Repeat("ab", 32)}}, Seen: 1}, {Role: run.RoleAssistant, Content: run.UserBlock{Block: run.Text{Text: "Yes?"}}}}} {
		built, err := prompt.Built(s, given)
		if err != nil {
			panic(err)
		}
		for _, st := range w.answeredBy(s) {
			st.events = append([]run.Event{built}, st.events...)
			steps = append(steps, st)
		}
	}
	return steps
}

// answeredBy is what may come of a request, with what has to leave for it.
func (w *world) answeredBy(s *run.AgentState) []step {
	facts, _ := prompt.MakeRoom(&w.def, s, policy.Next(&w.def, s), prompt.Measured{})
	if len(facts) == 0 {
		return w.repliesTo(s)
	}
	after := *s
	for _, e := range facts {
		var err error
		if after, err = run.Apply(after, e); err != nil {
			panic(err)
		}
	}
	var steps []step
	switch next := policy.Next(&w.def, &after); next.Kind {
	case policy.ActInfer:
		for _, st := range w.repliesTo(&after) {
			if st.name != "model fails" { // then nothing has left
				st.events = append(slices.Clone(facts), st.events...)
			}
			st.name += " behind an eviction"
			steps = append(steps, st)
		}
	case policy.ActWait:
		steps = append(steps, step{name: "full and park", writer: "w1", events: append(facts, run.Parked{Expires: s.EarliestExpiry()})})
	default:
		steps = append(steps, step{name: "full and end", writer: "w1", events: append(facts, next.End)})
	}
	return steps
}

func (w *world) repliesTo(s *run.AgentState) []step {
	reply := func(r agent.Reply) run.Replied {
		r.Model, r.Usage = "m", run.Usage{Input: 5, Output: 1}
		e := policy.Judge(&w.def, s, policy.PlanReply(&w.def, s, r, 1, ""), worldFits)
		e.Cost, e.At = 12, 5
		return e
	}
	failed, _ := policy.ModelFailed(&w.def, s, &agent.ModelError{Class: agent.ModelServer, Lasting: true}, 2, worldEpoch)
	steps := []step{
		{name: "nothing", writer: "w1", events: []run.Event{reply(agent.Reply{})}},
		{name: "model fails", forced: w.def.Model.StaticText == "", writer: "w1", events: []run.Event{failed}},
	}
	for _, text := range w.cut {
		steps = append(steps, step{name: "piece", writer: "w1", events: []run.Event{reply(agent.Reply{Text: text, Truncated: true})}})
	}
	for _, text := range w.said() {
		e := reply(agent.Reply{Text: text})
		if len(s.Calls())+len(e.Calls) > w.maxCalls {
			continue
		}
		steps = append(steps, step{name: "text", writer: "w1", events: []run.Event{e}})
		switch {
		case e.Correction != nil || e.Halt != nil || len(e.Calls) > 0:
		case len(s.Waits()) > 0:
			steps = append(steps, step{name: "text and park", writer: "w1", events: []run.Event{e, run.Parked{Expires: s.EarliestExpiry()}}})
		default:
			if after, err := run.Apply(*s, e); err == nil {
				if next := policy.Next(&w.def, &after); next.Kind == policy.ActEnd {
					steps = append(steps, step{name: "text and end", writer: "w1", events: []run.Event{e, next.End}})
				}
			}
		}
	}
	if w.thinks {
		steps = append(steps, step{name: "thoughts alone", writer: "w1", events: []run.Event{reply(agent.Reply{Reasoning: thoughts(1)})}})
	}
	steps = append(steps, w.ended(s, reply)...)
	for _, calls := range w.replies {
		if s.Settled.Len()+len(s.Live)+len(calls) <= w.maxCalls {
			steps = append(steps, step{name: "calls", writer: "w1", events: []run.Event{reply(agent.Reply{Text: "Wait.", Calls: calls, Reasoning: w.thoughts(3)})}})
		}
	}
	return steps
}

// hookPatch is a patch that changes nothing the second time.
var hookPatch = []run.Patch{{Path: "/seen", Value: json.RawMessage("1")}}

// ended is what plugins may make of an inference: nothing at all, or the last one.
func (w *world) ended(s *run.AgentState, reply func(agent.Reply) run.Replied) []step {
	if !w.hooks {
		return nil
	}
	calls := reply(agent.Reply{Text: "Wait.", Calls: w.replies[0]})
	n := s.Hooks + 1
	hide := run.Hooked{N: n + 1, Phase: run.PhaseBeforeInference, Hidden: []string{"look"}, Patches: hookPatch}
	after := func(n int64, r run.Reason) run.Hooked {
		return run.Hooked{N: n, Phase: run.PhaseAfterInference, End: r}
	}
	steps := []step{
		{name: "plugins end", writer: "w1", events: []run.Event{run.Hooked{N: n, Phase: run.PhaseBeforeInference, End: run.ReasonPluginRequested}}},
		{name: "plugins stop", writer: "w1", events: []run.Event{run.Hooked{N: n, Phase: run.PhaseBeforeInference, End: run.Stopped("enough")}}},
	}
	if len(s.Calls())+len(calls.Calls) > w.maxCalls {
		return steps
	}
	return append(steps, []step{
		{name: "calls and plugins end", writer: "w1", events: []run.Event{calls, after(n, run.ReasonPluginRequested)}},
		{name: "calls and plugins stop", writer: "w1", events: []run.Event{run.Hooked{N: n, Phase: run.PhaseRunStart}, hide, calls, after(n+2, run.Stopped("enough"))}},
	}...)
}

func (w *world) said() []string {
	if w.texts == nil {
		return []string{"Done."}
	}
	return w.texts
}

// worldFits stands for the schema check of outputs.
func worldFits(value json.RawMessage) error { return worldValid(agent.ToolSpec{}, value) }

func (w *world) thoughts(n int) []run.RepliedReasoning {
	if !w.thinks {
		return nil
	}
	return thoughts(n)
}

// thoughts are the first n of: before everything, within the text, behind the first call.
func thoughts(n int) []run.RepliedReasoning {
	return []run.RepliedReasoning{
		{Reasoning: run.Reasoning{Text: "Hm.", Signature: "s", Provider: "bedrock", Model: "m"}},
		{Reasoning: run.Reasoning{Redacted: []byte{0, 255}, Provider: "bedrock", Model: "m"}, AfterText: 2},
		{Reasoning: run.Reasoning{Text: "So.", Provider: "openai", Model: "m"}, AfterCalls: 1},
	}[:n]
}

// carriedOut is what may become of a call that Next wants carried out.
func (w *world) carriedOut(s *run.AgentState, c run.Call) []step {
	if c.Status == run.StatusRunning {
		return w.executed(s, c)
	}
	if skip, ok := policy.SkipCall(&w.def, s, c); ok {
		return []step{{name: "skip", writer: "w1", events: []run.Event{skip}}}
	}
	steps := w.aside(s, c)
	g := policy.GateHooked(&w.def, s, c, agent.PluginGate{}, worldValid, worldTime(s.Entries))
	switch {
	case g.Refuse != nil:
		return append(steps, step{name: "refuse", writer: "w1", events: []run.Event{*g.Refuse}})
	case g.Suspend != nil:
		return append(steps, step{name: "suspend", writer: "w1", events: []run.Event{*g.Suspend}})
	case g.Give != nil:
		return append(steps, step{name: "give", writer: "w1", events: []run.Event{run.CallFinished{Call: c.ID, Content: g.Give.Content}}})
	case g.Claim != nil:
		for _, by := range w.writers {
			steps = append(steps, step{name: "claim by its tool", writer: by, events: []run.Event{*g.Claim}})
		}
		return steps
	case w.changes(c) != nil && !c.NeedsClaim():
		return append(append(steps, w.changes(c)...), w.finishes(s, c, "w1", true)...)
	case c.NeedsClaim() || w.def.Permission.Scope == agent.ScopeTool && c.Status == run.StatusResuming:
		return append(steps, w.claims(s, c)...)
	default:
		return append(steps, append(w.asksFor(s, c, "w1", true), w.finishes(s, c, "w1", true)...)...)
	}
}

// asksFor is what the tool may ask people for.
func (w *world) asksFor(s *run.AgentState, c run.Call, writer string, ran bool) []step {
	var steps []step
	for _, t := range w.tickets {
		if c.Asks < 3 {
			steps = append(steps, step{name: "asks for input", writer: writer, events: []run.Event{policy.AskInput(&w.def, s, c, t, ran, worldTime(s.Entries))}})
		}
	}
	return steps
}

// aside is what may settle or stop a call before the gate has its word.
func (w *world) aside(s *run.AgentState, c run.Call) []step {
	var steps []step
	if w.plugins && c.Status == run.StatusNew {
		steps = append(steps, step{name: "plugin", writer: "w1", events: []run.Event{run.CallFinished{Call: c.ID, Content: "given"}}})
	}
	if w.hooks && !c.Gated && (c.Status == run.StatusNew || c.Status == run.StatusResuming) {
		steps = append(steps, step{name: "plugins pass", writer: "w1", events: []run.Event{run.Hooked{N: s.Hooks + 1, Phase: run.PhaseBeforeTool, Call: c.ID, Patches: hookPatch}}})
		if c.Asks < 2 {
			ask := agent.PluginGate{Suspend: &run.Ticket{Message: "May it?"}}
			if g := policy.GateHooked(&w.def, s, c, ask, worldValid, worldTime(s.Entries)); g.Suspend != nil {
				steps = append(steps, step{name: "plugins ask", writer: "w1", events: []run.Event{*g.Suspend}})
			}
		}
	}
	if w.tightens && c.Status == run.StatusResuming && c.Asks < 2 {
		t, _ := w.def.Tool(c.Tool)
		again := policy.AskFor(&w.def, s, c, policy.Decide(w.def.Permission, t, c.Input), worldTime(s.Entries))
		steps = append(steps, step{name: "ask again", writer: "w1", events: []run.Event{*again}})
	}
	return steps
}

// executed is what may become of a call under a claim: its claimant's word, or that it died.
func (w *world) executed(s *run.AgentState, c run.Call) []step {
	if c.Service {
		return w.asked(s, c)
	}
	lost := run.CallUnknown{Call: c.ID, Approval: run.ApprovalID(s.Run, c.ID, c.Asks+1), Expires: worldTime(s.Entries).Add(7 * worldExpiry), Claim: c.Claim}
	if w.small {
		return append(w.changes(c), w.finishes(s, c, c.Claim, false)...)
	}
	steps := []step{
		{name: "claimant died", writer: "w9", events: []run.Event{lost}},
		{name: "claimant ran out of time", writer: c.Claim, events: []run.Event{lost}},
	}
	for _, asked := range w.asksFor(s, c, "w9", false) { // its claimant died behind the question
		steps = append(steps, step{name: "had asked", writer: "w9", events: append([]run.Event{run.Answered{Call: c.ID, Rerun: true, By: "reconcile"}}, asked.events...)})
	}
	return append(append(append(steps, w.asksFor(s, c, c.Claim, false)...), w.changes(c)...), w.finishes(s, c, c.Claim, false)...)
}

// asked is what may become of a service's call whose event may be out: it is, or the claimant died and it goes out
// again, or it never will.
func (w *world) asked(s *run.AgentState, c run.Call) []step {
	t, _ := w.def.Tool(c.Tool)
	return []step{
		{name: "asked", writer: c.Claim, events: []run.Event{policy.AwaitAnswer(t, c, worldTime(s.Entries))}},
		{name: "claimant died", writer: "w9", events: []run.Event{run.Answered{Call: c.ID, Rerun: true, NotRun: true, By: "reconcile"}}},
		{name: "cannot go out", writer: c.Claim, events: []run.Event{run.CallFinished{Call: c.ID, IsError: true, Reason: run.WhyToolError, Content: "no"}}},
	}
}

func (w *world) finishes(s *run.AgentState, c run.Call, writer string, ran bool) []step {
	said := run.Hooked{N: s.Hooks + 1, Phase: run.PhaseAfterTool, Call: c.ID, Texts: []run.PluginText{{Text: "Be brief.", Reminder: true}, {Text: "And then?"}}}
	var steps []step
	if w.hooks {
		steps = []step{{name: "result and plugins speak", writer: writer, events: []run.Event{run.CallFinished{Call: c.ID, Ran: ran, Content: "ok"}, said}}, {
			name: "result and plugins fail", writer: writer,
			events: []run.Event{run.CallFinished{Call: c.ID, Ran: ran, Content: "ok"}, run.Hooked{N: s.Hooks + 1, Phase: run.PhaseAfterTool, Call: c.ID, Failed: &run.RunError{Code: run.CodeInternal, Message: "x"}}},
		}}
	}
	steps = append(steps, []step{
		{name: "result", writer: writer, events: []run.Event{run.CallFinished{Call: c.ID, Ran: ran, Content: "ok", Media: []run.Media{{Name: "m", MediaType: "image/png", Blob: "b"}}}}},
		{name: "error", writer: writer, events: []run.Event{run.CallFinished{Call: c.ID, Ran: ran, IsError: true, Reason: run.WhyToolError, Content: "no"}}},
	}...)
	if w.small {
		return steps[:1]
	}
	return steps
}

// worldTickets has one of each mode.
func worldTickets() []run.Ticket {
	return []run.Ticket{{ID: "s1"}, {Mode: run.TicketResult, ResponseSchema: json.RawMessage(`{}`)}, {Mode: run.TicketPass, Pending: run.Pending{ID: "p1"}}}
}

// smallWorlds are the runs that the walk goes through in full.
func smallWorlds() []world {
	one, two := []string{"w1"}, []string{"w1", "w2"}
	sequential := func(d *agent.Definition) { d.Executor = agent.ExecutorSequential }
	answered := func(d *agent.Definition) { d.Resume = run.ResumeAllAnswered }
	stops := func(d *agent.Definition) {
		d.Limits = agent.Limits{Interactions: 1, Grace: 1, OnLimit: agent.OnLimitStop}
	}
	judged := func(mode agent.CorrectionMode, l agent.Limits) func(*agent.Definition) {
		return func(d *agent.Definition) {
			d.Output, d.Corrections, d.Limits = agent.Output{Format: agent.OutputJSON}, mode, l
		}
	}
	services := func(d *agent.Definition) {
		d.Tools = append(d.Tools, agent.ToolSpec{Name: "post", Kind: agent.KindService, Effect: run.EffectRead}, agent.ToolSpec{Name: "offer", Kind: agent.KindService, Effect: run.EffectNonIdempotent})
		d.Permission.Rules = append(d.Permission.Rules, agent.Rule{Tool: "offer", Verdict: agent.VerdictAsk})
	}
	sums := func(d *agent.Definition) { d.Limits.OnLimit = agent.OnLimitSummarise }
	blocks := func(s agent.Scope, g agent.Grants) func(*agent.Definition) {
		return func(d *agent.Definition) {
			d.Permission.Mode, d.Permission.Scope, d.Permission.Grants = agent.ModeBlockAndRetry, s, g
			d.Limits.Interactions = 3
		}
	}
	ofTool := func(g agent.Grants) func(*agent.Definition) {
		return func(d *agent.Definition) { d.Permission.Scope, d.Permission.Grants = agent.ScopeTool, g }
	}
	circular := func(d *agent.Definition) {
		d.Guards, d.Limits = agent.Guards{DuplicateCalls: true, FailedRounds: 2, ToolFailures: 2}, agent.Limits{Interactions: 4, OnLimit: agent.OnLimitError}
	}
	crowded := func(onLimit agent.OnLimit, wait run.WaitMode) func(*agent.Definition) {
		zero := 0
		return func(d *agent.Definition) {
			d.Context = agent.Context{Window: 100, Reserve: agent.Reserve{System: &zero, Tools: &zero}, EvictBelow: 60, RoundMinimum: 40, Summary: 20}
			d.Limits, d.Wait = agent.Limits{Interactions: 3, OnLimit: onLimit}, wait
		}
	}
	serves := func(d *agent.Definition) {
		d.MCP = []agent.MCPServer{{Name: "files", URL: "https://x"}}
		d.Tools = append(d.Tools, worldServerTool("read", run.EffectRead), worldServerTool("pay", run.EffectNonIdempotent))
	}
	texts := []string{`{"ok":1}`, `{"bad":1}`, `ok`}
	required := func(d *agent.Definition) {
		d.Text, d.Corrections, d.XML, d.Limits = agent.TextRequireTool, agent.CorrectionsEphemeral, agent.XML{Breaker: 2}, agent.Limits{Interactions: 3, OnLimit: agent.OnLimitStop}
	}
	xml := func(d *agent.Definition) { d.Model.Dialect, d.Corrections = agent.DialectXML, agent.CorrectionsPersist }
	completion, question := `task_completion {"result":"Done."}`, `ask_question {"question":"","bad":1}`
	tagged := func(call string) string { return "<thinking>Hm.</thinking>Wait. <tool>" + call + "</tool>" }
	return append(append(append(policyWorlds(), plannedWorlds()...), delegatingWorlds()...), []world{
		{name: "one that a tool ends", def: worldDefinition(required), replies: [][]agent.ReplyCall{ask("look"), ask("wire", completion), ask(question)}, maxCalls: 2, writers: one, inputs: 1},
		{name: "one that a tool ends while others wait", def: worldDefinition(required, func(d *agent.Definition) { d.Wait = run.WaitAllSuspended }), replies: [][]agent.ReplyCall{ask("wire"), ask(completion), ask("wire", completion)}, maxCalls: 2, writers: one, inputs: 1, small: true},
		{name: "calls as text", def: worldDefinition(required, xml), maxCalls: 2, writers: one, inputs: 1, small: true, texts: []string{
			"Done.", tagged("{"), tagged(`{"server_name":"local","tool_name":"wire"}`), tagged(`{"server_name":"local","tool_name":"task_completion","arguments":{"result":"Done."}}`),
		}},
		{name: "calls as text that are not required", def: worldDefinition(xml), maxCalls: 1, writers: one, texts: []string{"Done.", tagged(`{"server_name":"local","tool_name":"look"}`)}},
		{name: "an output that is judged", def: worldDefinition(judged(agent.CorrectionsPersist, agent.Limits{Interactions: 2, Grace: 1, OnLimit: agent.OnLimitStop})), replies: [][]agent.ReplyCall{ask("look"), ask("wire")}, texts: texts, maxCalls: 1, writers: one, inputs: 1},
		{name: "one that is judged in passing and summed up", def: worldDefinition(judged(agent.CorrectionsEphemeral, agent.Limits{Interactions: 1, Grace: 1, OnLimit: agent.OnLimitSummarise})), replies: [][]agent.ReplyCall{ask("look"), ask("wire")}, texts: texts, maxCalls: 1, writers: one, inputs: 1, handovers: 1},
		{name: "a small window", def: worldDefinition(crowded(agent.OnLimitSummarise, run.WaitAnyExternal)), replies: [][]agent.ReplyCall{ask("look"), ask("look", "look"), ask("wire")}, maxCalls: 3, writers: one},
		{name: "one over open rounds", def: worldDefinition(crowded(agent.OnLimitStop, run.WaitAllSuspended)), replies: [][]agent.ReplyCall{ask("look"), ask("wire", "look")}, maxCalls: 3, writers: one},
		{name: "one that ends in error", def: worldDefinition(crowded(agent.OnLimitError, run.WaitAnyExternal)), replies: [][]agent.ReplyCall{ask("look"), ask("look", "look")}, maxCalls: 3, writers: one, handovers: 1},
		{name: "a summary", def: worldDefinition(sums), replies: [][]agent.ReplyCall{ask("look"), ask("wire")}, maxCalls: 2, writers: one, inputs: 1},
		{name: "one gated call", def: worldDefinition(), replies: [][]agent.ReplyCall{ask("wire"), ask("peek")}, maxCalls: 1, writers: two, inputs: 1, handovers: 1, plugins: true, tightens: true},
		{name: "one claimed call", def: worldDefinition(stops), replies: [][]agent.ReplyCall{ask("pay_now")}, maxCalls: 1, writers: two, inputs: 1, handovers: 1, plugins: true},
		{name: "one that asks for input", def: worldDefinition(), replies: [][]agent.ReplyCall{ask("pay_now")}, maxCalls: 1, writers: two, tickets: worldTickets()},
		{name: "one that asks in passing", def: worldDefinition(), replies: [][]agent.ReplyCall{ask("look")}, maxCalls: 1, writers: one, inputs: 1, tickets: worldTickets()},
		{name: "an approved one that asks", def: worldDefinition(), replies: [][]agent.ReplyCall{ask("wire")}, maxCalls: 1, writers: one, tickets: worldTickets()},
		{name: "one decided early", def: worldDefinition(), replies: [][]agent.ReplyCall{ask("wire")}, maxCalls: 1, writers: one, tickets: worldTickets()[:1], early: true},
		{name: "one that thinks", def: worldDefinition(), replies: [][]agent.ReplyCall{ask("wire", "look")}, maxCalls: 2, writers: one, inputs: 1, thinks: true},
		{name: "two calls in one reply", def: worldDefinition(), replies: [][]agent.ReplyCall{ask("look", "wire"), ask("pay_now", "look"), ask("wire", "ghost")}, maxCalls: 2, writers: one},
		{name: "three calls in one reply", def: worldDefinition(), replies: [][]agent.ReplyCall{ask("wire", "look", "pay_now")}, maxCalls: 3, writers: one},
		{name: "a service that is asked", def: worldDefinition(services), replies: [][]agent.ReplyCall{ask("post")}, maxCalls: 1, writers: two, inputs: 1, handovers: 1},
		{name: "a gated service beside another", def: worldDefinition(services, answered), replies: [][]agent.ReplyCall{ask("offer", "post")}, maxCalls: 2, writers: one},
		{name: "a service after the other", def: worldDefinition(services, sequential), replies: [][]agent.ReplyCall{ask("post", "offer")}, maxCalls: 2, writers: one},
		{name: "two that wait", def: worldDefinition(answered), replies: [][]agent.ReplyCall{ask("wire", "peek")}, maxCalls: 2, writers: one},
		{name: "a tool that is blocked", def: worldDefinition(blocks(agent.ScopeTool, agent.GrantsRun)), replies: [][]agent.ReplyCall{ask("wire")}, maxCalls: 2, writers: two, inputs: 1},
		{name: "two tools that are blocked", def: worldDefinition(blocks(agent.ScopeTool, agent.GrantsOnce)), replies: [][]agent.ReplyCall{ask("wire", "peek"), ask("wire", "wire")}, maxCalls: 4, writers: one},
		{name: "a blocked tool beside others", def: worldDefinition(blocks(agent.ScopeCall, agent.GrantsRun)), replies: [][]agent.ReplyCall{ask("look", "wire", "pay_now")}, maxCalls: 3, writers: one},
		{name: "a tool that is decided about", def: worldDefinition(ofTool(agent.GrantsRun)), replies: [][]agent.ReplyCall{ask("wire", "wire")}, maxCalls: 3, writers: one},
		{name: "a call that is granted for good", def: worldDefinition(func(d *agent.Definition) { d.Permission.Grants = agent.GrantsStanding }), replies: [][]agent.ReplyCall{ask("wire", "wire")}, maxCalls: 3, writers: one},
		{name: "a blocked call that is granted for good", def: worldDefinition(blocks(agent.ScopeCall, agent.GrantsStanding)), replies: [][]agent.ReplyCall{ask("wire")}, maxCalls: 2, writers: two},
		{name: "a tool that is granted once", def: worldDefinition(ofTool(agent.GrantsOnce)), replies: [][]agent.ReplyCall{ask("wire", "wire")}, maxCalls: 2, writers: one},
		{name: "two rounds", def: worldDefinition(), replies: [][]agent.ReplyCall{ask("look"), ask("pay_now"), ask("drop"), ask(`look {"bad":1}`), ask("ghost")}, maxCalls: 2, writers: one, inputs: 1},
		{name: "a context that is built", def: worldDefinition(func(d *agent.Definition) { d.Builder = "b" }), replies: [][]agent.ReplyCall{ask("look")}, maxCalls: 1, writers: one, inputs: 1},
		{name: "calls that are left out", def: worldDefinition(func(d *agent.Definition) { d.Batch, d.Dropped = agent.BatchFirst, agent.DroppedNotify }), replies: [][]agent.ReplyCall{ask("wire", "look"), ask("look", "wire")}, maxCalls: 2, writers: one, inputs: 1},
		{name: "one that is stopped", def: worldDefinition(func(d *agent.Definition) {
			d.Stop = agent.Stop{ConsecutiveErrors: 1, OnTool: []string{"wire"}, LoopWindow: 2}
		}), replies: [][]agent.ReplyCall{ask("look"), ask("wire", "look")}, maxCalls: 4, writers: one, inputs: 1},
		{name: "one that is cut short", def: worldDefinition(func(d *agent.Definition) {
			d.Model.Continuations, d.Model.StaticText, d.Limits = 2, "Closed.", agent.Limits{Interactions: 4, Tokens: 18, OnLimit: agent.OnLimitSummarise}
		}), replies: [][]agent.ReplyCall{ask("wire")}, cut: []string{"It ", ""}, maxCalls: 1, writers: one, inputs: 1},
		{name: "texts that are read", def: worldDefinition(func(d *agent.Definition) {
			d.Text, d.Analysis, d.Limits = agent.TextHeuristic, agent.Analysis{DeflectionRetries: 1, EmptyReplies: 2, TrustGate: 2}, agent.Limits{Interactions: 3, OnLimit: agent.OnLimitSummarise}
		}), replies: [][]agent.ReplyCall{ask("look")}, texts: []string{"All done.", "Two remaining.", "Which one?"}, maxCalls: 1, writers: one, inputs: 1},
		{name: "texts that are read in passing", def: worldDefinition(func(d *agent.Definition) {
			d.Text, d.Analysis, d.Corrections, d.Wait = agent.TextHeuristic, agent.Analysis{DeflectionRetries: 1, EmptyReplies: 2, TrustGate: 2}, agent.CorrectionsEphemeral, run.WaitAllSuspended
			d.Limits = agent.Limits{Interactions: 3, OnLimit: agent.OnLimitStop}
		}), replies: [][]agent.ReplyCall{ask("look", "wire")}, texts: []string{"Two remaining.", "I see the files."}, maxCalls: 2, writers: one, small: true},
		{name: "one that goes in circles", def: worldDefinition(circular), replies: [][]agent.ReplyCall{ask("look"), ask(`look {"bad":1}`)}, maxCalls: 4, writers: one, small: true},
		{name: "one that goes in circles with calls open", def: worldDefinition(circular, func(d *agent.Definition) { d.Wait = run.WaitAllSuspended }), replies: [][]agent.ReplyCall{ask("look"), ask("wire")}, maxCalls: 3, writers: one, small: true},
		{name: "a server's tools", def: worldDefinition(serves), replies: [][]agent.ReplyCall{ask("files_read", "files_pay"), ask("files_read")}, maxCalls: 3, writers: []string{"w1", "w2"}, inputs: 1},
		{name: "a server's tools and plugins", def: worldDefinition(serves, sequential), replies: [][]agent.ReplyCall{ask("files_pay", "look")}, maxCalls: 2, writers: one, hooks: true, small: true},
		{name: "plugins", def: worldDefinition(), replies: [][]agent.ReplyCall{ask("look", "drop")}, maxCalls: 2, writers: one, hooks: true},
		{name: "plugins and one gated call", def: worldDefinition(sequential), replies: [][]agent.ReplyCall{ask("wire")}, maxCalls: 1, writers: one, inputs: 1, hooks: true},
		{name: "plugins while a call is open", def: worldDefinition(func(d *agent.Definition) { d.Wait = run.WaitAllSuspended }), replies: [][]agent.ReplyCall{ask("wire")}, maxCalls: 1, writers: one, hooks: true},
		{name: "one after the other", def: worldDefinition(sequential), replies: [][]agent.ReplyCall{ask("wire", "pay_now"), ask("look", "wire")}, maxCalls: 2, writers: one, plugins: true},
	}...)
}

// policyWorlds are a small run under every wait, resume and executor there is. Under all_suspended it has calls open
// over rounds.
func policyWorlds() []world {
	var worlds []world
	for _, wait := range []run.WaitMode{run.WaitAnyExternal, run.WaitAllSuspended} {
		for _, resume := range []run.ResumeMode{run.ResumeEach, run.ResumeAllAnswered, run.ResumeBatchAll} {
			for _, executor := range []agent.Executor{agent.ExecutorSequential, agent.ExecutorParallelStreaming} {
				def := worldDefinition(func(d *agent.Definition) { d.Wait, d.Resume, d.Executor = wait, resume, executor })
				worlds = append(worlds, world{
					name: fmt.Sprint(wait, " ", resume, " ", executor), def: def, maxCalls: 4, writers: []string{"w1"}, small: true,
					replies: [][]agent.ReplyCall{ask("wire", "look"), ask("peek", "wire"), ask("look")},
				})
			}
		}
	}
	open := worldDefinition(func(d *agent.Definition) {
		d.Wait, d.Limits = run.WaitAllSuspended, agent.Limits{Interactions: 2, OnLimit: agent.OnLimitSummarise}
		d.Output, d.Corrections = agent.Output{Format: agent.OutputJSON}, agent.CorrectionsPersist
	})
	halts := worldDefinition(func(d *agent.Definition) {
		d.Wait, d.Stop = run.WaitAllSuspended, agent.Stop{OnTool: []string{"look"}, ConsecutiveErrors: 1}
	})
	worlds = append(worlds, world{
		name: "all_suspended, stopped", def: halts, maxCalls: 3, writers: []string{"w1"}, small: true, inputs: 1, replies: [][]agent.ReplyCall{ask("wire"), ask("wire", "look")},
	})
	return append(worlds, world{
		name: "all_suspended, judged and summed up", def: open, maxCalls: 2, writers: []string{"w1"}, small: true, handovers: 1, inputs: 1,
		replies: [][]agent.ReplyCall{ask("wire", "look")}, texts: []string{`{"ok":1}`, `ok`},
	})
}
