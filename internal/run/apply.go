package run

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// entryHead is what an event has to know about its entry.
type entryHead struct {
	seq    int64
	event  int
	writer string
	time   time.Time
}

// ApplyError is a forbidden fact: it contradicts what is known of the run. The state is unchanged.
type ApplyError struct {
	Event   string
	Call    string // "" if the fact concerns the run
	Problem string
}

func (e *ApplyError) Error() string {
	if e.Call != "" {
		return fmt.Sprintf("apply %s to call %s: %s", e.Event, e.Call, e.Problem)
	}
	return fmt.Sprintf("apply %s: %s", e.Event, e.Problem)
}

// Apply is the only function that changes a run. It returns the state after e and leaves s unchanged. A fact that is
// already known changes nothing. A forbidden fact is an *ApplyError.
func Apply(s AgentState, e Event) (AgentState, error) {
	n, slot := s, InboxSlot(e)
	_, starts := e.(RunStarted)
	var err error
	switch {
	case starts:
		err = e.apply(&n)
	case s.Status == "":
		err = &ApplyError{Problem: "the run has not started"}
	case slot != 0 && slot <= s.Drained:
		return s, nil
	case slot != 0 && slot != s.Drained+1:
		err = &ApplyError{Problem: fmt.Sprintf("slot %d after %d", slot, s.Drained)}
	case s.Status == RunDone:
		err = n.checkAfterEnd(e)
	default:
		switch e.(type) {
		case InputReceived, DecisionKept, DecisionDropped, Remembered, PermissionChecked, PermissionFailed:
			err = s.requireAwake() // the other facts check first whether they are known
		}
		if err == nil {
			err = e.apply(&n)
		}
	}
	if err != nil {
		if forbidden, ok := errors.AsType[*ApplyError](err); ok {
			forbidden.Event = EventType(e)
		}
		return s, err
	}
	if slot != 0 {
		n.Drained = slot
	}
	n.noteRequesters(e)
	return n, nil
}

// checkAfterEnd refuses facts after the run's end, except facts that the run knows already.
func (s *AgentState) checkAfterEnd(e Event) error {
	known := false
	switch e := e.(type) {
	case CallFinished, CallClaimed, CallSuspended, CallUnknown, CallCancelled, CallPermitted, UndoOrdered, Replied,
		PlanEvent, ToolsListed, BudgetAsked:
		return e.apply(s) // on a run that is done, these accept only known facts
	case Finished:
		known = e.Reason == s.Reason
	case HandedOver:
		known = e.Owner == s.Owner
	case ContextBuilt:
		known = s.Built
	case ToolsDisabled:
		known = s.Lacks(e.Server, e.Tool)
	}
	if !known {
		return &ApplyError{Problem: "the run is done"}
	}
	return nil
}

// apply begins the run, with what it inherits from its origin, if any.
func (e RunStarted) apply(s *AgentState) error {
	if s.Status != "" {
		if s.Tenant == e.Tenant && s.Run == e.Run && s.BodyDigest == e.BodyDigest {
			return nil
		}
		return &ApplyError{Problem: "the run has started with something else"}
	}
	if e.Tenant == "" || e.Run == "" || e.Owner == "" || e.MaxInteractions < 0 {
		return &ApplyError{Problem: "tenant, run and owner are required"}
	}
	if e.Wait != WaitAllSuspended && (e.Wait != "" || e.Resume != "") {
		return &ApplyError{Problem: "want wait all_suspended, or neither wait nor resume"}
	}
	if err := CheckUserBlocks(e.Messages); err != nil {
		return err
	}
	past := s.past
	*s = AgentState{
		Tenant: e.Tenant, Run: e.Run, Agent: e.Agent, Version: e.Version, Definition: e.Definition,
		HooksVersion: e.HooksVersion,
		Subject:      e.Subject, By: e.By, Contributors: e.Contributors, AccessControl: e.AccessControl, Input: e.Input,
		BodyDigest: e.BodyDigest, Trace: e.Trace,
		StartedAt: s.head.time, UpdatedAt: s.head.time, Owner: e.Owner, OwnedSince: s.head.seq, OwnedAt: s.head.time,
		Interactions: Interactions{Max: e.MaxInteractions}, Entries: s.Entries, From: e.From, Parent: e.Parent, Wait: e.Wait,
		Resume: e.Resume, head: s.head,
		NeedsMessages: e.Input != nil && len(e.Messages) == 0,
	}
	if err := s.inherit(past); err != nil {
		return err
	}
	if err := s.setRunStatus(RunRunning); err != nil {
		return err
	}
	for i, b := range e.Messages {
		s.appendMessage(RoleUser, b.Block, 0, s.nextSource(i))
	}
	return nil
}

func (e InputReceived) apply(s *AgentState) error {
	if e.Slot < 1 {
		return &ApplyError{Problem: "a slot is required"}
	}
	if err := CheckUserBlocks(e.Blocks); err != nil {
		return err
	}
	for i, b := range e.Blocks {
		s.queue(b.Block, i)
	}
	s.flushQueued()
	return nil
}

// queue stores a block, number part of its event, until the conversation can take it.
func (s *AgentState) queue(b Block, part int) {
	s.Queued = append(slices.Clip(s.Queued), queued{Block: b, Source: s.nextSource(part)})
}

// flushQueued appends the queued messages of users once every call has its result. Under all_suspended it does so once
// the round's first results are appended, because a turn's results directly follow its calls. While a plan is being
// carried out, messages wait for the plan's result. While a request about tools is open, they wait for its answer
// (any_external: the model is not asked before).
func (s *AgentState) flushQueued() {
	if s.Plan.Working() {
		return
	}
	committed := s.WithPlaceholders() && s.Round.Committed
	if !committed && slices.ContainsFunc(s.Live, Call.Open) {
		return
	}
	ready := len(s.Queued)
	if len(s.OpenRequests()) > 0 && !s.WithPlaceholders() {
		ready = s.permissionTexts()
	}
	for _, q := range s.Queued[:ready] {
		s.appendMessage(RoleUser, q.Block, 0, q.Source)
	}
	s.Queued = nonEmpty(s.Queued[ready:])
}

// CheckUserBlocks refuses blocks that only the model or a tool may write. A user could otherwise add a second result.
func CheckUserBlocks(blocks []UserBlock) error {
	for _, b := range blocks {
		switch b.Block.(type) {
		case Text, Media:
		default:
			return &ApplyError{Problem: fmt.Sprintf("a user's message cannot contain %T", b.Block)}
		}
	}
	return nil
}

// requireAwake refuses facts that only a resumed attempt may add to a parked run (rule 7).
func (s *AgentState) requireAwake() error {
	if s.Status == RunWaiting {
		return &ApplyError{Problem: "the run waits and has not been resumed"}
	}
	return nil
}

func (s *AgentState) appendMessage(r Role, b Block, seen int64, from Source) {
	s.Messages = s.Messages.Append(Message{Role: r, Block: b, Base: seen - s.Inferences, Source: from})
	if r == RoleUser && seen == 0 {
		s.Unseen++
	}
	if isInBlob(b) {
		s.BlobMessages++
	}
}

func isInBlob(b Block) bool {
	switch b := b.(type) {
	case ToolResult:
		return b.Blob != ""
	case Media:
		return b.Blob != ""
	default:
		return false
	}
}

func (s *AgentState) nextSource(part int) Source {
	return Source{Seq: s.head.seq, Event: s.head.event, Part: part}
}

// apply drops the oldest messages. The model has to have seen all of them, and no open call may need them.
func (e Evicted) apply(s *AgentState) error {
	evicted := e.Total - s.EvictedMessages
	if evicted <= 0 {
		return nil
	}
	if evicted > int64(s.Messages.Len()) {
		return &ApplyError{Problem: fmt.Sprintf("%d of %d messages", evicted, s.Messages.Len())}
	}
	oldest := s.Messages.All()[:evicted]
	// any open call prevents an eviction; under all_suspended only a call whose own message would be dropped
	for _, c := range s.Live {
		own := func(m Message) bool { u, ok := m.Block.(ToolUse); return ok && u.ID == c.ID }
		if c.Open() && (!s.WithPlaceholders() || slices.ContainsFunc(oldest, own)) {
			return &ApplyError{Call: c.ID, Problem: "still " + string(c.Status)}
		}
	}
	for _, m := range oldest {
		if m.Seen(s.Inferences) == 0 {
			return &ApplyError{Problem: "a message that no inference has seen"}
		}
		if isInBlob(m.Block) {
			s.BlobMessages--
		}
	}
	s.Evict(e)
	s.spend(ChildUsage{*cmp.Or(e.Usage, &Usage{}), int64(e.Requests), e.Units, e.Cost})
	return nil
}

// apply records that until the run resumes from a wait only a forced summary may follow.
func (e ContextFull) apply(s *AgentState) error {
	if s.Full.IsFull() {
		return nil
	}
	if s.Status != RunRunning {
		return &ApplyError{Problem: "the run is " + string(s.Status)}
	}
	if e.Of <= 0 || e.Left < 0 || e.Left > e.Of {
		return &ApplyError{Problem: "want 0 <= left <= of, and a window"}
	}
	s.Full = e
	return nil
}

func (e Resumed) apply(s *AgentState) error {
	if s.Status == RunRunning {
		return nil
	}
	s.Waited += time.Duration(max(0, e.Waited)) * time.Millisecond
	s.Memory, s.Full = maps.Clone(s.Memory), ContextFull{}
	for policy, slot := range s.Memory {
		s.Memory[policy] = Slot{Value: slot.Value}
	}
	return s.setRunStatus(RunRunning)
}

func (Parked) apply(s *AgentState) error {
	if s.Status == RunWaiting && s.WaitSeq == s.head.seq {
		return nil
	}
	if !s.AwaitsAnyone() {
		return &ApplyError{Problem: "no call waits for anyone"}
	}
	if slices.ContainsFunc(s.Permissions.Asked, PermissionRequest.Complete) {
		return &ApplyError{Problem: "a request about tools is answered, and the model has not been told"}
	}
	return s.setRunStatus(RunWaiting)
}

func (s *AgentState) setRunStatus(to RunStatus) error {
	if !allows(runTransitions[:], s.Status, to) {
		return &ApplyError{Problem: fmt.Sprintf("a run does not go from %q to %q", s.Status, to)}
	}
	s.Status, s.Reason, s.WaitSeq = to, "", 0
	if to == RunRunning {
		s.Begun = false
	}
	if to == RunWaiting {
		s.Reason, s.WaitSeq = ReasonSuspended, s.head.seq
	}
	return nil
}

func (e HandedOver) apply(s *AgentState) error {
	if e.Owner == s.Owner {
		return nil
	}
	if e.Owner == "" {
		return &ApplyError{Problem: "no owner named"}
	}
	s.FormerOwner, s.Owner = s.Owner, e.Owner
	s.Generation++
	s.OwnedSince, s.OwnedAt = s.head.seq, s.head.time
	return nil
}

// apply ends the run and closes every open call, so that each call has exactly one result.
func (e Finished) apply(s *AgentState) error {
	if e.Reason == "" || e.Reason == ReasonSuspended || (e.Reason == ReasonError) != (e.Error != nil) {
		return &ApplyError{Problem: "want an ending reason, and an error exactly with reason error"}
	}
	if err := s.checkNaturalEnd(e); err != nil {
		return err
	}
	if err := s.setRunStatus(RunDone); err != nil {
		return err
	}
	for i, c := range s.Live {
		if !c.Open() {
			continue
		}
		// A call that was entered may have happened, unless its tool reported that it waits for input first.
		r, why := Result{Content: e.OpenText, IsError: true}, WhyCancelled
		if c.Entered() {
			r.Content, why = e.UnknownText, WhyOutcomeUnknown
		}
		err := s.changeCall(c.ID, func(c *Call) error {
			if err := s.settleCall(c, r, why, StatusCancelled); err != nil {
				return err
			}
			c.Result.Source = s.nextSource(i + 1) // several results come from this event
			return nil
		})
		if err != nil {
			return err
		}
	}
	s.flushQueued()      // including messages that waited for a request about tools, which nobody can answer any more
	if s.Plan.Active() { // a run that continues the conversation has to know what was done
		s.leavePlan()
	}
	if e.Note != "" {
		s.appendMessage(RoleUser, Text{Text: e.Note}, 0, s.nextSource(0))
	}
	if e.Noted {
		s.Contributors = withPeople(s.Contributors, e.By)
	}
	if e.Static != "" { // the model will not read the correction of its last reply
		s.Correction = nil
		s.appendMessage(RoleAssistant, Text{Text: e.Static}, 0, s.nextSource(0))
	}
	s.ModelCalls += int64(e.Requests)
	s.Reason, s.Error, s.Output, s.EndedAt = e.Reason, e.Error, e.Output, s.head.time
	s.History, s.EndingDetail = e.History, e.Detail
	return nil
}

// checkNaturalEnd refuses a natural end before the model has seen everything and every request is answered. Messages
// may be unseen only if a static text replaces the reply of a model that failed.
func (s *AgentState) checkNaturalEnd(e Finished) error {
	open := s.OpenCall()
	_, exits := s.Exit()
	_, undoes := s.Undoing() // a run that continues the conversation sees the result
	switch {
	case e.Static != "" && (e.Reason != ReasonNaturalEnd || e.Note != ""):
		return &ApplyError{Problem: "only a natural end without a note has a static text"}
	case e.Reason != ReasonNaturalEnd:
		return nil
	case open != nil:
		return &ApplyError{Call: open.ID, Problem: "still " + string(open.Status)}
	case e.Static != "":
		return nil
	case len(s.Permissions.Asked) > 0:
		return &ApplyError{Problem: "a permission is requested"}
	case exits || undoes:
		return nil
	case s.Plan.Active():
		return &ApplyError{Problem: "the run's plan is not finished"}
	case s.Unseen > s.Plan.Answered || s.NeedsMessages:
		return &ApplyError{Problem: "the model has not seen every message"}
	case s.Correction != nil:
		return &ApplyError{Problem: "the model's last reply was refused"}
	}
	return nil
}
