package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// What must hold whatever goes wrong and whoever acts (ARCHITECTURE.md, invariants). It is checked against what the world outside saw, never
// against what the product says of itself alone.

// violate says that a promise was broken.
func (s *stage) violate(promise, got, want string) {
	f := Failure{Path: promise, Got: got, Want: want}
	if !slices.Contains(s.violations, f) {
		s.violations = append(s.violations, f)
	}
}

// sent is a request to a model that was answered.
type sent struct {
	run      string
	messages map[run.Source]bool
}

// mark is how a reply says which request it answers: its stop reason ends in it, unless that is one that decides something.
const mark = "~"

// deciding are the stop reasons that a definition may have people told of (agent.CutText).
var deciding = []string{"length", "max_tokens", "content_filter", "content_filtered", "guardrail_intervened"}

// answered notes a request and has its reply say which it answers.
func (s *stage) answered(r agent.Request, reply agent.Reply) agent.Reply {
	held := map[run.Source]bool{}
	for _, m := range r.Messages {
		held[m.Source] = true
	}
	s.sent = append(s.sent, sent{r.Run, held})
	if slices.Contains(deciding, reply.StopReason) {
		return reply
	}
	reply.StopReason += mark + strconv.Itoa(len(s.sent)-1)
	return reply
}

// marked is the request that a committed reply answers.
func (s *stage) marked(stop string) (sent, bool) {
	_, number, ok := strings.Cut(stop, mark)
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n >= len(s.sent) {
		return sent{}, false
	}
	return s.sent[n], true
}

// promises checks everything that must hold once the story rests.
func (s *stage) promises() {
	family, err := s.family()
	if err != nil {
		s.violate("run", err.Error(), "a run that can be read")
		return
	}
	if s.claimantsLive() && len(s.unforeseen) > 0 {
		s.violate("outcome", fmt.Sprintf("people had to say %d times what became of a call", len(s.unforeseen)), "never: its claimant lives and knows")
	}
	for _, id := range s.told {
		if a, err := approval.Get(context.Background(), s.table, tenant, id); err != nil || a.Status == approval.Expired || a.Status == approval.Pending {
			s.violate("decisions", fmt.Sprintf("request %s is %s (%v), though somebody was told that they decided it", id, a.Status, err), "decided")
		}
	}
	if s.first != "" {
		l, err := s.record.Load(context.Background(), tenant, s.first)
		if err != nil {
			s.violate("run", err.Error(), "a run that can be read")
			return
		}
		family = append(family, member{s.part, l})
	}
	for _, m := range family {
		entries, err := s.record.Entries(context.Background(), tenant, m.State.Run, 0, 0)
		if err != nil {
			s.violate("journal", err.Error(), "a journal that can be read")
			continue
		}
		s.foldsTheSame(m, entries)
		s.appliedOnce(m, entries)
		s.seen(m, entries)
		s.comesToRest(m)
		s.oneResultEach(m)
		m.part.ledger.once(&m.State)
		s.onRecord(m, entries)
		s.usedUp(m)
	}
}

// claimantsLive reports whether nothing went wrong but that the answer to a write was lost: then whoever claimed a call lives, and finds its
// claim by its writer id (rule 9).
func (s *stage) claimantsLive() bool {
	calls := s.faults.Calls()
	if len(s.acts) > 0 || len(s.plan) != 1 {
		return false
	}
	p := s.plan[0]
	return p.Kind == fault.ErrorAfter && p.Call <= len(calls) && calls[p.Call-1].Port == "table.Write"
}

// foldsTheSame: a journal gives the state that whoever loads the run sees, and the view of it says the same.
func (s *stage) foldsTheSame(m member, entries []run.Entry) {
	if m.State.From == nil {
		folded, err := run.Fold(run.AgentState{}, entries)
		if err != nil {
			s.violate("journal", err.Error(), "entries that fold")
			return
		}
		want, got := marshal(&folded), marshal(&m.State)
		if string(want) != string(got) {
			s.violate("journal", "a state that differs from the loaded one", "the same")
		}
	}
	h, err := s.record.Head(context.Background(), tenant, m.State.Run)
	if err != nil {
		s.violate("head", err.Error(), "a view of the run")
		return
	}
	st := &m.State
	if h.Status != st.Status || h.Owner != st.Owner || st.Status == run.RunWaiting && (h.WaitSeq != st.WaitSeq || h.Drained != st.Drained) {
		s.violate("head", fmt.Sprintf("%s, owner %s, wait %d, drained %d", h.Status, h.Owner, h.WaitSeq, h.Drained),
			fmt.Sprintf("%s, owner %s, wait %d, drained %d", st.Status, st.Owner, st.WaitSeq, st.Drained))
	}
}

// appliedOnce: what was accepted is applied once, and in order (invariant 1).
func (s *stage) appliedOnce(m member, entries []run.Entry) {
	heard, decided, slot := map[string]int{}, map[string]int{}, int64(0)
	for _, e := range entries {
		for _, ev := range e.Events {
			if n := slotOf(ev); n != 0 {
				if n <= slot {
					s.violate("order", fmt.Sprintf("slot %d after slot %d", n, slot), "slots in order, each once")
				}
				slot = n
			}
			switch ev := ev.(type) {
			case run.InputReceived:
				heard[ev.ID]++
			case run.Decided:
				if ev.Approval != "" { // one about tools is decided for each of them
					decided[strings.TrimSpace(ev.Approval+" "+strings.Join(ev.Tools, " "))]++
				}
			}
		}
	}
	for id, n := range heard {
		if n > 1 {
			s.violate("inputs", fmt.Sprintf("%s applied %d times", id, n), "once")
		}
	}
	for id, run := range s.said {
		if run == m.State.Run && heard[id] != 1 {
			s.violate("inputs", fmt.Sprintf("%s was accepted and applied %d times", id, heard[id]), "once")
		}
	}
	for id, n := range decided {
		if n > 1 {
			s.violate("decisions", fmt.Sprintf("%s applied %d times", id, n), "once")
		}
	}
}

// slotOf is the inbox slot that a fact came through; 0 = none.
func slotOf(ev run.Event) int64 {
	switch ev := ev.(type) {
	case run.InputReceived:
		return ev.Slot
	case run.Decided:
		return ev.Slot
	case run.Answered:
		return ev.Slot
	case run.LateResult:
		return ev.Slot
	default:
		return 0
	}
}

// seen: seenCount is the number of committed model calls the message was in, plus one if the model wrote it (invariant 6).
func (s *stage) seen(m member, entries []run.Entry) {
	if m.State.From != nil { // what it began from was counted elsewhere
		return
	}
	counted := map[run.Source]int64{}
	for _, e := range entries {
		for _, ev := range e.Events {
			r, ok := ev.(run.Replied)
			if !ok {
				continue
			}
			asked, ok := s.marked(r.Stop)
			if !ok {
				return // some of it was asked in another way
			}
			for from := range asked.messages {
				counted[from]++
			}
		}
	}
	for i := range m.State.Messages.Len() {
		msg := m.State.Messages.At(i)
		from := origin(msg, entries)
		if _, built := from.(run.ContextBuilt); built { // code says how often it was seen before
			continue
		}
		want := counted[msg.Source]
		if msg.Role == run.RoleAssistant && !standIn(msg, from) {
			want++
		}
		if got := msg.Seen(m.State.Inferences); got != want {
			s.violate("seenCount", fmt.Sprintf("%d for message %d (%s)", got, i, msg.Role), strconv.FormatInt(want, 10))
		}
	}
}

// origin is the fact that a message came from; nil = one of another run.
func origin(msg run.Message, entries []run.Entry) run.Event {
	from := msg.Source
	if from.Run != "" || from.Seq >= int64(len(entries)) || from.Event >= len(entries[from.Seq].Events) {
		return nil
	}
	return entries[from.Seq].Events[from.Event]
}

// standIn reports whether a message of the assistant's is one that no model wrote: a text in place of one, or a call that a person has made.
func standIn(msg run.Message, ev run.Event) bool {
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

// comesToRest: a run ends, or is parked on waits that have an expiry and that people can see, with nothing owed to it (invariants 5 and 7).
func (s *stage) comesToRest(m member) {
	if _, ok := s.outlasted([]member{m}); ok { // the story ends while its models are busy: the run is open
		return
	}
	ctx, st := context.Background(), &m.State
	if len(m.Inbox) > 0 {
		s.violate("rest", fmt.Sprintf("%d inputs that nobody drained", len(m.Inbox)), "none")
	}
	switch st.Status {
	case run.RunDone:
		if taken, err := s.record.SlotTaken(ctx, tenant, st.Run, st.Drained+1); err != nil || !taken {
			s.violate("end", "an inbox that is open", "closed")
		}
		s.nothingPending(st.Run)
	case run.RunWaiting:
		s.visible(st)
	default:
		s.violate("rest", "a run that is "+string(st.Status), "done or waiting")
	}
}

// visible: what a run waits for has an expiry and can be decided.
func (s *stage) visible(st *run.AgentState) {
	if h, err := s.record.Head(context.Background(), tenant, st.Run); err != nil || h.Token == "" {
		s.violate("wait", "no task token", "one that is stored")
	}
	for _, c := range st.Waits() {
		if c.Wait.Expires.IsZero() {
			s.violate("wait", "call "+c.ID+" waits for ever", "an expiry")
		}
		if c.Wait.Approval == "" {
			continue
		}
		a, err := approval.Get(context.Background(), s.table, tenant, c.Wait.Approval)
		if err != nil || a.Status != approval.Pending {
			s.violate("wait", fmt.Sprintf("call %s waits for request %s, which is %s (%v)", c.ID, c.Wait.Approval, a.Status, err), "pending")
		}
	}
}

// nothingPending: nobody is asked about a run that has ended.
func (s *stage) nothingPending(run string) {
	for cursor := ""; ; {
		page, next, err := approval.List(context.Background(), s.table, tenant, approval.Pending, 0, cursor)
		if err != nil {
			s.violate("end", err.Error(), "requests that can be listed")
			return
		}
		for _, a := range page {
			if a.Run == run {
				s.violate("end", "request "+a.ID+" is pending", "settled with its run")
			}
		}
		if cursor = next; cursor == "" {
			return
		}
	}
}

// oneResultEach: every call of a run that has ended has its result (invariant 2).
func (s *stage) oneResultEach(m member) {
	if m.State.Status != run.RunDone {
		return
	}
	for _, c := range m.State.Calls() {
		if c.Result == nil && c.Status != run.StatusCancelled {
			s.violate("results", fmt.Sprintf("call %s is %s and has none", c.ID, c.Status), "a result")
		}
	}
}

// once: a tool that may not be repeated takes effect once for a call, but where a person has it run again (invariant 3).
func (l *ledger) once(st *run.AgentState) {
	effects := map[string]int{}
	for name, entries := range l.entries {
		if l.repeatable(name) {
			continue
		}
		for _, e := range entries {
			if e.run == st.Run && e.tookEffect() {
				effects[e.execution.call]++
			}
		}
	}
	for id, n := range effects {
		if allowed := 1 + l.rerun[id]; n > allowed {
			l.stage.violate("effects", fmt.Sprintf("call %s took effect %d times", id, n), strconv.Itoa(allowed))
		}
	}
}

// returned notes what an invocation that has ended well has learnt of tools that may not be repeated.
func (s *stage) returned(ctx context.Context) {
	if slices.ContainsFunc(s.plan, func(p fault.Point) bool {
		c, made := s.faults.Call(p.Call)
		return made && c.Port == "tool.Call"
	}) { // what it has learnt then is not what the tool said
		return
	}
	if slices.ContainsFunc(s.acts, func(a Act) bool { return a.Do == Expire }) { // days pass during it, and no invocation has so much time
		return
	}
	n := fault.Number(ctx)
	for _, e := range s.entered {
		if fault.Number(e.ctx) != n || !e.tookEffect() || e.lost || e.repeatable {
			continue
		}
		l, err := s.record.Load(context.Background(), tenant, e.run)
		if err != nil || l.State.Status == run.RunDone {
			continue
		}
		c, ok := l.State.Call(e.execution.call)
		e.told = ok && c.Result == nil // else it is there, or somebody was first to say what became of it
	}
}

// onRecord: what a tool answered to whoever lived to say so is on record, as the call's result or as a late one (rule 10).
func (s *stage) onRecord(m member, entries []run.Entry) {
	said := map[string]bool{}
	for _, e := range entries {
		for _, ev := range e.Events {
			switch ev := ev.(type) {
			case run.CallFinished:
				said[ev.Call] = true
			case run.LateResult:
				said[ev.Call] = true
			case run.Answered: // the tool, asked what became of it
				said[ev.Call] = said[ev.Call] || ev.By == "reconcile"
			}
		}
	}
	for _, e := range s.entered {
		if call := e.execution.call; e.told && e.run == m.State.Run && !said[call] {
			s.violate("results", fmt.Sprintf("what call %s came to was learnt, and is nowhere on record", call), "its result, or a late one")
		}
	}
}

// usedUp: an approval under which a call has run is used up (rule 9).
func (s *stage) usedUp(m member) {
	for _, e := range s.entered {
		c, ok := m.State.Call(e.execution.call)
		if !ok || e.run != m.State.Run || c.Asks == 0 {
			continue
		}
		id := run.ApprovalID(m.State.Run, c.ID, c.Asks)
		a, err := approval.Get(context.Background(), s.table, tenant, id)
		if err != nil || a.Kind != approval.KindCall || a.Status != approval.Approved { // another word has let it run
			continue
		}
		used := slices.ContainsFunc(s.items.All(), func(it store.Item) bool {
			return it.SK == "A" && strings.HasSuffix(it.PK, "#"+id) && it.Attrs["consumed"].Int() == 1
		})
		if !used {
			s.violate("authority", fmt.Sprintf("call %s ran under request %s, which may be used again", c.ID, id), "used up")
		}
	}
}

// tookEffect reports whether the tool did what it is for: one that asked for input, or could not be carried out, has not.
func (e *entry) tookEffect() bool {
	return e.done && e.result.data.Suspend == nil && e.result.fails == nil
}

// authorised: a call that people were asked about runs only under their word, with the arguments they saw (invariant 4).
func (p *part) authorised(c run.Call, args json.RawMessage) {
	if c.Asks == 0 || c.Undoes != "" {
		return
	}
	s := p.stage
	a, err := approval.Get(context.Background(), s.table, tenant, run.ApprovalID(p.run, c.ID, c.Asks))
	if err != nil || a.Kind != approval.KindCall {
		return
	}
	if a.Status == approval.Pending || a.Status == approval.Denied || a.Status == approval.Expired {
		s.violate("authority", fmt.Sprintf("call %s ran while request %s is %s", c.ID, a.ID, a.Status), "approved")
	}
	if string(a.Args) != string(args) {
		s.violate("authority", fmt.Sprintf("call %s ran with other arguments than were approved", c.ID), "those of request "+a.ID)
	}
}

// alone reports whether the handler that is about to begin is the only one, and nothing is owed to the script of faults.
func (s *stage) alone() bool {
	return s.faults.Live() == 0 && s.faults.Spent() && len(s.acted) == len(s.acts)
}
