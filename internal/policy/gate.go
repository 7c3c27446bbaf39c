package policy

import (
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Gate is the verdict on one new or resuming call. Exactly one of Run, Give, Suspend, Ask, Block and Refuse is set.
type Gate struct {
	Run bool
	// with Run: the claim under a permission of the call's tool; nil = none, or the call's own grant
	Claim   *run.CallClaimed
	Give    *agent.ToolResultData // the result, given without running the tool
	Suspend *run.CallSuspended
	Ask     bool              // people are asked about the outcome again: those who ordered the repetition do not suffice
	Block   *run.CallFinished // the call fails, and BlockRound requests the permission of its tool
	Refuse  *run.CallFinished
	Rule    Decision // the policy's decision
}

// SchemaError is a Validator's error about a schema that cannot be used.
type SchemaError struct {
	Tool string
	Err  error
}

func (e *SchemaError) Error() string {
	return "the schema of " + e.Tool + " is broken: " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *SchemaError) Unwrap() error { return e.Err }

// TextToolChanged returns the result of a call whose tool the run no longer has.
func TextToolChanged(d *agent.Definition, c run.Call) string {
	return d.Word(agent.WordToolChanged, wordingData(c))
}

// GateHooked decides about a call that has not run yet. It checks in the fixed order of docs/presets.md, section 3:
// denied by a rule, for its tool, or blocked by a plugin; given a result by a plugin; unknown tool, one that was not
// offered, or one that its server has changed; a loop-breaking tool; stopped by a guard; lacks a permission of
// its tool under block_and_retry; invalid arguments; a person's answer is the result; suspended by a plugin, or needs a
// person; run. So people are never asked about a call that could not run. An advisory policy asks nobody and blocks
// nothing. If people would have to be asked while the run has as many open requests as it may, the call is refused.
func GateHooked(
	d *agent.Definition, s *run.AgentState, c run.Call, plugins agent.PluginGate, valid agent.Validator, now time.Time,
) Gate {
	g := decideGate(d, s, c, plugins, valid, now)
	if (g.Suspend != nil || g.Block != nil) && TooManyOpen(d, s) {
		return Gate{Refuse: RefuseTooManyOpen(d, c), Rule: g.Rule}
	}
	return g
}

// TooManyOpen reports whether the run has as many open requests to people as limits.open allows.
func TooManyOpen(d *agent.Definition, s *run.AgentState) bool {
	open := len(s.OpenRequests())
	for _, c := range s.Waits() {
		if c.Wait.For != run.ForAnswer {
			open++
		}
	}
	return open >= d.MaxOpen()
}

// RefuseTooManyOpen returns the result of a call that people are not asked about, because too many requests are open.
func RefuseTooManyOpen(d *agent.Definition, c run.Call) *run.CallFinished {
	text := d.Word(agent.WordTooManyOpen, map[string]any{"Tool": c.Name, "Open": d.MaxOpen()})
	return refuseCall(c, run.WhyTooManyOpen, text, Decision{}).Refuse
}

// decideGate is GateHooked without the check of how many requests are open.
func decideGate(
	d *agent.Definition, s *run.AgentState, c run.Call, plugins agent.PluginGate, valid agent.Validator, now time.Time,
) Gate {
	t, known := d.Tool(c.Tool)
	known = known && (!run.IsBudgetTool(t.Name) || c.Budget) // no model calls a budget tool
	if known = known && t.ModelName() == c.Name; !known {    // the model was not given the original name
		t = agent.ToolSpec{Name: c.Tool, Effect: run.EffectNonIdempotent, MCP: t.MCP}
	}
	dec := DecideIn(d, s, t, c.Input)
	if dec.Verdict == agent.VerdictDeny {
		word := agent.WordDeniedByRule
		if dec.Ceiling {
			word = agent.WordDeniedAbove
		}
		return refuseCall(c, run.WhyDenied, d.Word(word, wordingData(c))+agent.QuotedNote("Note", dec.Note), dec)
	}
	if no, denied := s.Permissions.Denied(c.Tool); denied {
		return refuseCall(c, run.WhyDenied, textToolDenied(d, c.Name, no), dec)
	}
	switch {
	case plugins.Block != nil:
		return refuseCall(c, run.WhyBlocked,
			d.Word(agent.WordBlockedCall, map[string]any{"Tool": c.Name, "Reason": agent.Bounded(*plugins.Block)}), dec)
	case plugins.Result != nil:
		return Gate{Give: plugins.Result, Rule: dec}
	case c.Hidden:
		return refuseCall(c, run.WhyOutOfScope, d.Word(agent.WordOutOfScope, wordingData(c)), dec)
	case !known:
		return refuseCall(c, run.WhyUnknownTool, agent.TextUnknownTool(c.Name, d), dec)
	case Disabled(s, t):
		return refuseCall(c, run.WhyToolChanged, TextToolChanged(d, c), dec)
	case d.BreaksLoop(t.Name):
		return gateLoopBreaking(d, t, c, valid)
	}
	g := gateGuards(d, s, c, gatePerson(d, s, c, t, dec, now))
	if g.Refuse != nil || g.Block != nil {
		return g
	}
	if err := checkArguments(d, s, t, c, valid); err != nil {
		return RefuseArguments(d, c, err, dec)
	}
	if asked, ok := TicketOf(c); ok && c.Resume != nil && asked.Mode == run.TicketResult {
		return Gate{Give: &agent.ToolResultData{Content: ResultText(c.Resume)}, Rule: dec}
	}
	if plugins.Suspend != nil {
		if d.Limits.Asks > 0 && c.Asks >= d.Limits.Asks {
			fields := map[string]any{"Tool": c.Name, "Asks": c.Asks}
			return refuseCall(c, run.WhyBlocked, d.Word(agent.WordAskedOften, fields), dec)
		}
		ask := AskFor(d, s, c, dec, now)
		ask.For, ask.Ticket, ask.Gate = run.ForInput, plugins.Suspend, true
		return Gate{Suspend: ask, Rule: dec}
	}
	if c.Grant != nil {
		return gateGranted(d, s, c, t, dec, now)
	}
	return g
}

// gatePerson decides whether a call of a known tool needs a person, what happens to it then, and which permission lets
// it run without one.
func gatePerson(
	d *agent.Definition, s *run.AgentState, c run.Call, t agent.ToolSpec, dec Decision, now time.Time,
) Gate {
	one := Gate{Run: true, Rule: dec}
	if c.Grant != nil || dec.Verdict != agent.VerdictAsk && !c.IsDecidedAlone() {
		return one
	}
	status, own := run.PermissionStatus(""), needsOwnDecision(c)
	read, isNew := s.Permissions.Checked, c.Status == run.StatusNew
	if read.Inference == c.Inference || isNew && read.Inference == s.Round.Inference { // a fork makes older calls again
		status = read.Tools[c.Tool]
	}
	switch {
	case status == PermissionDenied:
		return refuseCall(c, run.WhyDenied, d.Word(agent.WordToolRefused, wordingData(c)), dec)
	case c.IsDecidedAlone():
		return Gate{Suspend: AskFor(d, s, c, dec, now), Rule: dec}
	case status == PermissionApproved && !dec.Ceiling && !own:
		// the backend knows only its own agent's permissions, so it does not decide for a delegating agent's policy
		return one
	}
	digest, granting := ToolDigest(d, s, t, c.Input, dec), GrantPolicy(d)
	// A backend's answer about a new call beats earlier grants. About a call that resumes people were asked since.
	last := status == PermissionRequestable && c.Status != run.StatusResuming
	if p, covered := findPermit(s, c.Tool, digest, dec); covered && !own && !last {
		one.Claim = &run.CallClaimed{Call: c.ID, Under: p.Approval, Digest: digest, Once: granting.Once()}
		return one
	}
	if c.Status == run.StatusNew && granting.Standing() && !own {
		if p, covered := findStandingGrant(d, s, t, c, dec, now); covered {
			one.Claim = &run.CallClaimed{Call: c.ID, Under: p.Approval, Digest: p.Digest}
			return one
		}
	}
	if d.Permission.Mode == agent.ModeBlockAndRetry {
		g := refuseCall(c, run.WhyAwaiting, d.Word(agent.WordAwaiting, wordingData(c)), dec)
		return Gate{Block: g.Refuse, Rule: dec}
	}
	// this includes a call that a fork runs again, because a fork inherits no approval
	return Gate{Suspend: AskFor(d, s, c, dec, now), Rule: dec}
}

// gateGranted compares what was approved with what is about to run, and checks the time (A6). A mismatch fails closed.
// A grant that a claim has already used lets only that call go on.
func gateGranted(
	d *agent.Definition, s *run.AgentState, c run.Call, t agent.ToolSpec, dec Decision, now time.Time,
) Gate {
	fits := c.Grant.Digest == ActionDigest(d, s, c, t, dec)
	if c.Grant.Tool {
		fits = grantCovers(c.Grant, d, s, t, c, dec)
	}
	ask, counted := AskFor(d, s, c, dec, now), dec
	if made, ok := s.Use(c.ID); ok && c.Grant.Edited && !c.Grant.Again && dec.Verdict == agent.VerdictAllow {
		counted = DecideIn(d, s, t, made.Input) // the edited arguments need no approval, so the model's are counted
	}
	switch {
	case c.Grant.Again && !grantCounts(c, s, dec):
		return Gate{Ask: true, Rule: dec}
	case !fits && onlyPolicyChanged(d, s, c, t):
		ask.Why = run.WhyPolicyChanged // since it was approved (A17)
		return Gate{Suspend: ask, Rule: dec}
	case !fits:
		return refuseCall(c, run.WhyVoided, d.Word(agent.WordVoided, wordingData(c)), dec)
	case c.Grant.Tool:
		return Gate{Run: true, Rule: dec}
	case !c.Grant.Consumed && !now.Before(c.Grant.Expires):
		return refuseCall(c, run.WhyExpired, d.Word(agent.WordGrantExpired, wordingData(c)), dec)
	case !grantCounts(c, s, counted):
		ask.Why = run.WhyQuorumChanged
		return Gate{Suspend: ask, Rule: dec}
	default:
		return Gate{Run: true, Rule: dec}
	}
}

// RefuseVoided refuses an approved call whose approval no longer holds: withdrawn, used up, or for another action (A6).
func RefuseVoided(d *agent.Definition, c run.Call) *run.CallFinished {
	return refuseCall(c, run.WhyVoided, d.Word(agent.WordVoided, wordingData(c)), Decision{}).Refuse
}

// AskFor returns the suspension of a call that needs a person, with the id and the digest of the request that people
// will see.
func AskFor(d *agent.Definition, s *run.AgentState, c run.Call, dec Decision, now time.Time) *run.CallSuspended {
	t, _ := d.Tool(c.Tool)
	return &run.CallSuspended{
		Call: c.ID, Approval: run.ApprovalID(s.Run, c.ID, c.Asks+1), Digest: ActionDigest(d, s, c, t, dec),
		Expires: now.UTC().Add(dec.Expires).Truncate(time.Millisecond), Policy: policyMark(d, s, t, c.Input, dec),
	}
}

// ActionDigest returns the digest of the exact action: who does what with which bytes, in which run, under which policy
// (A6).
func ActionDigest(d *agent.Definition, s *run.AgentState, c run.Call, t agent.ToolSpec, dec Decision) string {
	return actionOf(d, s, c, t, dec).ActionDigest()
}

func actionOf(d *agent.Definition, s *run.AgentState, c run.Call, t agent.ToolSpec, dec Decision) DigestInput {
	return DigestInput{
		Tenant: s.Tenant, Run: s.Run, Call: c.ID, Agent: s.Agent, Version: s.Version, Tool: t.Name,
		ToolHash: agent.ToolHash(t),
		ArgsHash: agent.HashHex(c.Input), PolicyVersion: VersionOfPolicy(d), ApproverPolicy: dec.ApproverPolicy(),
		Checked: preconditionDigest(c.Checked),
	}
}

func wordingData(c run.Call) map[string]any { return map[string]any{"Tool": c.Name} }

func refuseCall(c run.Call, why run.CallReason, text string, dec Decision) Gate {
	return Gate{Refuse: &run.CallFinished{Call: c.ID, IsError: true, Reason: why, Content: text}, Rule: dec}
}

// RefuseArguments returns the verdict on a call whose arguments have a problem.
func RefuseArguments(d *agent.Definition, c run.Call, problem error, dec Decision) Gate {
	fields := map[string]any{"Tool": c.Name, "Problem": problem.Error()}
	return refuseCall(c, run.WhyInvalidArguments, d.Word(agent.WordInvalidArguments, fields), dec)
}

// ResultEnd returns the index behind the result at i and the media that came with it.
func ResultEnd(all []run.Message, i int) int {
	j := i + 1
	for ; j < len(all) && all[j].Source.SameEvent(all[i].Source); j++ {
		if _, ok := all[j].Block.(run.Media); !ok {
			break
		}
	}
	return j
}

// checkArguments validates a call's arguments. If the definition says so, it does not validate arguments for services
// once the interactions are exceeded (presets 2, Limits).
func checkArguments(d *agent.Definition, s *run.AgentState, t agent.ToolSpec, c run.Call, valid agent.Validator) error {
	unchecked := t.AnsweredLater() && d.Limits.Validators == agent.ValidatorsNotExhausted &&
		s.Interactions.Current > s.Interactions.Max
	if unchecked && len(c.Input) > 0 && c.Input[0] == '{' { // an event carries an object, whatever is in it
		return nil
	}
	return agent.ValidArguments(valid, t, c.Input)
}

// Hints returns what guards tell the model in the next request only: that all calls of the newest rounds failed, and
// which tools are no longer offered. Each is told once.
func Hints(d *agent.Definition, s *run.AgentState) []string {
	r := roundStreaks(d, s)
	var said []string
	if isOverLimit(d, r, failedRounds) {
		said = append(said, d.Word(agent.WordAllFailed, map[string]any{"Rounds": d.Guards.FailedRounds}))
	}
	for _, k := range r {
		tool, ok := strings.CutPrefix(k.Name, failingTool)
		if ok && isOverLimit(d, r, k.Name) && !isOverLimit(d, streaksOf(s), k.Name) {
			said = append(said, d.Word(agent.WordToolWithdrawn, map[string]any{"Tool": agent.ModelName(tool), "Times": k.Times}))
		}
	}
	return said
}

// gateGuards returns the verdict g on a call of the newest round, or the refusal of a guard. It does not touch calls
// that people were asked about or have approved.
func gateGuards(d *agent.Definition, s *run.AgentState, c run.Call, g Gate) Gate {
	switch {
	case c.Status != run.StatusNew || c.Inference != s.Round.Inference || !g.Run && g.Suspend == nil && g.Block == nil:
		return g
	case isOverLimit(d, streaksOf(s), failingTool+c.Tool):
		fields := map[string]any{"Tool": c.Name, "Times": streaksOf(s).times(failingTool + c.Tool)}
		return refuseCall(c, run.WhyOutOfScope, d.Word(agent.WordWithdrawnCall, fields), g.Rule)
	case c.Repeats != "" && g.Run && g.Claim == nil:
		return refuseCall(c, run.WhyDuplicate,
			d.Word(agent.WordDuplicateCall, map[string]any{"Tool": c.Name, "Call": c.Repeats}), g.Rule)
	default:
		return g
	}
}

// Reminder returns what the next request says, beside the results, about failed calls of the newest inference. "" means
// nothing. The text is in that request only.
func Reminder(d *agent.Definition, s *run.AgentState) string {
	if !d.RemindsOfFailures() || s.Round.Inference != s.Prior+s.Inferences {
		return ""
	}
	var texts []string
	for _, c := range modelCalls(s) {
		if c.Status != run.StatusFailed || c.Reason == run.WhyAwaiting { // people's answer tells the model more
			continue
		}
		text, fields := "", map[string]any{"Tool": c.Name, "Format": CallFormat(d)}
		switch {
		case c.Reason == run.WhyUnknownTool:
			fields["Tools"] = strings.Join(run.Map(Offered(d, s, Action{}), ToolLine), "\n")
			text = d.Word(agent.WordUnknownTool, fields)
		case c.Result != nil: // a call that has failed has one
			fields["Error"] = agent.Bounded(c.Result.Content)
			text = d.Word(agent.WordFailedTool, fields)
		}
		if len(texts) == 0 || texts[len(texts)-1] != text {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// textCallCorrection tells the model why a text with a tool tag holds no call.
func textCallCorrection(d *agent.Definition, problem *TextCallError, text string) *run.Correction {
	content := agent.Bounded(ReadToolText(text).Body)
	if problem.Field != "" {
		fields := map[string]any{"Field": problem.Field, "Content": content, "Format": CallFormat(d)}
		return d.Refused(KindMissingField, problem.Problem, d.Word(agent.WordMissingField, fields))
	}
	fields := map[string]any{"Error": problem.Problem, "Content": content, "Format": CallFormat(d)}
	return d.Refused(KindMalformed, problem.Problem, d.Word(agent.WordMalformed, fields))
}
