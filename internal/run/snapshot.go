package run

import (
	"encoding/json"
	"fmt"
	"time"
)

// snapshotEvery is how many entries lie between snapshots of a run that has evicted messages, at least: twice as many
// as it has live messages, since each of those is a few dozen bytes of every snapshot. A run that has not evicted needs
// none: all of its entries hold live messages and are read anyway.
const snapshotEvery = 32

// snapshotDue is the power of two that snapshots of a run with so many live messages lie apart.
func snapshotDue(live int) int64 {
	every := int64(snapshotEvery)
	for every < 2*int64(live) {
		every *= 2
	}
	return every
}

// maxSnapshot bounds a snapshot, in bytes, so that it fits into an entry beside what the entry is for.
const maxSnapshot = 128 * 1024

// snapshotForm is a run without message bodies and settled calls: what a reader needs who begins in the middle of the
// journal.
type snapshotForm struct {
	Start    RunStarted     `json:"start"` // without messages
	Status   RunStatus      `json:"status"`
	Times    [2]int64       `json:"times"` // started, updated: milliseconds since 1970
	Former   string         `json:"former,omitempty"`
	Gen      int64          `json:"gen,omitempty"`
	Since    int64          `json:"since,omitempty"`
	Owned    int64          `json:"owned"` // since when, in milliseconds since 1970
	Wait     int64          `json:"wait,omitempty"`
	Drained  int64          `json:"drained,omitempty"`
	Prior    int64          `json:"prior,omitempty"`
	Infer    int64          `json:"infer"`
	At       Interactions   `json:"at"`
	Calls    int64          `json:"calls"`
	Usage    Usage          `json:"usage"`
	Units    int64          `json:"units"`
	Unseen   int            `json:"unseen,omitempty"`
	System   string         `json:"system,omitempty"`
	Evicted  int64          `json:"evicted,omitempty"`
	Summary  string         `json:"summary,omitempty"`
	Messages []messageForm  `json:"msgs"`
	Live     []Call         `json:"live,omitempty"`
	Shown    []resultForm   `json:"results,omitempty"`
	Round    Round          `json:"round"`
	Queued   []Source       `json:"queued,omitempty"`
	Refused  *Correction    `json:"refused,omitempty"`
	Kept     []DecisionKept `json:"kept,omitempty"`

	Shared  json.RawMessage `json:"state,omitempty"`
	Patches []CallPatch     `json:"patches,omitempty"`

	SystemText string `json:"systemText,omitempty"`
	SystemBlob bool   `json:"systemBlob,omitempty"`
	Built      bool   `json:"built,omitempty"`

	Heard []string `json:"heard,omitempty"`
	Again []string `json:"again,omitempty"`

	Advice Advice `json:"advice,omitzero"`

	Cost   USD   `json:"cost,omitempty"`
	Waited int64 `json:"waited,omitempty"` // milliseconds
	Tally  Tally `json:"tally,omitzero"`
	Cut    Cut   `json:"cut,omitzero"`

	Streaks Streaks `json:"streaks,omitempty"`

	Ending Reason `json:"ending,omitempty"`
	Detail string `json:"detail,omitempty"`

	Hooks  int64     `json:"hooks,omitempty"`
	Hidden []string  `json:"hidden,omitempty"`
	Begun  bool      `json:"begun,omitempty"`
	Broken *RunError `json:"broken,omitempty"`

	Files   []string    `json:"files,omitempty"`
	Named   []string    `json:"named,omitempty"`
	Counted Counted     `json:"counted,omitzero"`
	Full    ContextFull `json:"full,omitzero"`

	Permits *Permissions `json:"permits,omitempty"` // nil = nothing is known of tools' permissions

	Plan *Plan `json:"plan,omitempty"` // nil = the run has none

	Listed   bool          `json:"listed,omitempty"`
	Servers  []ServerState `json:"servers,omitempty"`
	Children *Children     `json:"children,omitempty"` // nil = no call is a run
}

// messageForm is a live message without its body: where that is, and the base of its seenCount.
type messageForm struct {
	Role Role   `json:"r"`
	Base int64  `json:"b"`
	From Source `json:"f"`
}

// resultForm is where a live call's result was written.
type resultForm struct {
	Call string `json:"c"`
	From Source `json:"f"`
}

// Snap puts a snapshot into the draft's entry where one is due: when the entry is the first to evict, or evicts all but
// few messages, and every so often after that. It adds nothing to a run that has never evicted, to the end of one, in
// the middle of a plan, where bodies lie in another run's journal, or where the snapshot would be too large.
func (d *Draft) Snap() error {
	s := &d.State
	evicts := s.EvictedMessages > d.before.EvictedMessages
	due := evicts && (d.before.snapped == 0 || s.Messages.Len() <= snapshotEvery) || s.EvictedMessages > 0 && d.Entry.Seq%snapshotDue(s.Messages.Len()) == 0
	if !due || s.Status == RunDone || s.inherits() || s.Plan.Active() { // a plan still needs its settled calls
		return nil
	}
	form, err := MarshalVerbatim(s.snapshot(d.Entry.Time))
	if err != nil {
		return fmt.Errorf("snapshot run %s: %w", s.Run, err)
	}
	if len(form) <= maxSnapshot {
		d.Entry.Snapshot = form
	}
	return nil
}

func (s *AgentState) snapshot(now time.Time) snapshotForm {
	f := snapshotForm{
		Status: s.Status, Times: [2]int64{s.StartedAt.UnixMilli(), now.UnixMilli()},
		Start: RunStarted{
			Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Version: s.Version, Definition: s.Definition, HooksVersion: s.HooksVersion, Owner: s.Owner,
			BodyDigest: s.BodyDigest, Subject: s.Subject, AccessControl: s.AccessControl, Input: s.Input, MaxInteractions: s.Interactions.Max,
			From: s.From, Parent: s.Parent, By: s.By, Trace: s.Trace, Wait: s.Wait, Resume: s.Resume,
		},
		Prior:  s.Prior,
		Former: s.FormerOwner, Gen: s.Generation, Since: s.OwnedSince, Owned: s.ownedAt.UnixMilli(), Wait: s.WaitSeq, Drained: s.Drained, Infer: s.Inferences,
		At: s.Interactions, Calls: s.ModelCalls, Usage: s.Usage, Units: s.ExecutionUnits, Unseen: s.Unseen, System: s.System,
		Evicted: s.EvictedMessages, Summary: s.Summary, Live: s.Live, Round: s.Round,
		Refused: s.Correction, Shared: s.Shared, Patches: s.Patches, SystemText: s.SystemText, SystemBlob: s.SystemBlob, Built: s.Built, Kept: s.Kept, Advice: s.Advice,
		Heard: s.Heard, Again: s.Again,
		Cost: s.Cost, Waited: s.Waited.Milliseconds(), Streaks: s.Streaks, Tally: s.Tally, Cut: s.Cut,
		Ending: s.Ending, Detail: s.EndingDetail, Hooks: s.Hooks, Hidden: s.Hidden, Begun: s.Begun, Broken: s.Broken,
		Files: s.Files, Named: s.Named, Counted: s.Counted, Full: s.Full,
		Listed: s.Listed, Servers: s.Servers,
	}
	if !s.Permissions.zero() {
		f.Permits = &s.Permissions
	}
	if !s.Plan.zero() {
		f.Plan = &s.Plan
	}
	if !s.Children.zero() {
		f.Children = &s.Children
	}
	for _, m := range s.Messages.All() {
		f.Messages = append(f.Messages, messageForm{m.Role, m.Base, m.Source})
	}
	for _, c := range s.Live {
		if c.Result != nil {
			f.Shown = append(f.Shown, resultForm{c.ID, c.Result.source})
		}
	}
	for _, q := range s.Queued {
		f.Queued = append(f.Queued, q.source)
	}
	return f
}

// ReadFrom is the sequence of the oldest entry that a reader of the run needs: the one that holds the oldest body that
// was live at the newest snapshot. It is the hint that travels with the run, and 0 as long as there is no snapshot, or
// bodies lie in another run's journal: only the first entry says in which.
func (s *AgentState) ReadFrom() int64 {
	if s.snapped == 0 || s.inherits() {
		return 0
	}
	return s.snapped - 1
}

// snap notes where a reader begins who begins at e's snapshot, if it has one.
func (s *AgentState) snap(e Entry) {
	if e.Snapshot != nil {
		s.snapped = 1 + s.oldestBody()
	}
}

// oldestBody is the entry that holds the oldest live body.
func (s *AgentState) oldestBody() int64 {
	from := s.Seq()
	for _, m := range s.Messages.All() {
		from = min(from, m.Source.Seq)
	}
	for _, q := range s.Queued {
		from = min(from, q.source.Seq)
	}
	return max(0, from)
}

// Restore folds contiguous entries that begin in the middle of a journal: from the newest snapshot among them whose
// bodies they hold, then on. ok is false where there is none; then the journal has to be read from its beginning. The
// state is Partial.
func Restore(entries []Entry) (s AgentState, ok bool, err error) {
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].Snapshot == nil {
			continue
		}
		var f snapshotForm
		err := readKnown("snapshot", entries[i].Snapshot, &f)
		if err != nil {
			return s, false, fmt.Errorf("read snapshot of entry %d: %w", entries[i].Seq, err)
		}
		if s, ok = f.state(entries, i); ok {
			s, err = Fold(s, entries[i+1:])
			return s, err == nil, err
		}
	}
	return s, false, nil
}

// state is the run at entry i, with the bodies that the entries hold; false where one is missing.
func (f *snapshotForm) state(entries []Entry, i int) (AgentState, bool) {
	e, b := entries[i], f.Start
	s := AgentState{
		Tenant: b.Tenant, Run: b.Run, Agent: b.Agent, Version: b.Version, Definition: b.Definition, HooksVersion: b.HooksVersion, Owner: b.Owner,
		BodyDigest: b.BodyDigest, Subject: b.Subject, By: b.By, AccessControl: b.AccessControl, Input: b.Input, Trace: b.Trace, Status: f.Status,
		StartedAt: time.UnixMilli(f.Times[0]).UTC(), UpdatedAt: time.UnixMilli(f.Times[1]).UTC(), FormerOwner: f.Former, Generation: f.Gen,
		OwnedSince: f.Since, WaitSeq: f.Wait, Drained: f.Drained, From: b.From, Parent: b.Parent, Prior: f.Prior, Inferences: f.Infer, Interactions: f.At, ModelCalls: f.Calls, Usage: f.Usage,
		ExecutionUnits: f.Units, Unseen: f.Unseen, System: f.System, EvictedMessages: f.Evicted, Summary: f.Summary, Live: f.Live, Round: f.Round,
		Correction: f.Refused, Shared: f.Shared, Patches: f.Patches, Wait: b.Wait, Resume: b.Resume,
		SystemText: f.SystemText, SystemBlob: f.SystemBlob, Built: f.Built, Kept: f.Kept, Advice: f.Advice,
		Heard: f.Heard, Again: f.Again,
		Cost: f.Cost, Waited: time.Duration(f.Waited) * time.Millisecond, Streaks: f.Streaks, Tally: f.Tally, Cut: f.Cut,
		Ending: f.Ending, EndingDetail: f.Detail, Hooks: f.Hooks, Hidden: f.Hidden, Begun: f.Begun, Broken: f.Broken,
		Files: f.Files, Named: f.Named, Counted: f.Counted, Full: f.Full,
		Listed: f.Listed, Servers: f.Servers,
		Entries: e.Seq + 1, hash: e.Hash(), Partial: true, head: entryHead{seq: e.Seq, writer: e.Writer, time: e.Time},
	}
	if s.Status == RunWaiting {
		s.Reason = ReasonSuspended
	}
	s.ownedAt = time.UnixMilli(f.Owned).UTC()
	if f.Permits != nil {
		s.Permissions = *f.Permits
	}
	if f.Plan != nil {
		s.Plan = *f.Plan
	}
	if f.Children != nil {
		s.Children = *f.Children
	}
	for _, r := range f.Shown {
		s.placeResult(r)
	}
	for _, m := range f.Messages {
		body, ok := bodyAt(entries, m.From)
		if !ok {
			return s, false
		}
		if isInBlob(body) {
			s.BlobMessages++
		}
		s.Messages = s.Messages.Append(Message{Role: m.Role, Block: body, Base: m.Base, Source: m.From})
	}
	for _, from := range f.Queued {
		body, ok := bodyAt(entries, from)
		if !ok {
			return s, false
		}
		_, permission := entries[from.Seq-entries[0].Seq].Events[from.Event].(PermissionAnswered)
		s.Queued = append(s.Queued, queued{body, from, permission})
	}
	s.snap(e)
	return s, true
}

func (s *AgentState) placeResult(r resultForm) {
	for i := range s.Live {
		if s.Live[i].ID == r.Call && s.Live[i].Result != nil {
			s.Live[i].Result.source = r.From
		}
	}
}

// bodyAt finds the block that a source names, which is none of another run's.
func bodyAt(entries []Entry, from Source) (Block, bool) {
	i := from.Seq - entries[0].Seq
	if from.Run != "" || i < 0 || i >= int64(len(entries)) || from.Event >= len(entries[i].Events) {
		return nil, false
	}
	return blockOf(entries[i].Events[from.Event], from.Part)
}

// blockOf returns the block with index part of those that an event adds to the conversation, as Apply counts them.
func blockOf(e Event, part int) (Block, bool) {
	switch e := e.(type) {
	case RunStarted:
		return userPart(e.Messages, part)
	case InputReceived:
		return userPart(e.Blocks, part)
	case Replied:
		return e.blockAt(part)
	case ContextBuilt:
		if part >= len(e.Messages) {
			return nil, false
		}
		return e.Messages[part].Content.Block, true
	case CallFinished:
		return resultPart(ToolResult{ID: e.Call, Content: e.Content, Blob: e.Blob, IsError: e.IsError, Whole: e.Whole}, e.Media, part)
	case LateResult:
		return resultPart(ToolResult{ID: e.Call, Content: e.Content, Blob: e.Blob, IsError: e.IsError, Whole: e.Whole}, e.Media, part)
	case Answered:
		return resultPart(ToolResult{ID: e.Call, Content: e.Content, Blob: e.Blob, IsError: e.IsError, Whole: e.Whole}, e.Media, part)
	case Decided:
		return resultPart(ToolResult{ID: e.Call, Content: e.Text, IsError: true}, nil, part)
	case Hooked:
		return e.blockAt(part)
	case CallCancelled:
		return resultPart(ToolResult{ID: e.Call, Content: e.Content, IsError: true}, nil, part)
	case PermissionAnswered:
		return Text{Text: e.Text}, part == 0
	case UndoOrdered:
		return ToolUse{ID: e.Call.ID, Name: e.Call.Name, Input: e.Call.Input}, part == 0
	case PlanEvent:
		return e.Fact().blockAt(part)
	default:
		return nil, false
	}
}

func userPart(blocks []UserBlock, part int) (Block, bool) {
	if part >= len(blocks) {
		return nil, false
	}
	return blocks[part].Block, true
}

func resultPart(r ToolResult, media []Media, part int) (Block, bool) {
	switch {
	case part == 0:
		return r, true
	case part <= len(media):
		return media[part-1], true
	default:
		return nil, false
	}
}
