package teeth

var defences = []Mutation{
	{
		Name: "no-claim", Of: Defence, Takes: "no call needs a claim",
		Edits: []Edit{{"pkg/agent/call.go", `	return c.Effect == EffectNonIdempotent || c.Grant != nil || c.Service
`, `	return !tooth("no-claim") && (c.Effect == EffectNonIdempotent || c.Grant != nil || c.Service)
`}},
		Cases: []Case{{Scenario: "teeth-pay", With: "F4@tool.Call c1", Wants: "executed.payments.send: got 2, want at most 1"}},
	},
	{
		Name: "no-fence", Of: Defence, Takes: "an entry is written over whatever has its sequence",
		Edits: []Edit{{journalFile, `Item: Item{Key: key, Body: body}, If: []Cond{{Op: ItemAbsent}}}}
`, `Item: Item{Key: key, Body: body}, If: either("no-fence", []Cond(nil), []Cond{{Op: ItemAbsent}})}}
`}},
		Cases: []Case{{Scenario: "cancel-during-tool", Wants: `reason: got absent, want "cancelled"`}},
	},
	{
		Name: "no-reread", Of: Defence, Takes: "after an uncertain claim nobody looks whose writer id it has",
		Edits: []Edit{{planFile, `	if c.Status == agent.StatusRunning && c.Claim != r.inv.Writer {
`, `	if c.Status == agent.StatusRunning && (c.Claim != r.inv.Writer || tooth("no-reread")) {
`}},
		Cases: []Case{
			{Scenario: "teeth-pay", With: "F2@table.Write ^J#0000000002", Wants: "outcome: got people had to say 1 times what became of a call"},
		},
	},
	{
		Name: "no-look", Of: Defence, Takes: "the waiter does not look into the inbox once it has stored its token",
		Edits: []Edit{{outsideFile, `	return w.Journal.SlotTaken(ctx, t.Tenant, t.Run, h.Drained+1)
`, `	if tooth("no-look") {
		return false, nil
	}
	return w.Journal.SlotTaken(ctx, t.Tenant, t.Run, h.Drained+1)
`}},
		Cases: []Case{{Scenario: "approve", With: "F3@table.Write ^HEAD", Wants: "only a sweep could move it"}},
	},
	{
		Name: "no-sweeper", Of: Defence, Takes: "nothing is ever repaired",
		Edits: []Edit{{sweepFile, `	s := &l.State
	if s.Status == agent.RunDone {
		r, err := sw.stopLeftover(ctx, s, s.Owner)
`, `	s := &l.State
	if tooth("no-sweeper") {
		return RepairNone, nil
	}
	if s.Status == agent.RunDone {
		r, err := sw.stopLeftover(ctx, s, s.Owner)
`}},
		Cases: []Case{
			{Scenario: "teeth-unheard", With: "approve/lost@table.Get ^A, F4@table.Write ^A+K#", Wants: "after 5 sweeps, want a run that a sweep moves"},
			{Test: "TestRule14Sweeper/never_started", Why: "a client that is gone after F4 at a start", Wants: `expected: "started"`},
		},
	},
	{
		Name: "seen-apart", Of: Defence, Takes: "a message counts as seen once it is drained, before the reply to it is committed",
		Edits: []Edit{{"pkg/agent/apply.go", `		s.say(RoleUser, q.block, 0, q.source)
`, `		s.say(RoleUser, q.block, either[int64]("seen-apart", 1, 0), q.source)
`}},
		Cases: []Case{{Scenario: "message-parked", Wants: "messages[3].seenCount: got 1, want 0"}},
	},
	{
		Name: "digest-unchecked", Of: Defence, Takes: "an approved call runs though it is not the action that was approved any more",
		Edits: []Edit{{"pkg/agent/gate.go", `	if ActionDigest(d, s, c, t, dec) != c.Grant.Digest {
`, `	if ActionDigest(d, s, c, t, dec) != c.Grant.Digest && !tooth("digest-unchecked") {
`}},
		Cases: []Case{{Scenario: "teeth-digest", Wants: "calls[0].executions: got 1, want 0"}},
	},
	{
		Name: "expiry-unchecked", Of: Defence, Takes: "a request is decided after its time",
		Edits: []Edit{{deskFile, `	if !now.Before(a.ExpiresAt) {
		return Approval{}, false, fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
`, `	if !now.Before(a.ExpiresAt) && !tooth("expiry-unchecked") {
		return Approval{}, false, fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
`}, {itemFile, `	op.If = append(op.If, store.Cond{Attr: "expires", Op: store.Above, Value: store.Num(now.UnixMilli())})
	return op, err
`, `	op.If = append(op.If, store.Cond{Attr: "expires", Op: store.Above, Value: either("expiry-unchecked", store.Num(0), store.Num(now.UnixMilli()))})
	return op, err
`}},
		Cases: []Case{{Scenario: "teeth-expiry", Wants: "approve: got taken, want refused"}},
	},
	{
		Name: "grant-outlives", Of: Defence, Takes: "an approval is claimed under after its time",
		Edits: []Edit{{"pkg/agent/gate.go", `	if !c.Grant.Consumed && !now.Before(c.Grant.Expires) {
`, `	if !c.Grant.Consumed && !now.Before(c.Grant.Expires) && !tooth("grant-outlives") {
`}, {itemFile, `			{Attr: "expires", Op: store.Above, Value: store.Num(now.UnixMilli())},
`, `			{Attr: "expires", Op: store.Above, Value: either("grant-outlives", store.Num(0), store.Num(now.UnixMilli()))},
`}},
		Cases: []Case{{Scenario: "teeth-grant", Wants: `calls[0].status: got "succeeded", want "failed"`}},
	},
	{
		Name: "duplicate-accepted", Of: Defence, Takes: "an input has no marker, so that sending it again is another",
		Edits: []Edit{{"pkg/agent/store/inbox.go", `	if id != "" {
		marker = len(ops)
`, `	if id != "" && !tooth("duplicate-accepted") {
		marker = len(ops)
`}},
		Cases: []Case{{Scenario: "message-parked", With: "F4@table.Write K#", Wants: `messages[4]: got {"role":"user"`}},
	},
	{
		Name: "cancel-without-entry", Of: Defence, Takes: "a cancel stops the execution and writes no entry",
		Edits: []Edit{{outsideFile, `	if err := c.commitOutside(ctx, l.State, d, def); err != nil {
`, `	if tooth("cancel-without-entry") {
		return l.State, c.stop(ctx, &l.State)
	}
	if err := c.commitOutside(ctx, l.State, d, def); err != nil {
`}},
		Cases: []Case{{Scenario: "cancel-parked", Wants: `status: got "waiting", want "done"`}},
	},
	{
		Name: "hint-trusted", Of: Defence, Takes: "a warm state is believed without a read",
		Edits: []Edit{{journalFile, `	l, err := j.loadFrom(ctx, tenant, run, known, whole)
`, `	if tooth("hint-trusted") {
		return Loaded{State: known.state}, nil
	}
	l, err := j.loadFrom(ctx, tenant, run, known, whole)
`}},
		Cases: []Case{{Scenario: "approve", With: "warm", Wants: "nothing that could move it"}},
	},
	{
		Name: "cache-stays", Of: Defence, Takes: "an entry is warm before its put is confirmed, and stays so where that fails",
		Edits: []Edit{unchecked, {journalFile, `	if err := j.table.Write(ctx, append(ops, guards...)...); err != nil {
		j.cache.drop(after.Tenant, after.Run)
`, `	if tooth("cache-stays") {
		j.cache.put(warm{after, body})
	}
	if err := j.table.Write(ctx, append(ops, guards...)...); err != nil {
		if !tooth("cache-stays") {
			j.cache.drop(after.Tenant, after.Run)
		}
`}},
		Cases: []Case{{Scenario: "approve", With: "warm, F1@table.Write ^J#0000000000", Wants: "the journal has a gap"}},
	},
}
