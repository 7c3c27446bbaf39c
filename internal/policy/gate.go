package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Gate is the verdict on one new or resuming call. Exactly one of Run, Give, Suspend, Ask, Block and Refuse is set.
type Gate struct {
	Run     bool
	Claim   *run.CallClaimed      // with Run: the claim it takes, as a permission of its tool covers it; nil = as the call itself says
	Give    *agent.ToolResultData // the result, given without running the tool
	Suspend *run.CallSuspended
	Ask     bool              // what became of it is asked again, as those who have ordered to run it again are not enough
	Block   *run.CallFinished // it fails, and its tool's permission is requested: see BlockRound
	Refuse  *run.CallFinished
	Rule    Decision // what policy said
}

// SchemaError is a Validator's error where the schema itself cannot be used.
type SchemaError struct {
	Tool string
	Err  error
}

func (e *SchemaError) Error() string {
	return "the schema of " + e.Tool + " is broken: " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *SchemaError) Unwrap() error { return e.Err }

// GateCall is GateHooked for a call of which plugins say nothing.
func GateCall(d *agent.Definition, s *run.AgentState, c run.Call, valid agent.Validator, now time.Time) Gate {
	return GateHooked(d, s, c, agent.PluginGate{}, valid, now)
}

// TextToolChanged is the result of a call of a tool that the run has lost.
func TextToolChanged(d *agent.Definition, c run.Call) string {
	return d.Word(agent.WordToolChanged, about(c))
}

// GateHooked decides about a call that has not run yet, in the fixed order of semantics 6.1: denied, by a rule or for its tool, or blocked by
// a plugin; given a result by a plugin; unknown tool, or one that was not offered, or that its server has changed; a tool that is settled here; a guard keeps it from
// running; needs a permission of its tool under block_and_retry; invalid arguments; a person's answer is the result; a plugin suspends it,
// or it needs a person; run. So a person who decides about a call is never asked about one that could not run. Under advisory nobody is
// asked and nothing is blocked.
//
// A call about which people would have to be asked while as many requests are open as may be is refused.
func GateHooked(d *agent.Definition, s *run.AgentState, c run.Call, plugins agent.PluginGate, valid agent.Validator, now time.Time) Gate {
	g := gateCall(d, s, c, plugins, valid, now)
	if (g.Suspend != nil || g.Block != nil) && TooManyOpen(d, s) {
		return Gate{Refuse: NotAsked(d, c), Rule: g.Rule}
	}
	return g
}

// TooManyOpen reports whether the run has as many requests to people open as it may (limits.open).
func TooManyOpen(d *agent.Definition, s *run.AgentState) bool {
	return s.CountOpenRequests() >= d.MaxOpen()
}

// NotAsked is the result of a call about which nobody is asked, as too many requests are open.
func NotAsked(d *agent.Definition, c run.Call) *run.CallFinished {
	text := d.Word(agent.WordTooManyOpen, map[string]any{"Tool": c.Name, "Open": d.MaxOpen()})
	return refuse(c, run.WhyTooManyOpen, text, Decision{}).Refuse
}

// gateCall is GateHooked, however many requests are open.
func gateCall(d *agent.Definition, s *run.AgentState, c run.Call, plugins agent.PluginGate, valid agent.Validator, now time.Time) Gate {
	t, known := d.Tool(c.Tool)
	if known = known && t.ModelName() == c.Name; !known { // a tool's original name is not one the model was given
		t = agent.ToolSpec{Name: c.Tool, Effect: run.EffectNonIdempotent}
	}
	dec := DecideIn(d, s, t, c.Input)
	if dec.Verdict == agent.VerdictDeny {
		word := agent.WordDeniedByRule
		if dec.Ceiling {
			word = agent.WordDeniedAbove
		}
		return refuse(c, run.WhyDenied, d.Word(word, about(c))+run.QuotedNote("Note", dec.Note), dec)
	}
	if no, denied := s.Permissions.Denied(c.Tool); denied {
		return refuse(c, run.WhyDenied, textToolDenied(d, c.Name, no), dec)
	}
	if plugins.Block != nil {
		return refuse(c, run.WhyBlocked, d.Word(agent.WordBlockedCall, map[string]any{"Tool": c.Name, "Reason": *plugins.Block}), dec)
	}
	if plugins.Result != nil {
		return Gate{Give: plugins.Result, Rule: dec}
	}
	if c.Hidden {
		return refuse(c, run.WhyOutOfScope, d.Word(agent.WordOutOfScope, about(c)), dec)
	}
	if !known {
		return refuse(c, run.WhyUnknownTool, agent.TextUnknownTool(c.Name, d), dec)
	}
	if Disabled(s, t) {
		return refuse(c, run.WhyToolChanged, TextToolChanged(d, c), dec)
	}
	if d.BreaksLoop(t.Name) {
		return gateLoopBreaking(d, t, c, valid)
	}
	g := guarded(d, s, c, gatePerson(d, s, c, t, dec, now))
	if g.Refuse != nil || g.Block != nil {
		return g
	}
	if err := checkArguments(d, s, t, c, valid); err != nil {
		return refuse(c, run.WhyInvalidArguments, d.Word(agent.WordInvalidArguments, map[string]any{"Tool": c.Name, "Problem": err.Error()}), dec)
	}
	if asked, ok := c.Asked(); ok && c.Resume != nil && asked.Mode == run.TicketResult {
		return Gate{Give: &agent.ToolResultData{Content: ResultText(c.Resume)}, Rule: dec}
	}
	if plugins.Suspend != nil {
		return gateAsked(d, s, c, plugins.Suspend, dec, now)
	}
	if c.Grant != nil {
		return gateGranted(d, s, c, t, dec, now)
	}
	return g
}

// gateAsked suspends a call that plugins have somebody asked about, as often as the definition lets them.
func gateAsked(d *agent.Definition, s *run.AgentState, c run.Call, asked *run.Ticket, dec Decision, now time.Time) Gate {
	if d.Limits.Asks > 0 && c.Asks >= d.Limits.Asks {
		return refuse(c, run.WhyBlocked, d.Word(agent.WordAskedOften, map[string]any{"Tool": c.Name, "Asks": c.Asks}), dec)
	}
	ask := AskFor(d, s, c, dec, now)
	ask.For, ask.Ticket, ask.Gate = run.ForInput, asked, true
	return Gate{Suspend: ask, Rule: dec}
}

// gatePerson says whether a call of a known tool needs a person, what becomes of it then, and what lets it run without.
func gatePerson(d *agent.Definition, s *run.AgentState, c run.Call, t agent.ToolSpec, dec Decision, now time.Time) Gate {
	one := Gate{Run: true, Rule: dec}
	if c.Undoes != "" && c.Grant == nil { // nothing but a person's word on this very call lets it run
		return Gate{Suspend: AskFor(d, s, c, dec, now), Rule: dec}
	}
	if c.Grant != nil || dec.Verdict != agent.VerdictAsk || d.Permission.Mode == agent.ModeAdvisory && !dec.Ceiling {
		return one
	}
	status, byItself := s.Permissions.Status(c.Tool, c.Inference), hasCaseKeys(c.Input) // nothing that was said of other calls covers it
	switch {
	case status == run.PermissionDenied:
		return refuse(c, run.WhyDenied, d.Word(agent.WordToolRefused, about(c)), dec)
	case status == run.PermissionApproved && !dec.Ceiling && !byItself: // it knows its own agent's permissions; where one above asks, a person's word is needed besides
		return one
	}
	digest, granting := ToolDigest(d, s, t, c.Input, dec), Granting(d)
	// A backend's word on a new call is the last one. A call that resumes has been asked about since.
	last := status == run.PermissionRequestable && c.Status != run.StatusResuming
	if p, covered := covering(s, c.Tool, digest, dec); covered && !byItself && !last {
		one.Claim = &run.CallClaimed{Call: c.ID, Under: p.Approval, Digest: digest, Once: granting.Once()}
		return one
	}
	if c.Status == run.StatusNew && granting.Standing() && !byItself {
		if p, covered := standingFor(s, d, t, c, dec, now); covered {
			one.Claim = &run.CallClaimed{Call: c.ID, Under: p.Approval, Digest: p.Digest}
			return one
		}
	}
	if d.Permission.Mode == agent.ModeBlockAndRetry {
		g := refuse(c, run.WhyAwaiting, d.Word(agent.WordAwaiting, about(c)), dec)
		return Gate{Block: g.Refuse, Rule: dec}
	}
	return Gate{Suspend: AskFor(d, s, c, dec, now), Rule: dec} // also when it is to run again in a fork, which inherits no approval
}

// gateGranted compares what was approved with what is about to run, and when (A6). A mismatch fails closed. A grant that a claim has
// used up already lets that call go on, and no other.
func gateGranted(d *agent.Definition, s *run.AgentState, c run.Call, t agent.ToolSpec, dec Decision, now time.Time) Gate {
	if c.Grant.Again && !grantCounts(*c.Grant, s, dec) {
		return Gate{Ask: true, Rule: dec}
	}
	if c.Grant.Tool {
		if !holds(c.Grant, d, s, t, c, dec) {
			if movedOn(d, s, c, t) {
				return askAgain(d, s, c, dec, now)
			}
			return refuse(c, run.WhyVoided, d.Word(agent.WordVoided, about(c)), dec)
		}
		return Gate{Run: true, Rule: dec}
	}
	if ActionDigest(d, s, c, t, dec) != c.Grant.Digest {
		if movedOn(d, s, c, t) {
			return askAgain(d, s, c, dec, now)
		}
		return refuse(c, run.WhyVoided, d.Word(agent.WordVoided, about(c)), dec)
	}
	if !c.Grant.Consumed && !now.Before(c.Grant.Expires) {
		return refuse(c, run.WhyExpired, d.Word(agent.WordGrantExpired, about(c)), dec)
	}
	if !grantCounts(*c.Grant, s, dec) {
		ask := AskFor(d, s, c, dec, now)
		ask.Why = run.WhyMiscounted
		return Gate{Suspend: ask, Rule: dec}
	}
	return Gate{Run: true, Rule: dec}
}

// askAgain suspends a call whose approval is void, as the policy that applies has changed since (A17).
func askAgain(d *agent.Definition, s *run.AgentState, c run.Call, dec Decision, now time.Time) Gate {
	ask := AskFor(d, s, c, dec, now)
	ask.Why = run.WhyPolicyChanged
	return Gate{Suspend: ask, Rule: dec}
}

// Voided refuses an approved call whose approval does not hold any more: withdrawn, used up, or not of this action (A6).
func Voided(d *agent.Definition, c run.Call) *run.CallFinished {
	return refuse(c, run.WhyVoided, d.Word(agent.WordVoided, about(c)), Decision{}).Refuse
}

// AskFor is the suspension of a call that needs a person, under the id and digest of the request people will see.
func AskFor(d *agent.Definition, s *run.AgentState, c run.Call, dec Decision, now time.Time) *run.CallSuspended {
	t, _ := d.Tool(c.Tool)
	return &run.CallSuspended{
		Call: c.ID, Approval: run.ApprovalID(s.Run, c.ID, c.Asks+1), Digest: ActionDigest(d, s, c, t, dec),
		Expires: now.UTC().Add(dec.Expires).Truncate(time.Millisecond), Policy: PolicyMark(d, s, t, c.Input, dec),
	}
}

// ActionDigest is the digest of the very action (A6): who, in which run, under which policy, does what with which bytes.
func ActionDigest(d *agent.Definition, s *run.AgentState, c run.Call, t agent.ToolSpec, dec Decision) string {
	return actionOf(d, s, c, t, dec).ActionDigest()
}

func actionOf(d *agent.Definition, s *run.AgentState, c run.Call, t agent.ToolSpec, dec Decision) DigestInput {
	return DigestInput{
		Tenant: s.Tenant, Run: s.Run, Call: c.ID, Agent: s.Agent, Version: s.Version, Tool: t.Name, ToolHash: agent.ToolHash(t),
		ArgsHash: ArgsHash(c.Input), PolicyVersion: policyVersion(d), ApproverPolicy: dec.ApproverPolicy(), Checked: digest(c.Checked),
	}
}

// about is what most wordings about a call may name.
func about(c run.Call) map[string]any { return map[string]any{"Tool": c.Name} }

func refuse(c run.Call, why run.CallReason, text string, dec Decision) Gate {
	return Gate{Refuse: &run.CallFinished{Call: c.ID, IsError: true, Reason: why, Content: text}, Rule: dec}
}

// FunctionCall is what a function is invoked with for a call of a tool of kind lambda. Its JSON is what the function gets.
type FunctionCall struct {
	Tool   string          `json:"tool"` // original name
	Args   json.RawMessage `json:"args"` // as the gate let them through
	Key    string          `json:"key"`  // equal on every attempt: whoever has seen it has done it
	Tenant string          `json:"tenant"`
	Run    string          `json:"run"`
	Call   string          `json:"call"`
	State  json.RawMessage `json:"state,omitempty"`  // what the run's tools share; nil where that is empty
	Resume json.RawMessage `json:"resume,omitempty"` // what people answered when the function last asked for input in this call; nil = it did not

	Callback *Callback `json:"callback,omitempty"` // of a function that answers later: how

	// W3C: the call's span, or the run's own if the function answers later; "" = the run is not traced.
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`
}

// Callback is where the answer to a call that is answered later goes.
type Callback struct {
	// URL takes the answer. Whoever has it may answer this call, and nothing else. "" = this deployment takes answers by events and by its
	// API alone.
	URL      string   `json:"url,omitempty"`
	AnswerTo AnswerTo `json:"answerTo"`
}

// AnswerTo names a call to whoever answers it.
type AnswerTo struct {
	Run  string `json:"run"`
	Call string `json:"call"`
}

// Payload is the call as a function gets it, arguments byte for byte.
func (f FunctionCall) Payload() ([]byte, error) {
	if string(f.State) == string(run.EmptyState) {
		f.State = nil
	}
	return run.MarshalVerbatim(f)
}

// FunctionRequest is what a function that answers later is invoked with for a call of t in the state s, to be
// answered there.
func FunctionRequest(s *run.AgentState, t agent.ToolSpec, c run.Call, to Callback) FunctionCall {
	f := FunctionCall{
		Tool: t.Name, Args: c.Input, Key: s.Run + "/" + c.ID, Tenant: s.Tenant, Run: s.Run, Call: c.ID, State: s.SharedState(),
		Callback: &to,
	}
	if s.Trace != nil {
		f.Traceparent, f.Tracestate = s.Trace.Traceparent, s.Trace.Tracestate
	}
	return f
}

// ResultEnd is the place behind the result at i and the media that came with it.
func ResultEnd(all []run.Message, i int) int {
	j := i + 1
	for ; j < len(all) && all[j].Source.SameEvent(all[i].Source); j++ {
		if _, ok := all[j].Block.(run.Media); !ok {
			break
		}
	}
	return j
}

// Decision is what policy says of one call.
type Decision struct {
	Verdict   agent.Verdict
	Rule      int               // index of the rule that matched; -1 = the default
	Approvers []string          // who may decide if the call has to wait; empty = nobody
	Expires   time.Duration     // how long the request lives if the call has to wait
	Note      string            // the rule's, for the person who is asked
	Quorum    int               // so many different people approve if the call has to wait; 0 and 1 = one
	FourEyes  bool              // the people for whom the run acts may not approve
	Remind    time.Duration     // how often people are reminded; 0 = never
	Escalate  *agent.Escalation // who may decide as well, and when; nil = nobody

	Ceiling bool       // a delegating agent's policy denies the call, or asks, be it beside the run's own
	Above   [][]string // the approvers of each such policy that asks, the root's first: who decides is among each, besides Approvers
	AboveTo [][]string // who is among each of Above as well once Escalate is due; shorter where no more are
}

// Decide applies a permission to a call of t with args, which CompactJSON has accepted. Deny rules are checked before all
// others; then the first rule that matches wins; then the default. What cannot be compared never widens a permission: a
// value that is missing or of another type than the rule compares it with makes deny and ask rules match and allow rules
// not, and so do conditions that CheckPermission would refuse.
//
// A call with an object of which two keys are equal but for case is never allowed.
func Decide(p agent.Permission, t agent.ToolSpec, args json.RawMessage) Decision {
	return decide(p, t, args).withCaseKeys(args)
}

// decide is Decide, whatever the keys are.
func decide(p agent.Permission, t agent.ToolSpec, args json.RawMessage) Decision {
	for i, r := range p.Rules {
		if r.Denies() && r.Matches(t.Name, args) {
			return decision(p, agent.VerdictDeny, i)
		}
	}
	for i, r := range p.Rules {
		if !r.Denies() && r.Matches(t.Name, args) {
			return decision(p, r.Verdict, i)
		}
	}
	return decision(p, p.DefaultVerdict(t.Effect), -1)
}

func decision(p agent.Permission, v agent.Verdict, rule int) Decision {
	d := Decision{Verdict: v, Rule: rule, Approvers: p.Approvers, Expires: p.Expires}
	if rule < 0 {
		return d
	}
	r := p.Rules[rule]
	d.Note = r.Note
	if len(r.Approvers) > 0 {
		d.Approvers = r.Approvers
	}
	if r.Expires > 0 {
		d.Expires = r.Expires
	}
	d.Quorum, d.FourEyes, d.Remind, d.Escalate = r.Quorum, r.FourEyes, r.Remind, r.Escalate
	return d
}

// Outgoing is an event for somebody outside: a service that is asked, or whoever is to hear that a run has ended. Its JSON is what they
// get.
type Outgoing struct {
	// ID is the same however often the event is sent: a receiver that has seen it drops it.
	ID             string          `json:"id"`
	Type           string          `json:"type"` // of a service: its tool's event, by default the tool's original name
	Tenant         string          `json:"tenant"`
	Run            string          `json:"run"`
	Agent          string          `json:"agent"`
	Call           string          `json:"call,omitempty"`            // of a service: what the answer names
	Subject        string          `json:"subject"`                   // of the run; its id where it was started without one
	ParentSubject  string          `json:"parentSubject$$,omitempty"` // whom what a service starts is to answer to: the run; of a run's end, who started the run
	AccessControl  string          `json:"accessControl,omitempty"`
	Domain         string          `json:"domain,omitempty"`
	ExecutionUnits int64           `json:"executionUnits"`        // of the run so far
	Traceparent    string          `json:"traceparent,omitempty"` // W3C: the run's own span; "" = the run is not traced
	Tracestate     string          `json:"tracestate,omitempty"`
	Callback       *Callback       `json:"callback,omitempty"` // of a service, where the answer goes; nil = by an event or by the API
	Data           json.RawMessage `json:"data"`
}

// traced is e in the trace of the run.
func traced(s *run.AgentState, e Outgoing) Outgoing {
	if s.Trace != nil {
		e.Traceparent, e.Tracestate = s.Trace.Traceparent, s.Trace.Tracestate
	}
	return e
}

// The types of the events that say that a run has ended: of every run that did not fail, and of one that did.
const (
	TypeRunCompleted = "Countersign Run Completed"
	TypeRunFailed    = "Countersign Run Failed"
)

// AnswerExpiry is how long a service has to answer whose tool has no timeout of its own.
const AnswerExpiry = 24 * time.Hour

// maxAnnounced bounds an output in the event that announces it, in bytes; whoever wants a longer one reads the run.
const maxAnnounced = 128 << 10

// subject is what the run goes by among those it talks to.
func subject(s *run.AgentState) string { return cmp.Or(s.Subject, s.Run) }

// ServiceEvent is the event that asks the service of a call of t: the arguments, and in them whom to answer to.
func ServiceEvent(s *run.AgentState, t agent.ToolSpec, c run.Call) (Outgoing, error) {
	data, err := withParent(c.Input, subject(s))
	if err != nil {
		return Outgoing{}, fmt.Errorf("ask service %s for call %s: %w", t.Name, c.ID, err)
	}
	return traced(s, Outgoing{
		ID: s.Run + "/" + c.ID, Type: cmp.Or(t.Event, t.Name), Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Call: c.ID,
		Subject: subject(s), ParentSubject: subject(s), AccessControl: s.AccessControl, Domain: t.Domain, ExecutionUnits: s.ExecutionUnits, Data: data,
	}), nil
}

// callbackGrace is how much longer the address of an answer holds than the answer's own time: a call may be out late, and then waits from
// then on.
const callbackGrace = 24 * time.Hour

// CallbackExpires is until when the address holds where a call of t is answered. It is the same however often the call is sent out, so that
// what goes out is.
func CallbackExpires(t agent.ToolSpec, c run.Call) time.Time {
	return c.AskedAt.UTC().Add(cmp.Or(t.Timeout, AnswerExpiry) + callbackGrace).Truncate(time.Second)
}

// EmittedAs is the suspension of a service's call whose event went out now.
func EmittedAs(t agent.ToolSpec, c run.Call, now time.Time) run.CallSuspended {
	expiry := AnswerExpiry
	if t.Kind == agent.KindAgent {
		expiry = DelegateExpiry
	}
	return run.CallSuspended{Call: c.ID, For: run.ForAnswer, Expires: now.UTC().Add(cmp.Or(t.Timeout, expiry)).Truncate(time.Millisecond)}
}

// withParent puts the correlation key at the end of an object, in the place of one that is there.
func withParent(raw json.RawMessage, subject string) (json.RawMessage, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("the arguments are no object")
	}
	bare, err := agent.WithoutParent(raw)
	if err != nil {
		return nil, err
	}
	name, err := run.MarshalVerbatim(agent.ParentSubject)
	if err != nil {
		return nil, err
	}
	value, err := run.MarshalVerbatim(subject)
	if err != nil {
		return nil, err
	}
	out := bytes.TrimSuffix(bytes.Clone(bare), []byte("}"))
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(append(append(append(out, name...), ':'), value...), '}'), nil
}

// ending is what the event of a run's end says.
type ending struct {
	Reason  run.Reason      `json:"reason"`
	Output  json.RawMessage `json:"output,omitempty"`
	Omitted bool            `json:"outputOmitted,omitempty"` // it is too long for an event: read the run
	Error   *run.RunError   `json:"error,omitempty"`
}

// Announcement is the event that tells whoever started the run that it has ended: one whose input names a parent's subject, or that was
// started with a subject, or whose tool routes it to a domain. Nobody else hears of any other run; the run that a delegated one is carried
// out for hears of it by itself.
func Announcement(s *run.AgentState) (e Outgoing, owed bool, err error) {
	parent, domain := parent(s), ""
	if p := s.Parent; p != nil {
		domain = p.Domain
	}
	if s.Status != run.RunDone || parent == "" && s.Subject == "" && domain == "" {
		return Outgoing{}, false, nil
	}
	if s.Parent != nil {
		parent = cmp.Or(s.Subject, s.Parent.Run)
	}
	said := ending{Reason: s.Reason, Error: s.Error}
	if said.Output, err = s.OutputJSON(); err != nil {
		return Outgoing{}, false, err
	}
	if len(said.Output) > maxAnnounced {
		said.Output, said.Omitted = nil, true
	}
	data, err := run.MarshalVerbatim(said)
	if err != nil {
		return Outgoing{}, false, err
	}
	kind := TypeRunCompleted
	if s.Reason == run.ReasonError {
		kind = TypeRunFailed
	}
	return traced(s, Outgoing{
		ID: s.Run + "#end", Type: kind, Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Subject: subject(s), ParentSubject: parent,
		AccessControl: s.AccessControl, Domain: domain, ExecutionUnits: s.ExecutionUnits, Data: data,
	}), true, nil
}

// parent is the subject of whoever started the run and waits for it, by its input; "" = nobody does.
func parent(s *run.AgentState) string {
	var in map[string]json.RawMessage
	if s.From != nil || json.Unmarshal(s.Input, &in) != nil { // a fork or continuation is not what they asked for
		return ""
	}
	var subject string
	if json.Unmarshal(in[agent.ParentSubject], &subject) != nil {
		return ""
	}
	return subject
}

// checkArguments checks a call's arguments. Where the definition says so, those of an exhausted inference's services are not checked
// (semantics 6.1).
func checkArguments(d *agent.Definition, s *run.AgentState, t agent.ToolSpec, c run.Call, valid agent.Validator) error {
	unchecked := t.AnsweredLater() && d.Limits.Validators == agent.ValidatorsNotExhausted && s.Interactions.Current > s.Interactions.Max
	if unchecked && len(c.Input) > 0 && c.Input[0] == '{' { // an event carries an object, whatever is in it
		return nil
	}
	return agent.ValidArguments(valid, t, c.Input)
}
