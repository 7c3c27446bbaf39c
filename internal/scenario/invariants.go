package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// The checks of this file hold under every fault and intervention (ARCHITECTURE.md, invariants). They compare the
// journal with the effect logs and the requests that the fakes saw, never with the product's own view alone.

// addViolation records a broken invariant, each once.
func (s *simulation) addViolation(invariant, got, want string) {
	f := Failure{Path: invariant, Got: got, Want: want}
	if !slices.Contains(s.violations, f) {
		s.violations = append(s.violations, f)
	}
}

// requestMark separates a reply's stop reason from the number of its request. Stop reasons with a meaning get no mark.
const requestMark = "~"

// meaningfulStops are the stop reasons that the product acts on (agent.CutText).
var meaningfulStops = []string{"length", "max_tokens", "content_filter", "content_filtered", "guardrail_intervened"}

// recordReply records a request, and marks its reply with the request's number.
func (s *simulation) recordReply(r agent.Request, reply agent.Reply) agent.Reply {
	messages := map[run.Source]bool{}
	for _, m := range r.Messages {
		messages[m.Source] = true
	}
	s.modelRequests = append(s.modelRequests, messages)
	if slices.Contains(meaningfulStops, reply.StopReason) {
		return reply
	}
	reply.StopReason += requestMark + strconv.Itoa(len(s.modelRequests)-1)
	return reply
}

// checkInvariants checks everything that must hold once all runs rest.
func (s *simulation) checkInvariants() {
	runs, err := s.loadAllRuns()
	if err != nil {
		s.addViolation("run", err.Error(), "a run that can be read")
		return
	}
	if s.scenario.publishes() {
		s.sendOutbox()
	}
	// If the only fault is a lost answer to a write, the invocation that claimed a call lives, and finds its claim by its
	// writer id (protocol rule 9).
	isAnswerLost := false
	if len(s.Interventions) == 0 && len(s.Faults) == 1 {
		c, _ := s.injector.Call(s.Faults[0].Call)
		isAnswerLost = s.Faults[0].Kind == fault.ErrorAfter && c.Port == fault.TableWrite
	}
	if isAnswerLost && len(s.crashRequests) > 0 {
		s.addViolation("outcome", fmt.Sprintf("people had to say %d times what became of a call", len(s.crashRequests)),
			"never: its claimant lives and knows")
	}
	for _, id := range s.acceptedDecisions {
		a, err := s.request(id)
		if err != nil || a.Status == approval.Expired || a.Status == approval.Pending {
			got := fmt.Sprintf("request %s is %s (%v), though somebody was told that they decided it", id, a.Status, err)
			s.addViolation("decisions", got, "decided")
		}
	}
	for _, rec := range runs {
		entries, err := s.entries(rec.State.Run)
		if err != nil {
			s.addViolation("journal", err.Error(), "a journal that can be read")
			continue
		}
		s.checkFold(rec, entries)
		s.checkAppliedOnce(rec, entries)
		s.checkSeenCounts(rec, entries)
		s.checkParkedOrDone(rec)
		s.checkEffectsOnce(rec)
		s.checkResultsRecorded(rec, entries)
		s.checkApprovalsConsumed(rec)
		s.checkPublished(rec, entries)
	}
}

// checkFold: the journal folds to the loaded state, and the head agrees with that state.
func (s *simulation) checkFold(rec recordedRun, entries []run.Entry) {
	st := &rec.State
	if st.From == nil {
		folded, err := run.Fold(run.AgentState{}, entries)
		if err != nil {
			s.addViolation("journal", err.Error(), "entries that fold")
			return
		}
		got, err1 := policy.View(&folded)
		want, err2 := policy.View(st)
		if err1 != nil || err2 != nil || !bytes.Equal(encode(got), encode(want)) {
			s.addViolation("journal", "a state that differs from the loaded one", "the same")
		}
	}
	h, err := s.head(st.Run)
	if err != nil {
		s.addViolation("head", err.Error(), "a view of the run")
		return
	}
	if h.Status != st.Status || h.Owner != st.Owner || st.Status == run.RunWaiting &&
		(h.WaitSeq != st.WaitSeq || h.Drained != st.Drained) {
		s.addViolation("head", fmt.Sprintf("%s, owner %s, wait %d, drained %d", h.Status, h.Owner, h.WaitSeq, h.Drained),
			fmt.Sprintf("%s, owner %s, wait %d, drained %d", st.Status, st.Owner, st.WaitSeq, st.Drained))
	}
}

// checkAppliedOnce: every accepted input is applied once and in order (invariant 1).
func (s *simulation) checkAppliedOnce(rec recordedRun, entries []run.Entry) {
	received, decided, slot := map[string]int{}, map[string]int{}, int64(0)
	for _, e := range entries {
		for _, ev := range e.Events {
			if n := run.InboxSlot(ev); n != 0 {
				if n <= slot {
					s.addViolation("order", fmt.Sprintf("slot %d after slot %d", n, slot), "slots in order, each once")
				}
				slot = n
			}
			switch ev := ev.(type) {
			case run.InputReceived:
				received[ev.ID]++
			case run.Decided:
				if ev.Approval != "" { // a request about tools is decided for each tool
					decided[strings.TrimSpace(ev.Approval+" "+strings.Join(ev.Tools, " "))]++
				}
			}
		}
	}
	for id, n := range received {
		if n > 1 {
			s.addViolation("inputs", fmt.Sprintf("%s applied %d times", id, n), "once")
		}
	}
	for id, run := range s.acceptedMessages {
		if run == rec.State.Run && received[id] != 1 {
			s.addViolation("inputs", fmt.Sprintf("%s was accepted and applied %d times", id, received[id]), "once")
		}
	}
	for id, n := range decided {
		if n > 1 {
			s.addViolation("decisions", fmt.Sprintf("%s applied %d times", id, n), "once")
		}
	}
}

// checkSeenCounts: seenCount is the number of committed model calls with the message, plus one if the model wrote it
// (invariant 6).
func (s *simulation) checkSeenCounts(rec recordedRun, entries []run.Entry) {
	if rec.State.From != nil { // the seed's messages were counted in another run
		return
	}
	counted := map[run.Source]int64{}
	for _, e := range entries {
		for _, ev := range e.Events {
			r, ok := ev.(run.Replied)
			if !ok {
				continue
			}
			_, mark, _ := strings.Cut(r.Stop, requestMark)
			n, err := strconv.Atoi(mark)
			if err != nil || n >= len(s.modelRequests) {
				return // a reply without a mark: the requests cannot be counted
			}
			for from := range s.modelRequests[n] {
				counted[from]++
			}
		}
	}
	for i := range rec.State.Messages.Len() {
		msg := rec.State.Messages.At(i)
		var from run.Event // nil = an event of another run
		if at := msg.Source; at.Run == "" && at.Seq < int64(len(entries)) && at.Event < len(entries[at.Seq].Events) {
			from = entries[at.Seq].Events[at.Event]
		}
		if _, built := from.(run.ContextBuilt); built { // context builders set the count themselves
			continue
		}
		want := counted[msg.Source]
		if msg.Role == run.RoleAssistant && !isSynthetic(msg, from) {
			want++
		}
		if got := msg.Seen(rec.State.Inferences); got != want {
			s.addViolation("seenCount", fmt.Sprintf("%d for message %d (%s)", got, i, msg.Role), strconv.FormatInt(want, 10))
		}
	}
}

// isSynthetic reports whether no model wrote an assistant message: it is a static text, or a call that a person made.
func isSynthetic(msg run.Message, ev run.Event) bool {
	switch ev := ev.(type) {
	case run.Finished, run.UndoOrdered:
		return true
	case run.Synthesised:
		return ev.Static != ""
	case run.Replied:
		return ev.Static != "" && msg.Block == run.Block(run.Text{Text: ev.Static})
	default:
		return false
	}
}

// checkParkedOrDone: a run has ended with a result for every call (invariant 2), or it waits for requests that expire
// and can be decided. Its inbox is empty (invariants 5 and 7).
func (s *simulation) checkParkedOrDone(rec recordedRun) {
	if _, ok := s.findThrottledRun([]recordedRun{rec}); ok { // the run stays open, since its models stay busy
		return
	}
	ctx, st := context.Background(), &rec.State
	if len(rec.Inbox) > 0 {
		s.addViolation("rest", fmt.Sprintf("%d inputs that nobody drained", len(rec.Inbox)), "none")
	}
	switch st.Status {
	case run.RunDone:
		if taken, err := s.journal.SlotTaken(ctx, tenant, st.Run, st.Drained+1); err != nil || !taken {
			s.addViolation("end", "an inbox that is open", "closed")
		}
		s.checkNothingPending(st.Run)
		for _, c := range st.Calls() {
			if c.Result == nil && c.Status != run.StatusCancelled {
				s.addViolation("results", fmt.Sprintf("call %s is %s and has none", c.ID, c.Status), "a result")
			}
		}
	case run.RunWaiting:
		if h, err := s.head(st.Run); err != nil || h.Token == "" {
			s.addViolation("wait", "no task token", "one that is stored")
		}
		for _, c := range st.Waits() {
			if c.Wait.Expires.IsZero() {
				s.addViolation("wait", "call "+c.ID+" waits for ever", "an expiry")
			}
			if c.Wait.Approval == "" {
				continue
			}
			a, err := s.request(c.Wait.Approval)
			if err != nil || a.Status != approval.Pending {
				got := fmt.Sprintf("call %s waits for request %s, which is %s (%v)", c.ID, c.Wait.Approval, a.Status, err)
				s.addViolation("wait", got, "pending")
			}
		}
	default:
		s.addViolation("rest", "a run that is "+string(st.Status), "done or waiting")
	}
}

// checkNothingPending: a run that has ended has no pending request.
func (s *simulation) checkNothingPending(run string) {
	for cursor := ""; ; {
		page, next, err := approval.List(context.Background(), s.table, tenant,
			approval.Query{Status: approval.Pending, Cursor: cursor})
		if err != nil {
			s.addViolation("end", err.Error(), "requests that can be listed")
			return
		}
		for _, a := range page {
			if a.Run == run {
				s.addViolation("end", "request "+a.ID+" is pending", "settled with its run")
			}
		}
		if cursor = next; cursor == "" {
			return
		}
	}
}

// checkEffectsOnce: a tool that must not be repeated takes effect once for each call, and once more for each rerun by a
// person (invariant 3).
func (s *simulation) checkEffectsOnce(rec recordedRun) {
	effects := map[string]int{}
	for _, e := range s.toolExecutions {
		if e.run == rec.State.Run && !e.repeatable && e.tookEffect() {
			effects[e.key.call]++
		}
	}
	for id, n := range effects {
		if allowed := 1 + rec.scripted.reruns[id]; n > allowed {
			s.addViolation("effects", fmt.Sprintf("call %s took effect %d times", id, n), strconv.Itoa(allowed))
		}
	}
}

// recordReturned marks the results that an invocation without an error has received from tools that must not be
// repeated.
func (s *simulation) recordReturned(ctx context.Context) {
	if slices.ContainsFunc(s.Faults, func(p fault.Point) bool {
		c, made := s.injector.Call(p.Call)
		return made && c.Port == "tool.Call"
	}) { // the fault replaced the tool's result
		return
	}
	if slices.ContainsFunc(s.Interventions, func(iv Intervention) bool { return iv.Do == Expire }) {
		// the clock skips days, and the invocation times out
		return
	}
	n := fault.InvocationNumber(ctx)
	for _, e := range s.toolExecutions {
		if fault.InvocationNumber(e.ctx) != n || !e.tookEffect() || e.resultLost || e.repeatable {
			continue
		}
		l, err := s.load(e.run)
		if err != nil || l.State.Status == run.RunDone {
			continue
		}
		c, ok := l.State.Call(e.key.call)
		e.resultDelivered = ok && c.Result == nil // otherwise it is recorded, or a person settled the call first
	}
}

// checkResultsRecorded: the journal has every delivered result, as the call's result or as a late one (protocol rule
// 10).
func (s *simulation) checkResultsRecorded(rec recordedRun, entries []run.Entry) {
	recorded := map[string]bool{}
	for _, e := range entries {
		for _, ev := range e.Events {
			switch ev := ev.(type) {
			case run.CallFinished:
				recorded[ev.Call] = true
			case run.LateResult:
				recorded[ev.Call] = true
			case run.Answered: // the tool's answer to Reconcile
				recorded[ev.Call] = recorded[ev.Call] || ev.By == "reconcile"
			}
		}
	}
	for _, e := range s.toolExecutions {
		if call := e.key.call; e.resultDelivered && e.run == rec.State.Run && !recorded[call] {
			s.addViolation("results", fmt.Sprintf("what call %s came to was learnt, and is nowhere on record", call),
				"its result, or a late one")
		}
	}
}

// checkApprovalsConsumed: the approval under which a call ran is consumed (protocol rule 9).
func (s *simulation) checkApprovalsConsumed(rec recordedRun) {
	for _, e := range s.toolExecutions {
		c, ok := rec.State.Call(e.key.call)
		if !ok || e.run != rec.State.Run || c.Asks == 0 {
			continue
		}
		id := run.ApprovalID(rec.State.Run, c.ID, c.Asks)
		a, err := s.request(id)
		if err != nil || a.Kind != approval.KindCall || a.Status != approval.Approved { // another decision let it run
			continue
		}
		used := slices.ContainsFunc(s.table.All(), func(it store.Item) bool {
			return it.SK == "A" && strings.HasSuffix(it.PK, "#"+id) && it.Attrs["consumed"].Int() == 1
		})
		if !used {
			got := fmt.Sprintf("call %s ran under request %s, which may be used again", c.ID, id)
			s.addViolation("authority", got, "used up")
		}
	}
}

// tookEffect reports whether the tool did its work. A tool that asked for input, or failed, did not.
func (e *toolExecution) tookEffect() bool {
	return e.finished && e.result.data.Suspend == nil && e.result.failure == nil
}

// checkAuthorized: a call with an approval request runs only when approved, with the arguments that the approver saw
// (invariant 4).
func (sr *scriptedRun) checkAuthorized(c run.Call, args json.RawMessage) {
	if c.Asks == 0 || c.Undoes != "" {
		return
	}
	s := sr.sim
	a, err := s.request(run.ApprovalID(sr.run, c.ID, c.Asks))
	if err != nil || a.Kind != approval.KindCall {
		return
	}
	if a.Status == approval.Pending || a.Status == approval.Denied || a.Status == approval.Expired {
		s.addViolation("authority", fmt.Sprintf("call %s ran while request %s is %s", c.ID, a.ID, a.Status), "approved")
	}
	for _, d := range a.CountedApprovals() {
		if d.Via != approval.ViaEarly && !a.Channels.Count(d.Via, d.Confirmed) {
			s.addViolation("authority", fmt.Sprintf("call %s ran, which %s approved by %s", c.ID, d.By, d.Via),
				a.Channels.Words())
		}
	}
	shown := a.Args
	if a.Status == approval.Voided && a.OriginalArgs != nil { // a grant of the tool is not of an edit that nobody approved
		shown = a.OriginalArgs
	}
	if string(shown) != string(args) {
		s.addViolation("authority", "call "+c.ID+" ran with other arguments than were approved", "those of request "+a.ID)
	}
}

// publishes reports whether want.json says what is published. Nobody listens in other scenarios.
func (s *Scenario) publishes() bool {
	wants := slices.Concat([]want{s.want}, slices.Concat(slices.Collect(maps.Values(s.children))...))
	return slices.ContainsFunc(wants, func(w want) bool { return w["published"] != nil })
}

// publishedEvents records what is published of each run. A repeated id must have the same event.
type publishedEvents struct{ sim *simulation }

func (p publishedEvents) Emit(_ context.Context, e policy.Outgoing) error {
	sr := p.sim.scriptedRunOf(e.Run)
	i := slices.IndexFunc(sr.published, func(seen policy.Outgoing) bool { return seen.ID == e.ID })
	switch {
	case i < 0:
		sr.published = append(sr.published, e)
	case !reflect.DeepEqual(sr.published[i], e):
		p.sim.addViolation("published", e.ID+" again, and not the same", "one event for each id")
	}
	return nil
}

// sendOutbox sends what a crash has kept from being sent, as the scheduled sweep does.
func (s *simulation) sendOutbox() {
	p := s.machine.Ports
	p.Table, p.Publish = s.table, publishedEvents{s}
	for cursor, by := "", s.clock.Now().Add(time.Hour); ; {
		_, next, err := p.SendOutbox(context.Background(), tenant, by, cursor)
		if err != nil {
			s.addViolation("published", err.Error(), "events that can be sent")
			return
		}
		if cursor = next; cursor == "" {
			return
		}
	}
}

// checkPublished: of every run its start and its end, and of every request that people were asked that and how it
// ended.
func (s *simulation) checkPublished(rec recordedRun, entries []run.Entry) {
	if !s.scenario.publishes() {
		return
	}
	seen := map[string]int{}
	for _, e := range rec.scripted.published {
		seen[e.ID]++
	}
	check := func(id string, want int) {
		if seen[id] != want {
			s.addViolation("published", fmt.Sprintf("%s %d times", id, seen[id]), fmt.Sprint(want))
		}
	}
	check(rec.State.Run+"#started", 1)
	if rec.State.Status == run.RunDone {
		check(rec.State.Run+"#ended", 1)
	}
	for _, id := range requestIDs(entries) {
		a, err := s.request(id)
		if err != nil { // settled by the entry that would have made it
			continue
		}
		closed := seen[id+"#decided"] + seen[id+"#expired"] + seen[id+"#closed"]
		if open := a.Status == approval.Pending; open && closed != 0 || !open && closed != seen[id+"#asked"] {
			s.addViolation("published", fmt.Sprintf("%d ends of request %s, which is %s", closed, id, a.Status),
				"one of each that was asked and is closed")
		}
		if a.Status == approval.Pending {
			check(id+"#asked", 1)
		}
	}
}
