package run

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/countersign/countersign/internal/jsonx"
)

// snapshotEvery is the least number of entries between snapshots of a run that has evicted messages. The distance is at
// least twice the number of live messages, since each takes a few dozen bytes of every snapshot. A run that has not
// evicted needs no snapshot, because all of its entries hold live messages and are read anyway.
const snapshotEvery = 32

// maxSnapshot is the largest snapshot, in bytes, so that it fits into an entry beside the entry's events.
const maxSnapshot = 128 * 1024

// snapshotForm is the stored form of a run without message bodies and settled calls, for a reader who begins in
// mid-journal.
type snapshotForm struct {
	AgentState
	Messages []Message
}

// Snap adds a snapshot to the draft's entry if one is due: at the first eviction, at an eviction that leaves few
// messages, and at regular distances after the first. It adds none to a run that has never evicted or has ended, during
// a plan, while another run's journal holds bodies, or if the snapshot would be too large.
func (d *Draft) Snap() error {
	s, every := &d.State, int64(snapshotEvery) // a power of two
	for every < 2*int64(s.Messages.Len()) {
		every *= 2
	}
	evicts := s.EvictedMessages > d.Before.EvictedMessages
	due := evicts && (d.Before.snapped == 0 || s.Messages.Len() <= snapshotEvery) || s.EvictedMessages > 0 &&
		d.Entry.Seq%every == 0
	if !due || s.Status == RunDone || s.hasOriginBodies() || s.Plan.Active() { // a plan still needs its settled calls
		return nil
	}
	form := map[string]any{"Messages": s.Messages.All()}
	for i, fields := 0, reflect.ValueOf(s).Elem(); i < fields.NumField(); i++ {
		f, v := fields.Type().Field(i), fields.Field(i)
		if f.IsExported() && f.Tag.Get("json") != "-" && !v.IsZero() {
			form[f.Name] = v.Interface()
		}
	}
	snapshot, err := jsonx.MarshalVerbatim(form)
	if err != nil {
		return fmt.Errorf("snapshot run %s: %w", s.Run, err)
	}
	if len(snapshot) <= maxSnapshot {
		d.SetSnapshot(snapshot)
	}
	return nil
}

// SetSnapshot sets the entry's snapshot; nil removes it.
func (d *Draft) SetSnapshot(snapshot json.RawMessage) {
	d.changed()
	d.Entry.Snapshot = snapshot
}

// ReadFrom returns the sequence of the oldest entry that a reader of the run needs: the one with the oldest body that
// was live at the newest snapshot. This hint travels with the run. It is 0 if there is no snapshot, or if another run's
// journal holds bodies, since only the first entry names that run.
func (s *AgentState) ReadFrom() int64 {
	if s.snapped == 0 || s.hasOriginBodies() {
		return 0
	}
	return s.snapped - 1
}

// Restore folds contiguous entries that begin in mid-journal, from the newest snapshot whose bodies they contain. ok is
// false if there is none; then the journal has to be read from its beginning. The resulting state is Partial.
func Restore(entries []Entry) (s AgentState, ok bool, err error) {
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].Snapshot == nil {
			continue
		}
		var f snapshotForm
		err := jsonx.ReadChecked("snapshot", entries[i].Snapshot, &f)
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

// state returns the run at entry i with the bodies that the entries hold. It returns false if a body is missing.
func (f *snapshotForm) state(entries []Entry, i int) (AgentState, bool) {
	s := f.AgentState
	s.Partial = true
	var ok bool
	for _, m := range f.Messages {
		if m.Block, ok = bodyAt(entries, m.Source); !ok {
			return s, false
		}
		s.Messages = s.Messages.Append(m)
	}
	for i := range s.Queued {
		if s.Queued[i].Block, ok = bodyAt(entries, s.Queued[i].Source); !ok {
			return s, false
		}
	}
	s.enter(entries[i])
	return s, true
}

// bodyAt returns the block that a source names. A block of another run is never found.
func bodyAt(entries []Entry, from Source) (Block, bool) {
	i := from.Seq - entries[0].Seq
	if from.Run != "" || i < 0 || i >= int64(len(entries)) || from.Event >= len(entries[i].Events) {
		return nil, false
	}
	blocks := blocksOf(entries[i].Events[from.Event])
	if from.Part < 0 || from.Part >= len(blocks) {
		return nil, false
	}
	return blocks[from.Part], true
}

// blocksOf returns the blocks that an event adds to the conversation, in the order in which Apply counts them.
func blocksOf(e Event) []Block {
	switch e := e.(type) {
	case RunStarted:
		return userBlocks(e.Messages)
	case InputReceived:
		return userBlocks(e.Blocks)
	case Replied:
		return e.blocks()
	case ContextBuilt:
		return Map(e.Messages, func(m BuiltMessage) Block { return m.Content.Block })
	case CallFinished:
		return e.result().blocks(e.Call)
	case LateResult:
		return e.result().blocks(e.Call)
	case Answered:
		return e.result().blocks(e.Call)
	case Decided:
		return Result{Content: e.Text, IsError: true}.blocks(e.Call)
	case CallCancelled:
		return Result{Content: e.Content, IsError: true}.blocks(e.Call)
	case Hooked:
		return Map(e.Texts, PluginText.block)
	case PermissionAnswered:
		return []Block{Text{Text: e.Text}}
	case UndoOrdered:
		return []Block{e.Call.use()}
	case PlanEvent:
		return []Block{e.Fact().block()}
	default:
		return nil
	}
}

func userBlocks(blocks []UserBlock) []Block {
	return Map(blocks, func(b UserBlock) Block { return b.Block })
}
