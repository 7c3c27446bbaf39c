package run_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// TestWalk goes through every reachable state of some small runs, or the first of them (walkLimit), and proves of each
// that the invariants hold, and of all together that they take every transition of the two tables.
func TestWalk(t *testing.T) {
	taken := &transitionsTaken{runs: map[[2]run.RunStatus]bool{}, calls: map[[2]run.CallStatus]bool{}}
	total := 0
	for _, w := range smallWorlds() {
		k := &explorer{t: t, w: &w, taken: taken, ids: map[string]int{}}
		k.run()
		k.everyStateCanEnd()
		t.Logf("%s: %d states, %d of them done, %d transitions", w.name, len(k.nodes), k.done, k.transitions)
		require.NotZero(t, k.done, w.name)
		total += len(k.nodes)
	}
	t.Logf("%d states in all", total)
	taken.requireTheTables(t)
}

// node is one reachable state, with what the test itself has counted on the way there.
type node struct {
	state run.AgentState
	seen  []int64 // seenCount of each message, counted one by one
	path  []string
	next  []int // states that follow without anybody ending the run from outside
}

type explorer struct {
	t           *testing.T
	w           *world
	taken       *transitionsTaken
	nodes       []*node
	ids         map[string]int
	done        int
	transitions int
	walked      int // nodes that the walk went on from
}

// walkLimit is how many states of a run the walk goes on from where COUNTERSIGN_LONG is not set: all, for many runs.
const walkLimit = 600

func (k *explorer) run() {
	k.visit(&node{})
	whole := os.Getenv("COUNTERSIGN_LONG") != ""
	for i := 0; i < len(k.nodes) && (whole || i < walkLimit); i++ {
		k.walked = i + 1
		n := k.nodes[i]
		for _, st := range k.w.steps(&n.state) {
			k.transitions++
			id := k.take(n, st)
			if !st.forced {
				n.next = append(n.next, id)
			}
		}
	}
}

// visit returns the number of n's state and looks at it if it is new.
func (k *explorer) visit(n *node) int {
	key := walkKey(&n.state)
	if id, ok := k.ids[key]; ok {
		return id
	}
	id := len(k.nodes)
	k.ids[key] = id
	k.nodes = append(k.nodes, n)
	if n.state.Status != "" {
		k.check(n)
	}
	return id
}

// take commits one entry, event by event.
func (k *explorer) take(from *node, st step) int {
	d := run.NewDraft(from.state, st.writer, worldTime(from.state.Entries))
	seen := from.seen
	for _, e := range st.events {
		before := d.State
		err := d.Add(e)
		if err != nil {
			k.failf(from, st, "%v", err)
		}
		k.taken.observe(before, d.State)
		if err := sameOnceSettled(&before, &d.State, e); err != nil {
			k.failf(from, st, "%v", err)
		}
		if again, err := run.Apply(d.State, e); err != nil || walkKey(&again) != walkKey(&d.State) {
			k.failf(from, st, "%s applied twice: %v", run.EventType(e), err)
		}
		seen = recount(seen, &before, &d.State, e)
	}
	if err := seenAs(&d.State, seen); err != nil {
		k.failf(from, st, "%v", err)
	}
	n := &node{state: d.Committed(), seen: seen, path: append(slices.Clip(from.path), st.name)}
	return k.visit(n)
}

func (k *explorer) failf(n *node, st step, format string, args ...any) {
	k.t.Helper()
	k.t.Fatalf("%s: after %s: %s: %s", k.w.name, strings.Join(n.path, ", "), st.name, fmt.Sprintf(format, args...))
}

// recount is seenCount the slow way: a successful inference adds one to every message there is; what the model then
// says has been seen once, what a user or a tool says, and what is said in its name, not at all.
func recount(seen []int64, before, after *run.AgentState, e run.Event) []int64 {
	static := ""
	switch e := e.(type) {
	case run.Replied:
		static = e.Static
	case run.Finished:
		static = e.Static
	case run.Synthesised:
		static = e.Static
	}
	out := slices.Clone(seen)
	if built, ok := e.(run.ContextBuilt); ok && !before.Built { // in front of everything
		return append(run.Map(built.Messages, func(m run.BuiltMessage) int64 { return m.Seen }), seen...)
	}
	if after.EvictedMessages > before.EvictedMessages && before.Status != "" { // what left is counted no more
		return out[after.EvictedMessages-before.EvictedMessages:]
	}
	if after.Inferences > before.Inferences {
		for i := range out {
			out[i]++
		}
	}
	for _, m := range after.Messages.All()[before.Messages.Len():] {
		if m.Role == run.RoleAssistant && (static == "" || m.Block != run.Text{Text: static}) {
			out = append(out, 1)
		} else {
			out = append(out, 0)
		}
	}
	return out
}

// sameOnceSettled: what has ended stays as it ended, and a tool is entered only by a call that was new or resuming.
func sameOnceSettled(before, after *run.AgentState, e run.Event) error {
	if before.Status == run.RunDone && after.Status != run.RunDone {
		return fmt.Errorf("a run that was done is %s", after.Status)
	}
	for _, b := range before.Calls() {
		a, ok := after.Call(b.ID)
		if !ok {
			return fmt.Errorf("call %s is gone", b.ID)
		}
		if !b.Open() && (a.Status != b.Status || a.Executions != b.Executions || a.Result.Content != b.Result.Content) {
			return fmt.Errorf("call %s was %s and is %s", b.ID, b.Status, a.Status)
		}
		if a.Executions > b.Executions {
			if lacksTool(before, b) {
				return fmt.Errorf("call %s was entered though the run has lost its tool", b.ID)
			}
			if err := mayEnter(b, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func mayEnter(b run.Call, e run.Event) error {
	claim, claimed := e.(run.CallClaimed)
	f, finished := e.(run.CallFinished)
	if asked, ok := e.(run.CallSuspended); ok {
		finished, f.Ran = true, asked.Ran
	}
	switch {
	case b.Status != run.StatusNew && b.Status != run.StatusResuming:
		return fmt.Errorf("call %s was entered while %s", b.ID, b.Status)
	case b.NeedsClaim() && !claimed:
		return fmt.Errorf("call %s was entered without a claim", b.ID)
	case !claimed && (!finished || !f.Ran):
		return fmt.Errorf("call %s was entered by %s", b.ID, run.EventType(e))
	case (b.Tool == "wire" || b.Tool == "peek" || b.Tool == "offer") && b.Grant == nil && (!claimed || claim.Under == ""):
		return fmt.Errorf("call %s of %s was entered without an approval", b.ID, b.Tool)
	}
	return nil
}

// check proves the invariants of one state.
func (k *explorer) check(n *node) {
	k.t.Helper()
	s := &n.state
	if s.Status == run.RunDone {
		k.done++
	}
	for _, err := range []error{wellFormed(s), childrenHold(&k.w.def, s), k.nextFits(s)} {
		if err != nil {
			k.t.Fatalf("%s: after %s: %v", k.w.name, strings.Join(n.path, ", "), err)
		}
	}
}

func seenAs(s *run.AgentState, seen []int64) error {
	unseen := 0
	for i, m := range s.Messages.All() {
		got := m.Seen(s.Inferences)
		if got != seen[i] || got < 0 {
			return fmt.Errorf("message %d has seenCount %d, counted %d", i, got, seen[i])
		}
		if m.Role == run.RoleUser && got == 0 {
			unseen++
		}
	}
	if len(seen) != s.Messages.Len() || unseen != s.Unseen {
		return fmt.Errorf("%d messages and %d unseen, counted %d and %d", s.Messages.Len(), s.Unseen, len(seen), unseen)
	}
	return nil
}

// wellFormed is what holds in every state that has started, whatever came before. The fuzz targets use it, too.
func wellFormed(s *run.AgentState) error {
	results, err := talk(s)
	if err != nil {
		return err
	}
	for _, c := range s.Calls() {
		if evictedWhole(s, c) { // its result left with it
			results[c.ID]++
		}
		if err := callHolds(s, c, results[c.ID]); err != nil {
			return fmt.Errorf("call %s, %s: %w", c.ID, c.Status, err)
		}
	}
	if err := permitsHold(s); err != nil {
		return err
	}
	if s.Status == run.RunWaiting && (!s.AwaitsAnyone() || s.EarliestExpiry().IsZero()) {
		return fmt.Errorf("the run waits for nobody, or for ever")
	}
	if !s.Status.Valid() || s.Status == run.RunRunning && s.Reason != "" || s.Status != run.RunRunning && s.Reason == "" {
		return fmt.Errorf("the run is %q because of %q", s.Status, s.Reason)
	}
	asked := len(s.OpenRequests()) > 0 && s.Wait != run.WaitAllSuspended
	if len(s.Queued) > 0 && !asked && !slices.ContainsFunc(s.Live, run.Call.Open) && !s.Plan.Working() {
		return fmt.Errorf("%d blocks of users are held back for nothing", len(s.Queued))
	}
	if err := verdictHolds(s); err != nil {
		return err
	}
	if err := stateHolds(s); err != nil {
		return err
	}
	for _, c := range s.Settled.All() {
		if c.Open() {
			return fmt.Errorf("call %s is %s and filed as settled", c.ID, c.Status)
		}
	}
	return nil
}

// evictedWhole reports whether a call has left the conversation.
func evictedWhole(s *run.AgentState, c run.Call) bool {
	return s.EvictedMessages > 0 && !c.Open() && c.Result.Shown && !slices.ContainsFunc(s.Messages.All(), func(m run.Message) bool {
		switch b := m.Block.(type) {
		case run.ToolUse:
			return b.ID == c.ID
		case run.ToolResult:
			return b.ID == c.ID
		default:
			return false
		}
	})
}

// stateHolds: the shared state is an object in canonical form.
func stateHolds(s *run.AgentState) error {
	canonical, err := run.ApplyPatches(s.Shared, nil)
	if err != nil || string(canonical) != string(s.SharedState()) {
		return fmt.Errorf("the state is no object in canonical form: %w", err)
	}
	return nil
}

// permitsHold: a request is about calls that failed for it, a tool is in it once, and while somebody owes it a word the
// model is not told; a call that ran under a grant of its tool ran under one that people gave.
func permitsHold(s *run.AgentState) error {
	for _, r := range s.Permissions.Asked {
		tools := map[string]bool{}
		for _, t := range r.Tools {
			if tools[t.Tool] || len(t.Calls) == 0 || len(t.Digests) == 0 {
				return fmt.Errorf("request %s asks %v", r.Approval, t)
			}
			tools[t.Tool] = true
			for _, id := range t.Calls {
				if c, _ := s.Call(id); c.Request != r.Approval || c.Tool != t.Tool || s.Status != run.RunDone && c.Status != run.StatusFailed {
					return fmt.Errorf("request %s is about call %s, %s", r.Approval, id, c.Status)
				}
			}
		}
	}
	if len(s.Permissions.Asked) > 0 && s.Reason == run.ReasonNaturalEnd {
		return fmt.Errorf("the run ended while a permission was requested")
	}
	for _, c := range s.Calls() {
		if c.Inference > s.Prior && c.Grant != nil && c.Grant.Tool && !slices.ContainsFunc(s.Permissions.Tools, func(p run.ToolPermit) bool {
			return p.Tool == c.Tool && !p.Denied && p.Approval == c.Grant.Approval && slices.Contains(p.Digests, c.Grant.Digest)
		}) {
			return fmt.Errorf("call %s ran under a grant that nobody gave", c.ID)
		}
	}
	return nil
}

// verdictHolds: what was refused is no output, a correction that is in the conversation has not been seen while it is
// owed, and only a forced summary is not counted.
func verdictHolds(s *run.AgentState) error {
	c := s.Correction
	switch {
	case c != nil && s.Reason == run.ReasonNaturalEnd:
		return fmt.Errorf("the run ended with what was refused: %s", c.Text)
	case c != nil && c.Lifecycle != "" && !c.Ephemeral && s.Unseen == 0:
		return fmt.Errorf("nobody will be told: %s", c.Text)
	case c != nil && s.Wait != run.WaitAllSuspended && slices.ContainsFunc(s.Live, run.Call.Open):
		return fmt.Errorf("calls are open behind a refused reply")
	case int64(s.Interactions.Current) > s.Inferences:
		return fmt.Errorf("%d interactions in %d inferences", s.Interactions.Current, s.Inferences)
	}
	return nil
}

// talk counts each call's results, and wants every one behind its call and every message from a place of its own.
func talk(s *run.AgentState) (map[string]int, error) {
	uses, results, sources := map[string]bool{}, map[string]int{}, map[run.Source]bool{}
	for i, m := range s.Messages.All() {
		if sources[m.Source] {
			return nil, fmt.Errorf("message %d comes from %v, as another one does", i, m.Source)
		}
		sources[m.Source] = true
		if m.Seen(s.Inferences) < 0 {
			return nil, fmt.Errorf("message %d has seenCount %d", i, m.Seen(s.Inferences))
		}
		switch b := m.Block.(type) {
		case run.ToolUse:
			uses[b.ID] = true
		case run.ToolResult:
			if results[b.ID]++; !uses[b.ID] {
				return nil, fmt.Errorf("message %d is a result of %s, which nobody called", i, b.ID)
			}
		}
	}
	return results, nil
}

// stepOf reports whether a call is one of the run's own plan, and not of one before it.
func stepOf(s *run.AgentState, c run.Call) bool {
	return slices.ContainsFunc(s.Plan.Uses, func(u run.PlanUse) bool { return u.ID == c.ID })
}

func callHolds(s *run.AgentState, c run.Call, results int) error {
	switch {
	case !c.Status.Valid():
		return fmt.Errorf("no such status")
	case results > 1:
		return fmt.Errorf("%d results", results)
	case c.Open() == (c.Result != nil):
		return fmt.Errorf("open %v with result %v", c.Open(), c.Result)
	case c.Result != nil && c.Result.Shown != (results == 1):
		return fmt.Errorf("shown %v, %d results", c.Result.Shown, results)
	case s.Status == run.RunDone && results != 1 && (results != 0 || c.Step == 0 || s.Plan.Stage == run.PlanAbandoned && stepOf(s, c)): // what a plan has done is not said
		return fmt.Errorf("the run is done and the call has %d results", results)
	case (c.Wait != nil) != (c.Status == run.StatusSuspended):
		return fmt.Errorf("wait %v", c.Wait)
	case c.Wait != nil && (c.Wait.Expires.IsZero() || (c.Wait.Approval == "") != (c.Wait.For == run.ForAnswer)):
		return fmt.Errorf("nobody can see the wait, or it never expires: %v", *c.Wait)
	case c.Wait != nil && (c.Wait.For == run.ForInput) != (c.Ticket != nil && c.Resume == nil) && c.Wait.For != run.ForOutcome:
		return fmt.Errorf("waits for %s with ticket %v and answer %s", c.Wait.For, c.Ticket, c.Resume)
	case c.Status == run.StatusResuming && c.Ticket != nil && c.Resume == nil:
		return fmt.Errorf("it resumes and what it had asked is gone") // an orphan of seed 001, 3.5
	case c.Resume != nil && c.Ticket == nil:
		return fmt.Errorf("an answer %s to nothing", c.Resume)
	case c.Claim != "" && c.Status != run.StatusRunning:
		return fmt.Errorf("claimed by %s", c.Claim)
	case c.Executions < 0:
		return fmt.Errorf("%d executions", c.Executions)
	case (c.Reason != "") != (c.Status == run.StatusFailed || c.Status == run.StatusCancelled):
		return fmt.Errorf("reason %q", c.Reason)
	}
	return nil
}

// nextFits: when the model is asked, every call has its one result; when the run waits, it waits for somebody; when it
// is parked, nothing else is owed.
func (k *explorer) nextFits(s *run.AgentState) error {
	a := policy.Next(&k.w.def, s)
	if (a.Kind == policy.ActDone) != (s.Status == run.RunDone) {
		return fmt.Errorf("next is %s while the run is %s", a.Kind, s.Status)
	}
	if len(s.Permissions.Asked) > 0 && a.Kind == policy.ActInfer {
		return fmt.Errorf("the model is asked while a permission is requested")
	}
	switch a.Kind {
	case policy.ActInfer:
		if s.Ending != "" {
			return fmt.Errorf("asked for %s though the run is to end as %s", a.Lifecycle, s.Ending)
		}
		return answered(&k.w.def, s, a)
	case policy.ActEnd:
		closed := func(c run.Call) bool { return c.Status == run.StatusNew && s.Ending == run.ReasonPluginRequested } // a plugin ends the run in front of it
		if open := slices.ContainsFunc(s.Live, func(c run.Call) bool { return c.Open() && !closed(c) }); open && a.End.Reason != run.ReasonError {
			return fmt.Errorf("ends as %s while calls are open", a.End.Reason)
		}
		// What a run began with was judged under its own definition, and a run that continues one says something first.
		if s.Inferences > 0 && a.End.Reason == run.ReasonNaturalEnd && k.w.def.Output.Format == agent.OutputJSON && worldFits(a.End.Output) != nil {
			return fmt.Errorf("ends with %s", a.End.Output)
		}
	case policy.ActTools:
		if s.Status == run.RunWaiting || len(a.Calls) == 0 {
			return fmt.Errorf("next is to run %v while the run is %s", a.Calls, s.Status)
		}
	case policy.ActWait:
		if a.Expires.IsZero() {
			return fmt.Errorf("next is to wait for ever")
		}
	}
	return resting(&k.w.def, s, a)
}

// resting: where the run waits or asks the model, what is open waits for somebody, or for the others that resume
// counts.
func resting(d *agent.Definition, s *run.AgentState, a policy.Action) error {
	if a.Kind != policy.ActInfer && a.Kind != policy.ActWait {
		return nil
	}
	newest := int64(0)
	for _, c := range s.Live {
		newest = max(newest, c.Inference)
	}
	for _, c := range s.Live {
		counted := func(o run.Call) bool {
			return o.Status == run.StatusSuspended && (d.Resume == run.ResumeBatchAll || o.Inference == newest)
		}
		switch {
		case !c.Open() || c.Status == run.StatusSuspended:
		case c.Status == run.StatusResuming && d.Resume != run.ResumeEach && slices.ContainsFunc(s.Live, counted):
		case c.Status == run.StatusNew && a.Kind == policy.ActWait && d.Wait == run.WaitAnyExternal && d.Executor == agent.ExecutorSequential:
		case c.Status == run.StatusNew && a.Kind == policy.ActWait && s.Ending == run.ReasonPluginRequested: // it is closed when the run ends, which waits for the others
		default:
			return fmt.Errorf("next is %s while call %s is %s", a.Kind, c.ID, c.Status)
		}
	}
	return nil
}

// answered wants a request that every provider takes: each call with exactly one result, directly behind its turn and
// before anything else that is said. Only calls that wait have one that is not in the conversation, and only under
// all_suspended. What is in the conversation is in the request, with its seenCount.
func answered(d *agent.Definition, s *run.AgentState, a policy.Action) error {
	if err := resting(d, s, a); err != nil {
		return err
	}
	stored, err := talk(s)
	if err != nil {
		return err
	}
	if a.Lifecycle.ForPlan() {
		return quotedWell(prompt.BuildPlanRequest(d, s, a, "", nil))
	}
	if left, ok := prompt.LeavesPlan(s, a); ok {
		n, err := run.Apply(*s, left)
		if err != nil {
			return err
		}
		s = &n
		if stored, err = talk(s); err != nil {
			return err
		}
	}
	r, _ := prompt.BuildRequest(d, s, a, "")
	if err := takenByProviders(r.Messages); err != nil {
		return err
	}
	said := map[string]int{}
	for _, m := range s.Messages.All() {
		said[fmt.Sprint(m)]++
	}
	for _, m := range r.Messages {
		if said[fmt.Sprint(m)]--; m.Source != (run.Source{}) && said[fmt.Sprint(m)] < 0 {
			return fmt.Errorf("the request has %v too often", m)
		}
		res, ok := m.Block.(run.ToolResult)
		c, _ := s.Call(res.ID)
		if ok && (stored[res.ID] == 0) != (d.Wait == run.WaitAllSuspended && c.Open()) {
			return fmt.Errorf("call %s is %s and has %d results", c.ID, c.Status, stored[c.ID])
		}
		if ok && stored[res.ID] == 0 && m.Seen(s.Inferences) != 0 {
			return fmt.Errorf("a placeholder has been seen")
		}
	}
	for m, left := range said {
		if left > 0 {
			return fmt.Errorf("the request lacks %s", m)
		}
	}
	return nil
}

// quotedWell wants a request for a plan to be one that every provider takes: it begins with a user, ends with one, and
// has neither calls nor results.
func quotedWell(r agent.Request) error {
	if len(r.Messages) == 0 || r.Messages[0].Role != run.RoleUser || r.Messages[len(r.Messages)-1].Role != run.RoleUser {
		return fmt.Errorf("a request for the plan has %d messages and does not begin and end with a user", len(r.Messages))
	}
	for i, m := range r.Messages {
		switch m.Block.(type) {
		case run.Text, run.Media:
		default:
			return fmt.Errorf("message %d of a request for the plan is a %T", i, m.Block)
		}
	}
	if (len(r.Tools) > 0) != (r.Lifecycle == run.LifecycleRoute) {
		return fmt.Errorf("a request to %s has %d tools", r.Lifecycle, len(r.Tools))
	}
	return nil
}

// takenByProviders is what the strictest of them wants of calls and results.
func takenByProviders(messages []run.Message) error {
	owed, answering := map[string]bool{}, false
	var last run.Source
	for i, m := range messages {
		switch b := m.Block.(type) {
		case run.ToolUse:
			if answering && len(owed) > 0 || owed[b.ID] {
				return fmt.Errorf("message %d is a call, and others have no result yet", i)
			}
			owed[b.ID], answering = true, false
		case run.ToolResult:
			if !owed[b.ID] {
				return fmt.Errorf("message %d is a result of %s, which is not owed here", i, b.ID)
			}
			delete(owed, b.ID)
			answering, last = true, m.Source
		case run.Media:
			if len(owed) > 0 && (!answering || !m.Source.SameEvent(last)) {
				return fmt.Errorf("message %d stands between a call and its result", i)
			}
		default:
			if len(owed) > 0 && (answering || m.Role == run.RoleUser) {
				return fmt.Errorf("message %d stands between a call and its result", i)
			}
		}
	}
	if len(owed) > 0 {
		return fmt.Errorf("%d calls have no result", len(owed))
	}
	return nil
}

// everyEvent is one fact of each kind, about the run's first call and the next inbox slot.
func everyEvent(s *run.AgentState) []run.Event {
	id := "a"
	if calls := s.Calls(); len(calls) > 0 {
		id = calls[0].ID
	}
	slot := s.Drained + 1
	late := func(stage run.PlanStage) run.PlanFact {
		e := run.PlanFact{N: s.Plan.Facts + 1, Model: "m", Step: 1, Stage: stage}
		switch stage {
		case run.PlanDone:
			e.Text = "late"
		case run.PlanAbandoned:
			e.Why = "late"
		}
		return e
	}
	return []run.Event{
		run.RunStarted{Tenant: "other", Run: "r2", Owner: "x"},
		run.InputReceived{Slot: slot, Blocks: []run.UserBlock{{Block: run.Text{Text: "More."}}}},
		run.Decided{Slot: slot, Call: id, Approval: run.ApprovalID(s.Run, id, 1), Action: run.ActionApprove},
		run.Answered{Slot: slot, Call: id, Rerun: true}, run.Answered{Slot: slot, Call: id, Used: &run.ChildUsage{Requests: 1}}, run.CallClaimed{Call: id, Child: &run.Child{Run: "r2"}}, run.LateResult{Slot: slot, CallFinished: run.CallFinished{Call: id, Content: "late"}},
		run.LateSuspended{Slot: slot, Writer: "w1", CallSuspended: run.CallSuspended{Call: id, Ticket: &run.Ticket{}, Expires: worldEpoch}},
		run.Replied{Inference: s.Inferences + 1, Text: "more", Calls: []run.RepliedCall{{ID: "z", Name: "look"}}},
		run.CallClaimed{Call: id}, run.CallFinished{Call: id, Content: "again"}, run.CallFinished{Call: id, Ran: true, IsError: true},
		run.CallSuspended{Call: id, Approval: "a9", Expires: worldEpoch}, run.CallUnknown{Call: id, Approval: "a9", Expires: worldEpoch},
		run.CallCancelled{Call: id, Reason: run.WhyDenied}, run.Resumed{}, run.Parked{Expires: worldEpoch}, run.HandedOver{Owner: "x"},
		run.Remembered{Policy: "approvals", Value: json.RawMessage(`[{"tool":"look","value":true}]`)}, run.CallSuspended{Call: id, For: run.ForAnswer, Expires: worldEpoch},
		run.CallSuspended{Call: id, Approval: "a9", Expires: worldEpoch, For: run.ForInput, Ticket: &run.Ticket{}},
		run.DecisionKept{Slot: slot, Target: id, Action: run.ActionApprove}, run.DecisionDropped{Target: id},
		policy.CancelRun("user:eve", "note"), policy.Fail(run.CodeInternal, "x"), run.Finished{Reason: run.ReasonNaturalEnd}, run.ContextBuilt{},
		run.Hooked{N: s.Hooks + 1, Phase: run.PhaseRunEnd, Patches: []run.Patch{{Path: "/x", Value: []byte("1")}}}, run.Hooked{N: s.Hooks + 1, Phase: run.PhaseAfterTool, Call: id, Texts: []run.PluginText{{Text: "Hear!"}}},
		run.PermissionRequested{Approval: "a9", Expires: worldEpoch, Tools: []run.RequestedTool{{Tool: "wire", Name: "wire", Calls: []string{id}, Digests: []string{"d"}}}},
		run.PermissionAnswered{Approval: run.ApprovalID(s.Run, id, 1), Expired: true, Text: "late"}, run.CallPermitted{Call: id, Approval: "a9"},
		run.Planned{PlanFact: late(run.PlanDone)}, run.StepRouted{PlanFact: late(run.PlanSynthesis)}, run.Synthesised{PlanFact: late(run.PlanDone)},
		run.PlanLeft{PlanFact: late(run.PlanAbandoned)},
		run.Remembered{Policy: "listed", Value: json.RawMessage(`["look"]`)}, run.PermissionChecked{Inference: s.Round.Inference}, run.PermissionFailed{Message: "late"},
		run.Decided{Slot: slot, Approval: run.ApprovalID(s.Run, id, 1), Action: run.ActionDeny, Tools: []string{"wire", "peek"}},
		run.Evicted{Total: s.EvictedMessages + 1, Summary: "late"}, run.ContextFull{Left: 1, Of: 2},
	}
}

// everyStateCanEnd: from every state there is a way to the end on which nobody cancels or gives up, or to a state that
// the walk did not go on from.
func (k *explorer) everyStateCanEnd() {
	before := make([][]int, len(k.nodes))
	var ends []int
	for i, n := range k.nodes {
		for _, j := range n.next {
			before[j] = append(before[j], i)
		}
		if n.state.Status == run.RunDone || i >= k.walked {
			ends = append(ends, i)
		}
	}
	reached := map[int]bool{}
	for len(ends) > 0 {
		i := ends[len(ends)-1]
		ends = ends[:len(ends)-1]
		if !reached[i] {
			reached[i] = true
			ends = append(ends, before[i]...)
		}
	}
	for i, n := range k.nodes {
		if !reached[i] {
			k.t.Fatalf("%s: after %s: no way to the end", k.w.name, strings.Join(n.path, ", "))
		}
	}
}

// walkKey tells states apart by what decides their future. Sequences and times do not, nor does how a settled call came
// to its end, but for what was said of it.
func walkKey(s *run.AgentState) string {
	b := make([]byte, 0, 512)
	b = append(append(append(b, s.Status...), s.Reason...), s.Owner...)
	b = append(b, byte('0'+s.Inferences), byte('0'+s.Unseen), byte('0'+s.Interactions.Current), byte('0'+len(s.Queued)))
	b = strconv.AppendBool(strconv.AppendBool(strconv.AppendBool(b, s.Round.Committed), s.Built), s.Begun)
	b = append(append(b, s.Ending...), s.EndingDetail...)
	b = fmt.Appendf(b, "%v%v%v%d", s.Memory, s.Cut, s.Full, s.EvictedMessages)
	if p := &s.Plan; p.Stage != "" {
		b = fmt.Appendf(b, "%s%d%d%s", p.Stage, p.Unseen, p.Answered, p.Memory)
		for _, u := range p.Uses {
			b = append(b, u.ID...)
		}
	}
	b = strconv.AppendBool(append(b, s.Shared...), s.Broken != nil)
	b = fmt.Appendf(strconv.AppendBool(b, s.Listed), "%v", s.Servers)
	if s.Correction != nil {
		b = append(append(strconv.AppendBool(b, s.Correction.Ephemeral), s.Correction.Lifecycle...), s.Correction.Kind...)
	}
	for _, k := range s.Kept {
		b = append(append(append(append(b, k.Target...), k.Action...), k.By...), k.Result...)
	}
	for _, c := range s.Calls() {
		b = append(append(append(b, '|'), c.ID...), c.Status...)
		b = strconv.AppendBool(b, c.Result != nil && c.Result.Shown)
		if c.Open() {
			b = appendOpen(b, c)
		}
	}
	if s.Children.Begun > 0 {
		b = fmt.Appendf(b, "%v%d", s.Children, s.Usage.Total())
	}
	b = appendPermissions(b, &s.Permissions)
	for _, m := range s.Messages.All() {
		b = append(b, '|', m.Role[0])
		b = strconv.AppendInt(b, m.Base, 10)
		if r, ok := m.Block.(run.ToolResult); ok {
			b = append(b, r.ID...)
		}
	}
	return string(b)
}

func appendPermissions(b []byte, p *run.Permissions) []byte {
	for _, r := range p.Asked {
		b = append(append(b, '?'), r.Approval...)
		for _, t := range r.Tools {
			b = append(append(append(b, t.Tool...), t.Verdict...), ' ')
		}
	}
	for _, t := range p.Tools {
		b = append(append(b, '!'), t.Tool...)
		b = strconv.AppendBool(strconv.AppendBool(b, t.Denied), t.Used)
		b = append(b, t.Digests[0]...)
	}
	return append(b, p.Failed...)
}

func appendOpen(b []byte, c run.Call) []byte {
	b = append(append(append(b, c.Tool...), c.Input...), c.Claim...)
	b = append(b, byte('0'+c.Executions), byte('0'+c.Asks), byte('0'+c.Inference))
	if t, ok := policy.TicketOf(c); ok {
		b = append(append(append(b, t.Mode...), t.ID...), c.Resume...)
	}
	b = append(strconv.AppendBool(strconv.AppendBool(b, c.Gated), c.Hidden), c.Repeats...)
	if c.Wait != nil {
		b = append(b, c.Wait.For...)
	}
	if c.Grant != nil {
		b = append(strconv.AppendBool(b, c.Grant.Consumed), c.Grant.Digest...)
	}
	return b
}

// transitionsTaken collects the changes of status that the events of a walk make.
type transitionsTaken struct {
	runs  map[[2]run.RunStatus]bool
	calls map[[2]run.CallStatus]bool
}

func (a *transitionsTaken) observe(before, after run.AgentState) {
	a.runs[[2]run.RunStatus{before.Status, after.Status}] = true
	for _, c := range after.Calls() {
		was, _ := before.Call(c.ID)
		a.calls[[2]run.CallStatus{was.Status, c.Status}] = true
	}
}

// requireTheTables wants every transition of the tables to have been taken by itself. That no other is taken, Apply sees to.
func (a *transitionsTaken) requireTheTables(t *testing.T) {
	t.Helper()
	for _, one := range run.RunTransitions() {
		require.True(t, a.runs[[2]run.RunStatus{one.From, one.To}], "%v", one)
	}
	for _, one := range run.CallTransitions() {
		require.True(t, a.calls[[2]run.CallStatus{one.From, one.To}], "%v", one)
	}
}
