package agent

import (
	"encoding/json"
	"time"
)

// Gate is the verdict on one new or resuming call. Exactly one of Run, Give, Suspend, Ask, Block and Refuse is set.
type Gate struct {
	Run     bool
	Claim   *CallClaimed    // with Run: the claim it takes, as a permission of its tool covers it; nil = as the call itself says
	Give    *ToolResultData // the result, given without running the tool
	Suspend *CallSuspended
	Ask     bool          // what became of it is asked again, as those who have ordered to run it again are not enough
	Block   *CallFinished // it fails, and its tool's permission is requested: see BlockRound
	Refuse  *CallFinished
	Rule    Decision // what policy said
}

// Validator checks arguments against a tool's schema. Its error text is fit for the model.
type Validator func(t ToolSpec, args json.RawMessage) error

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
func GateCall(d *Definition, s *AgentState, c Call, valid Validator, now time.Time) Gate {
	return GateHooked(d, s, c, PluginGate{}, valid, now)
}

// wordAskedOften is the key of what ends a call about which a plugin would go on asking.
const wordAskedOften = "askedOften"

// wordingsOfGate are what a model is told of calls that were not carried out.
var wordingsOfGate = []Wording{{
	Key: wordAskedOften, About: "of a call about which people have been asked too often", Fields: []string{"Tool", "Asks"},
	Text: "{{.Tool}} was not called: people have been asked about this call {{.Asks}} times, and it still cannot go on. Do not repeat the call.",
}, {
	Key: wordTooManyOpen, About: "of a call that needs a person while as many requests are open as may be", Fields: []string{"Tool", "Open"},
	Text: "Nobody was asked about {{.Tool}}, which needs a person: {{.Open}} requests of this run wait for people already, and no more may. " +
		"The call is not done: make it again once some of those are decided.",
}, {
	Key: wordToolChanged, About: "of a call of a tool whose server has changed it since the run began", Fields: []string{"Tool"},
	Text: "{{.Tool}} was not called: its server has changed the tool, and it is disabled until people have approved it as it is now. Do not call it again.",
}, {
	Key: wordUnread, About: "of a call that was not made because what it depends on could not be read", Fields: []string{"Tool", "Reads", "Problem"},
	Text: "{{.Tool}} was not called: what it depends on could not be read with {{.Reads}} ({{.Problem}}). Nothing was changed.",
}}

// wordTooManyOpen is the key of what a model is told of a call that needs a person while the run has as many open
// requests as it may.
const wordTooManyOpen = "tooManyOpen"

// wordToolChanged is the key of what a model is told of a call that was not made because the tool is not what it was.
const wordToolChanged = "toolChanged"

// TextToolChanged is the result of a call of a tool that the run has lost.
func TextToolChanged(d *Definition, c Call) string { return d.word(wordToolChanged, about(c)) }

// GateHooked decides about a call that has not run yet, in the fixed order of semantics 6.1: denied, by a rule or for its tool, or blocked by
// a plugin; given a result by a plugin; unknown tool, or one that was not offered, or that its server has changed; a tool that is settled here; a guard keeps it from
// running; needs a permission of its tool under block_and_retry; invalid arguments; a person's answer is the result; a plugin suspends it,
// or it needs a person; run. So a person who decides about a call is never asked about one that could not run. Under advisory nobody is
// asked and nothing is blocked.
//
// A call about which people would have to be asked while as many requests are open as may be is refused.
func GateHooked(d *Definition, s *AgentState, c Call, plugins PluginGate, valid Validator, now time.Time) Gate {
	g := gateCall(d, s, c, plugins, valid, now)
	if (g.Suspend != nil || g.Block != nil) && TooManyOpen(d, s) {
		return Gate{Refuse: NotAsked(d, c), Rule: g.Rule}
	}
	return g
}

// TooManyOpen reports whether the run has as many requests to people open as it may (limits.open).
func TooManyOpen(d *Definition, s *AgentState) bool { return s.openRequests() >= d.maxOpen() }

// NotAsked is the result of a call about which nobody is asked, as too many requests are open.
func NotAsked(d *Definition, c Call) *CallFinished {
	text := d.word(wordTooManyOpen, map[string]any{"Tool": c.Name, "Open": d.maxOpen()})
	return refuse(c, WhyTooManyOpen, text, Decision{}).Refuse
}

// gateCall is GateHooked, however many requests are open.
func gateCall(d *Definition, s *AgentState, c Call, plugins PluginGate, valid Validator, now time.Time) Gate {
	t, known := d.Tool(c.Tool)
	if known = known && t.ModelName() == c.Name; !known { // a tool's original name is not one the model was given
		t = ToolSpec{Name: c.Tool, Effect: EffectNonIdempotent}
	}
	dec := DecideIn(d, s, t, c.Input)
	if dec.Verdict == VerdictDeny {
		word := wordDeniedByRule
		if dec.Ceiling {
			word = wordDeniedAbove
		}
		return refuse(c, WhyDenied, d.word(word, about(c))+quotedNote("Note", dec.Note), dec)
	}
	if no, denied := s.Permissions.denied(c.Tool); denied {
		return refuse(c, WhyDenied, textToolDenied(d, c.Name, no), dec)
	}
	if plugins.Block != nil {
		return refuse(c, WhyBlocked, d.word(wordBlockedCall, map[string]any{"Tool": c.Name, "Reason": *plugins.Block}), dec)
	}
	if plugins.Result != nil {
		return Gate{Give: plugins.Result, Rule: dec}
	}
	if c.Hidden {
		return refuse(c, WhyOutOfScope, d.word(wordOutOfScope, about(c)), dec)
	}
	if !known {
		return refuse(c, WhyUnknownTool, textUnknownTool(c.Name, d), dec)
	}
	if s.Disabled(t) {
		return refuse(c, WhyToolChanged, TextToolChanged(d, c), dec)
	}
	if d.breaksLoop(t.Name) {
		return gateLoopBreaking(d, t, c, valid)
	}
	g := guarded(d, s, c, gatePerson(d, s, c, t, dec, now))
	if g.Refuse != nil || g.Block != nil {
		return g
	}
	if err := checkArguments(d, s, t, c, valid); err != nil {
		return refuse(c, WhyInvalidArguments, d.word(wordInvalidArguments, map[string]any{"Tool": c.Name, "Problem": err.Error()}), dec)
	}
	if asked, ok := c.Asked(); ok && c.Resume != nil && asked.Mode == TicketResult {
		return Gate{Give: &ToolResultData{Content: ResultText(c.Resume)}, Rule: dec}
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
func gateAsked(d *Definition, s *AgentState, c Call, asked *Ticket, dec Decision, now time.Time) Gate {
	if d.Limits.Asks > 0 && c.Asks >= d.Limits.Asks {
		return refuse(c, WhyBlocked, d.word(wordAskedOften, map[string]any{"Tool": c.Name, "Asks": c.Asks}), dec)
	}
	ask := AskFor(d, s, c, dec, now)
	ask.For, ask.Ticket, ask.Gate = ForInput, asked, true
	return Gate{Suspend: ask, Rule: dec}
}

// gatePerson says whether a call of a known tool needs a person, what becomes of it then, and what lets it run without.
func gatePerson(d *Definition, s *AgentState, c Call, t ToolSpec, dec Decision, now time.Time) Gate {
	run := Gate{Run: true, Rule: dec}
	if c.Undoes != "" && c.Grant == nil { // nothing but a person's word on this very call lets it run
		return Gate{Suspend: AskFor(d, s, c, dec, now), Rule: dec}
	}
	if c.Grant != nil || dec.Verdict != VerdictAsk || d.Permission.Mode == ModeAdvisory && !dec.Ceiling {
		return run
	}
	status, byItself := s.Permissions.status(c.Tool, c.Inference), hasCaseKeys(c.Input) // nothing that was said of other calls covers it
	switch {
	case status == PermissionDenied:
		return refuse(c, WhyDenied, d.word(wordToolRefused, about(c)), dec)
	case status == PermissionApproved && !dec.Ceiling && !byItself: // it knows its own agent's permissions; where one above asks, a person's word is needed besides
		return run
	}
	digest, granting := ToolDigest(d, s, t, c.Input, dec), d.Granting()
	// A backend's word on a new call is the last one. A call that resumes has been asked about since.
	last := status == PermissionRequestable && c.Status != StatusResuming
	if p, covered := s.covering(c.Tool, digest, dec); covered && !byItself && !last {
		run.Claim = &CallClaimed{Call: c.ID, Under: p.Approval, Digest: digest, Once: granting.once()}
		return run
	}
	if c.Status == StatusNew && granting.Standing() && !byItself {
		if p, covered := s.standingFor(d, t, c, dec, now); covered {
			run.Claim = &CallClaimed{Call: c.ID, Under: p.Approval, Digest: p.Digest}
			return run
		}
	}
	if d.Permission.Mode == ModeBlockAndRetry {
		g := refuse(c, WhyAwaiting, d.word(wordAwaiting, about(c)), dec)
		return Gate{Block: g.Refuse, Rule: dec}
	}
	return Gate{Suspend: AskFor(d, s, c, dec, now), Rule: dec} // also when it is to run again in a fork, which inherits no approval
}

// once reports whether a grant of a tool is used up by one claim: where decisions are of calls, it stands for the one call that the
// model makes again, unless it stands for that very call for good.
func (p Permission) once() bool {
	return p.Grants == GrantsOnce || p.Scope != ScopeTool && p.Grants != GrantsStanding
}

// gateGranted compares what was approved with what is about to run, and when (A6). A mismatch fails closed. A grant that a claim has
// used up already lets that call go on, and no other.
func gateGranted(d *Definition, s *AgentState, c Call, t ToolSpec, dec Decision, now time.Time) Gate {
	if c.Grant.Again && !c.Grant.counts(s, dec) {
		return Gate{Ask: true, Rule: dec}
	}
	if c.Grant.Tool {
		if !c.Grant.holds(d, s, t, c, dec) {
			if d.movedOn(s, c, t) {
				return askAgain(d, s, c, dec, now)
			}
			return refuse(c, WhyVoided, d.word(wordVoided, about(c)), dec)
		}
		return Gate{Run: true, Rule: dec}
	}
	if ActionDigest(d, s, c, t, dec) != c.Grant.Digest {
		if d.movedOn(s, c, t) {
			return askAgain(d, s, c, dec, now)
		}
		return refuse(c, WhyVoided, d.word(wordVoided, about(c)), dec)
	}
	if !c.Grant.Consumed && !now.Before(c.Grant.Expires) {
		return refuse(c, WhyExpired, d.word(wordGrantExpired, about(c)), dec)
	}
	if !c.Grant.counts(s, dec) {
		ask := AskFor(d, s, c, dec, now)
		ask.Why = WhyMiscounted
		return Gate{Suspend: ask, Rule: dec}
	}
	return Gate{Run: true, Rule: dec}
}

// askAgain suspends a call whose approval is void, as the policy that applies has changed since (A17).
func askAgain(d *Definition, s *AgentState, c Call, dec Decision, now time.Time) Gate {
	ask := AskFor(d, s, c, dec, now)
	ask.Why = WhyPolicyChanged
	return Gate{Suspend: ask, Rule: dec}
}

// Voided refuses an approved call whose approval does not hold any more: withdrawn, used up, or not of this action (A6).
func Voided(d *Definition, c Call) *CallFinished {
	return refuse(c, WhyVoided, d.word(wordVoided, about(c)), Decision{}).Refuse
}

// AskFor is the suspension of a call that needs a person, under the id and digest of the request people will see.
func AskFor(d *Definition, s *AgentState, c Call, dec Decision, now time.Time) *CallSuspended {
	t, _ := d.Tool(c.Tool)
	return &CallSuspended{
		Call: c.ID, Approval: ApprovalID(s.Run, c.ID, c.Asks+1), Digest: ActionDigest(d, s, c, t, dec),
		Expires: now.UTC().Add(dec.Expires).Truncate(time.Millisecond), Policy: PolicyMark(d, s, t, c.Input, dec),
	}
}

// ActionDigest is the digest of the very action (A6): who, in which run, under which policy, does what with which bytes.
func ActionDigest(d *Definition, s *AgentState, c Call, t ToolSpec, dec Decision) string {
	return actionOf(d, s, c, t, dec).ActionDigest()
}

func actionOf(d *Definition, s *AgentState, c Call, t ToolSpec, dec Decision) DigestInput {
	return DigestInput{
		Tenant: s.Tenant, Run: s.Run, Call: c.ID, Agent: s.Agent, Version: s.Version, Tool: t.Name, ToolHash: ToolHash(t),
		ArgsHash: ArgsHash(c.Input), PolicyVersion: d.policyVersion(), ApproverPolicy: dec.ApproverPolicy(), Checked: c.Checked.digest(),
	}
}

// about is what most wordings about a call may name.
func about(c Call) map[string]any { return map[string]any{"Tool": c.Name} }

func refuse(c Call, why CallReason, text string, dec Decision) Gate {
	return Gate{Refuse: &CallFinished{Call: c.ID, IsError: true, Reason: why, Content: text}, Rule: dec}
}
