package teeth

import "slices"

// Mutations are all that there are: of each rule one at least, and then the defences.
func Mutations() []Mutation { return slices.Concat(rules, defences) }

// files that more than one mutation is of.
const (
	applyFile   = "pkg/agent/applycall.go"
	journalFile = "pkg/agent/store/journal.go"
	commitFile  = "pkg/agent/runtime/runtime.go"
	batchFile   = "pkg/agent/runtime/batch.go"
	planFile    = "pkg/agent/runtime/plan.go"
	routeFile   = "pkg/agent/runtime/route.go"
	outsideFile = "pkg/agent/runtime/outside.go"
	stepFile    = "pkg/agent/runtime/step.go"
	sweepFile   = "pkg/agent/runtime/sweep.go"
	itemFile    = "pkg/agent/approval/item.go"
	deskFile    = "pkg/agent/approval/desk.go"
)

var rules = []Mutation{
	{
		Name: "rule01-head-apart", Of: "rule 1", Takes: "a run's HEAD is written behind its first entry, not with it",
		Edits: []Edit{{journalFile, `	if movesHead(&before, &after) {
`, `	if movesHead(&before, &after) && !(tooth("rule01-head-apart") && before.Status == "") {
`}, {journalFile, `	j.cache.put(warm{after, body})
`, `	if tooth("rule01-head-apart") && before.Status == "" {
		if err := j.table.Write(ctx, headOp(&after)); err != nil {
			return err
		}
	}
	j.cache.put(warm{after, body})
`}},
		Cases: []Case{{Scenario: "message-during-inference", With: "F4@table.Write ^J#0000000000", Wants: "no such run"}},
	},
	{
		Name: "rule02-rebase", Of: "rule 2", Takes: "a reply that lost its sequence is committed at the next one",
		Edits: []Edit{{stepFile, `		if conflict(err) { // what the turn was planned on is gone
`, `		if conflict(err) && !tooth("rule02-rebase") { // what the turn was planned on is gone
`}, {stepFile, `	if t := *paid; t != nil && t.draft.Entry.Seq == l.State.Entries {
`, `	if t := *paid; t != nil && tooth("rule02-rebase") && t.draft.Entry.Seq != l.State.Entries {
		again := agent.NewDraft(l.State, inv.Writer, now)
		for _, e := range t.draft.Entry.Events {
			if said, ok := e.(agent.Replied); ok {
				said.Inference = l.State.Inferences + 1
				e = said
			}
			if err := again.Add(e); err != nil {
				return Route{}, err
			}
		}
		*paid = &turn{before: l.State, draft: again}
	}
	if t := *paid; t != nil && t.draft.Entry.Seq == l.State.Entries {
`}},
		Cases: []Case{{Scenario: "approve", With: "F6@table.Write ^J#0000000001", Wants: `calls[0].executions: got 0, want 1`}},
	},
	{
		Name: "rule02-gap", Of: "rule 2", Takes: "a fold goes on behind a gap",
		Edits: []Edit{{"pkg/agent/entry.go", `	if e.Seq != s.Entries {
`, `	if e.Seq != s.Entries && !tooth("rule02-gap") {
`}},
		Cases: []Case{{Test: "TestRule02ConflictMeansReload/a_journal_with_a_gap_fails_loudly", Why: "a writer that breaks the protocol: no fault makes a gap", Wants: "An error is expected but got nil"}},
	},
	{
		Name: "rule03-duplicate-sleeps", Of: "rule 3", Takes: "an input that was accepted before wakes nobody",
		Edits: []Edit{{outsideFile, `		return fmt.Errorf("send to run %s: %w", run, ErrRunFinished)
	}
`, `		return fmt.Errorf("send to run %s: %w", run, ErrRunFinished)
	}
	if got.Duplicate && tooth("rule03-duplicate-sleeps") {
		return nil
	}
`}},
		Cases: []Case{{Scenario: "message-parked", With: "F4@table.Write K#", Wants: "only a sweep could move it"}},
	},
	{
		Name: "rule04-inbox-stays-open", Of: "rule 4", Takes: "the entry that ends a run leaves its inbox open",
		Edits: []Edit{{journalFile, `	if after.Status == agent.RunDone {
`, `	if after.Status == agent.RunDone && !tooth("rule04-inbox-stays-open") {
`}},
		Cases: []Case{{Scenario: "teeth-last-word", Wants: `output: got "Bye.", want "Bye, Ben."`}},
	},
	{
		Name: "rule05-request-apart", Of: "rule 5", Takes: "the requests of a parking entry are written behind it, not with it",
		Edits: []Edit{{commitFile, `	if err := d.Snap(); err != nil {
		return err
	}
`, `	if err := d.Snap(); err != nil {
		return err
	}
	var behind []store.Op
	if tooth("rule05-request-apart") && d.State.Status == agent.RunWaiting {
		behind, guards = guards, nil
	}
`}, {commitFile, `	if p.Sink != nil {
		after := d.Committed()
`, `	if tooth("rule05-request-apart") && len(behind) > 0 {
		if err := p.Table.Write(ctx, behind...); err != nil {
			return err
		}
	}
	if p.Sink != nil {
		after := d.Committed()
`}},
		Cases: []Case{{Scenario: "approve", With: "F4@table.Write ^J#0000000002", Wants: "no such approval"}},
	},
	{
		Name: "rule06-slow-waiter", Of: "rule 6", Takes: "a waiter stores its token whatever later attempt has stored one",
		Edits: []Edit{{"pkg/agent/store/head.go", `{Attr: "attempt", Op: AtMost, Value: Num(c.Attempt)}`,
			`{Attr: "attempt", Op: AtMost, Value: either("rule06-slow-waiter", Num(1<<62), Num(c.Attempt))}`}},
		Cases: []Case{{Scenario: "approve", With: "F5@table.Write ^HEAD", Wants: `status: got "failed", want "succeeded"`}},
	},
	{
		Name: "rule07-unwoken-acts", Of: "rule 7", Takes: "any attempt of the owner goes on with a parked run",
		Edits: []Edit{{routeFile, `	case s.Status == agent.RunWaiting && i.Woken != s.WaitSeq:
`, `	case s.Status == agent.RunWaiting && i.Woken != s.WaitSeq && !tooth("rule07-unwoken-acts"):
`}},
		Cases: []Case{
			{Scenario: "approve", Wants: `checkpoints[3]: got "RunFinished", want "ToolResultsCommitted"`}, // it has parked a second time
		},
	},
	{
		Name: "rule08-decision-apart", Of: "rule 8", Takes: "a decision is recorded first and put into the inbox then",
		Edits: []Edit{{deskFile, `	got, err := d.Journal.Accept(ctx, a.Tenant, a.Run, r.Key, *fact, append([]store.Op{op}, grants...)...)
`, `	guards := append([]store.Op{op}, grants...)
	if tooth("rule08-decision-apart") {
		if err := d.Table.Write(ctx, op); err != nil {
			return Approval{}, false, written(err)
		}
		guards = grants
	}
	got, err := d.Journal.Accept(ctx, a.Tenant, a.Run, r.Key, *fact, guards...)
`}},
		Cases: []Case{{Scenario: "approve", With: "F4@table.Write ^A", Wants: `status: got "waiting", want "done"`}},
	},
	{
		Name: "rule08-expiry-wins", Of: "rule 8", Takes: "an expiry closes a request that somebody has decided",
		Edits: []Edit{{itemFile, `			Index: index(tenant, as), IndexSort: fmt.Sprintf("%013d#%s", w.Since.UnixMilli(), w.Approval),
		},
		If: []store.Cond{{Attr: "status", Op: store.Equal, Value: store.Str(string(Pending))}},
`, `			Index: index(tenant, as), IndexSort: fmt.Sprintf("%013d#%s", w.Since.UnixMilli(), w.Approval),
		},
		If: either("rule08-expiry-wins", []store.Cond(nil), []store.Cond{{Attr: "status", Op: store.Equal, Value: store.Str(string(Pending))}}),
`}},
		Cases: []Case{
			{Scenario: "teeth-arbiter", With: "approve@table.Write ^J#0000000003, F10/1@table.Query R#", Wants: "though somebody was told that they decided it"},
		},
	},
	{
		Name: "rule09-claim-of-execution", Of: "rule 9", Takes: "the writer id is the execution's name, so that a retry takes a dead claim for its own",
		Edits: []Edit{{"pkg/agent/lambdafn/handlers.go", `Writer: h.Ports.IDs.Writer(),`, `Writer: either("rule09-claim-of-execution", e.Name, h.Ports.IDs.Writer()),`}},
		Cases: []Case{{Scenario: "teeth-pay", With: "F4@tool.Call c1", Wants: "executed.payments.send: got 2, want at most 1"}},
	},
	{
		Name: "rule09-approval-stays", Of: "rule 9", Takes: "a claim does not use the approval up under which it is made",
		Edits: []Edit{{commitFile, `		if _, used := granted[c.ID]; c.Grant != nil && !c.Grant.Tool && !used {
`, `		if _, used := granted[c.ID]; c.Grant != nil && !c.Grant.Tool && !used && !tooth("rule09-approval-stays") {
`}},
		Cases: []Case{{Scenario: "approve", Wants: "which may be used again"}},
	},
	{
		Name: "rule10-orphan-runs", Of: "rule 10", Takes: "a call that another invocation has claimed is run again",
		Edits: []Edit{{planFile, `	if c.Service || c.Effect != agent.EffectNonIdempotent { // an event that goes out again has the id it had
`, `	if c.Service || c.Effect != agent.EffectNonIdempotent || tooth("rule10-orphan-runs") { // an event that goes out again has the id it had
`}},
		Cases: []Case{{Scenario: "teeth-pay", With: "F4@tool.Call c1", Wants: "executed.payments.send: got 2, want at most 1"}},
	},
	{
		Name: "rule10-late-lost", Of: "rule 10", Takes: "a claimant that comes too late with its result drops it",
		Edits: []Edit{{batchFile, `	if !f.claimed || f.late == nil {
`, `	if !f.claimed || f.late == nil || tooth("rule10-late-lost") {
`}},
		Cases: []Case{{Scenario: "teeth-pay", With: "F5/1@table.Write ^J#0000000002", Wants: "was learnt, and is nowhere on record"}},
	},
	{
		Name: "rule11-claimed-is-none", Of: "rule 11", Takes: "a cancel says of a claimed call that it had no effect",
		Edits: []Edit{{applyFile, `		if c.entered() {
`, `		if c.entered() && !tooth("rule11-claimed-is-none") {
`}},
		Cases: []Case{{Scenario: "cancel-during-tool", Wants: `calls[0].reason: got "cancelled", want "outcome_unknown"`}},
	},
	{
		Name: "rule12-anybody-owns", Of: "rule 12", Takes: "an execution goes on with a run that another one owns",
		Edits: []Edit{{routeFile, `	case s.Owner != i.Execution:
`, `	case s.Owner != i.Execution && !tooth("rule12-anybody-owns"):
`}},
		Cases: []Case{{Scenario: "approve", With: "event@model.Generate", Wants: "an execution that does not own the run was led to"}},
	},
	{
		Name: "rule13-former-ends", Of: "rule 13", Takes: "a former owner ends, though its successor may never have been started",
		Edits: []Edit{{routeFile, `	case s.Owner != i.Execution && s.FormerOwner == i.Execution:
`, `	case s.Owner != i.Execution && s.FormerOwner == i.Execution && !tooth("rule13-former-ends"):
`}},
		Cases: []Case{{Test: "TestRule13HandOverNamesTheSuccessorFirst", Why: "F2 or F4 at a hand-over, before which 750 entries are written", Wants: `Next:"done"`}},
	},
	{
		Name: "rule14-settled-is-well", Of: "rule 14", Takes: "the sweeper leaves a run alone whose token is used up",
		Edits: []Edit{{sweepFile, `	case errors.Is(err, ErrSettled) && !sw.LeaveWoken:
`, `	case errors.Is(err, ErrSettled) && !sw.LeaveWoken && !tooth("rule14-settled-is-well"):
`}},
		Cases: []Case{{Test: "TestRule14Sweeper/settled_and_still_so", Why: "an execution that runs on with a dead token, which no fault makes", Wants: "the token is dead"}},
	},
	{
		Name: "rule15-exclusive", Of: "rule 15", Takes: "a warm run is read from behind its newest known entry, whatever stands there",
		Edits: []Edit{{journalFile, `From: entrySK(max(0, w.state.Seq()))`, `From: entrySK(either("rule15-exclusive", w.state.Entries, max(0, w.state.Seq())))`}, unchecked},
		Cases: []Case{{Test: "TestRule15Cache/a_restored_table", Why: "a warm process, and a table that was restored", Wants: "planned from what is there"}},
	},
	{
		Name: "rule16-late-counted", Of: "rule 16", Takes: "the reply's entry drains what came while the model was asked",
		Edits: []Edit{{stepFile, `	reply.At = st.Clock.Now()
`, `	if tooth("rule16-late-counted") {
		late, err := st.Journal.Load(ctx, l.State.Tenant, l.State.Run)
		if err != nil {
			return nil, err
		}
		for _, fact := range late.Inbox {
			if agent.InboxSlot(fact) <= d.State.Drained {
				continue
			}
			if err := d.Add(fact); err != nil {
				return nil, err
			}
		}
	}
	reply.At = st.Clock.Now()
`}},
		Cases: []Case{{Scenario: "teeth-last-word", Wants: `inferences: got 1, want 2`}},
	},
}

// unchecked believes a warm state whatever the journal says of its newest entry.
var unchecked = Edit{journalFile, `		if r.Cursor == "" && f.known > 0 && (len(p.Items) == 0 || p.Items[0].SK != r.From) {
`, `		if r.Cursor == "" && f.known > 0 && !tooth("rule15-exclusive", "cache-stays") && (len(p.Items) == 0 || p.Items[0].SK != r.From) {
`}
