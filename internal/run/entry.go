package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
)

// Checkpoint is a point of the conversation that an entry makes durable (seed 001, checkpoint triggers).
type Checkpoint string

// The checkpoint kinds.
const (
	CheckpointUserMessage   Checkpoint = "UserMessage"
	CheckpointAssistantTurn Checkpoint = "AssistantTurnCommitted"
	CheckpointToolResults   Checkpoint = "ToolResultsCommitted"
	CheckpointRunFinished   Checkpoint = "RunFinished"
)

// Entry is one journal entry: what one invocation committed at once. Sequences are contiguous from 0.
type Entry struct {
	Seq        int64
	Generation int64  // generation of the owner that wrote the entry
	Writer     string // random for each invocation
	Time       time.Time
	Kinds      []Checkpoint
	Events     []Event
	Snapshot   json.RawMessage // state after this entry; nil = none. See Restore
	Prev       string          // Hash of the entry before; "" = there is none

	hash string // hash of the stored form; "" = not computed yet
}

// Hash returns the hexadecimal SHA-256 of the stored entry, or "" if the entry cannot be stored. Every entry contains
// the hash of the one before. So the hash of one entry proves that none up to it was changed, removed or added.
func (e Entry) Hash() string {
	if e.hash != "" {
		return e.hash
	}
	body, err := MarshalEntry(e)
	if err != nil {
		return ""
	}
	return HashBody(body)
}

// HashBody returns the Hash of a stored entry.
func HashBody(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// ApplyEntry applies all events of the next entry, or none. A known entry changes nothing. A gap is an error.
func ApplyEntry(s AgentState, e Entry) (AgentState, error) {
	switch {
	case e.Seq < s.Entries:
		return s, nil
	case e.Seq != s.Entries:
		return s, fmt.Errorf("apply entry %d: the journal has a gap after %d", e.Seq, s.Seq())
	case s.Status == RunDone:
		return s, fmt.Errorf("apply entry %d: the run ended at %d", e.Seq, s.Seq())
	case e.Prev != "" && e.Prev != s.hash:
		return s, fmt.Errorf("apply entry %d: it follows another entry %d than the one that is there", e.Seq, s.Seq())
	}
	d := Draft{State: s, Entry: Entry{Seq: e.Seq, Writer: e.Writer, Time: e.Time}}
	if err := d.Add(e.Events...); err != nil {
		return s, fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	d.State.enter(e)
	return d.State, nil
}

// enter makes e the newest entry of the run. Its events have been applied.
func (s *AgentState) enter(e Entry) {
	s.head = entryHead{seq: e.Seq, writer: e.Writer, time: e.Time}
	s.Entries, s.UpdatedAt, s.hash = e.Seq+1, e.Time, e.Hash()
	if e.Snapshot == nil {
		return
	}
	from := s.Seq() // the entry with the oldest live body, where a reader of the snapshot begins
	for _, m := range s.Messages.All() {
		from = min(from, m.Source.Seq)
	}
	for _, q := range s.Queued {
		from = min(from, q.Source.Seq)
	}
	s.snapped = 1 + max(0, from)
}

// Fold rebuilds a run from its entries, in order, starting with s (the zero state for a whole journal).
func Fold(s AgentState, entries []Entry) (AgentState, error) {
	for _, e := range entries {
		var err error
		if s, err = ApplyEntry(s, e); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Draft plans one entry. Events are applied as they are added, so that the next decision sees them. The zero Draft is
// not valid; use NewDraft. A Draft is not safe for concurrent use.
type Draft struct {
	State  AgentState
	Entry  Entry
	Before AgentState // the state the draft began with; must not be changed

	stored []byte // the stored form of Entry, kept until Entry changes; nil = not made yet
	sized  int    // so many of the entry's events have size bytes
	size   int
}

// NewDraft starts the entry after s.
func NewDraft(s AgentState, writer string, now time.Time) *Draft {
	return &Draft{State: s, Before: s, Entry: Entry{Seq: s.Entries, Generation: s.Generation, Writer: writer,
		Time: now.UTC().Truncate(time.Millisecond), Prev: s.hash}}
}

// Add applies events and adds them to the entry. After an error the draft must be thrown away.
func (d *Draft) Add(events ...Event) error {
	d.changed()
	for _, e := range events {
		d.State.head = entryHead{seq: d.Entry.Seq, event: len(d.Entry.Events), writer: d.Entry.Writer, time: d.Entry.Time}
		next, err := Apply(d.State, e)
		if err != nil {
			return err
		}
		d.State = next
		d.Entry.Events = append(d.Entry.Events, e)
	}
	return nil
}

// Clone returns an independent copy of the draft.
func (d *Draft) Clone() *Draft {
	c := *d
	c.Entry.Events = append([]Event(nil), d.Entry.Events...)
	c.Entry.Kinds = append([]Checkpoint(nil), d.Entry.Kinds...)
	return &c
}

// Mark adds checkpoints to the entry, each kind once.
func (d *Draft) Mark(kinds ...Checkpoint) {
	d.changed()
	for _, k := range kinds {
		if !slices.Contains(d.Entry.Kinds, k) {
			d.Entry.Kinds = append(d.Entry.Kinds, k)
		}
	}
}

// changed drops the stored form, because the entry has changed.
func (d *Draft) changed() { d.stored, d.Entry.hash = nil, "" }

// Stored returns the stored form of the entry. The form is made once and kept until the entry changes.
func (d *Draft) Stored() (body []byte, err error) {
	if d.stored == nil {
		if d.stored, err = MarshalEntry(d.Entry); err == nil {
			d.Entry.hash = HashBody(d.stored)
		}
	}
	return d.stored, err
}

// Committed returns the state after the entry is in the journal.
func (d *Draft) Committed() AgentState {
	s := d.State
	_, _ = d.Stored() // sets the hash; an entry that cannot be stored has none
	s.enter(d.Entry)
	return s
}

// Size returns the length in bytes of the entry's events in stored form.
func (d *Draft) Size() int {
	for ; d.sized < len(d.Entry.Events); d.sized++ {
		raw, _ := MarshalEvent(d.Entry.Events[d.sized]) // an event that cannot be stored fails with its entry
		d.size += len(raw)
	}
	return d.size
}

// Empty reports whether nothing has been added.
func (d *Draft) Empty() bool { return len(d.Entry.Events) == 0 }

// entryForm is the stored form of an entry. Keys are short because every iteration pays for them. Required fields are
// pointers, so that a reader notices missing ones.
type entryForm struct {
	Version    *int              `json:"v"`
	Seq        *int64            `json:"s"`
	Generation int64             `json:"g,omitempty"`
	Writer     *string           `json:"w"`
	Time       *int64            `json:"t"` // milliseconds since 1970
	Kinds      []string          `json:"k,omitempty"`
	Events     []json.RawMessage `json:"e"`
	Snapshot   json.RawMessage   `json:"p,omitempty"`
	Prev       string            `json:"h,omitempty"`
}

const entryVersion = 1

var formKinds = map[string]Checkpoint{
	"U": CheckpointUserMessage, "A": CheckpointAssistantTurn, "T": CheckpointToolResults, "R": CheckpointRunFinished,
}

// MarshalEntry returns the stored form of an entry.
func MarshalEntry(e Entry) ([]byte, error) {
	f := entryForm{
		Version: new(entryVersion), Seq: &e.Seq, Generation: e.Generation, Writer: &e.Writer,
		Time: new(e.Time.UnixMilli()), Snapshot: e.Snapshot, Prev: e.Prev, Events: []json.RawMessage{},
	}
	for _, k := range e.Kinds {
		form := string(k)[:min(1, len(k))]
		if kind, ok := formKinds[form]; !ok || kind != k {
			return nil, fmt.Errorf("marshal entry %d: %q is no checkpoint", e.Seq, k)
		}
		f.Kinds = append(f.Kinds, form)
	}
	for _, ev := range e.Events {
		raw, err := MarshalEvent(ev)
		if err != nil {
			return nil, fmt.Errorf("marshal entry %d: %w", e.Seq, err)
		}
		f.Events = append(f.Events, raw)
	}
	return jsonx.MarshalVerbatim(f)
}

// UnmarshalEntry parses the stored form of an entry.
func UnmarshalEntry(data []byte) (Entry, error) {
	var f entryForm
	if _, err := jsonx.CompactJSON(data, jsonx.StoredLimits(data)); err != nil {
		return Entry{}, fmt.Errorf("unmarshal entry: %w", err)
	}
	err := jsonx.ReadChecked("entry", data, &f)
	if f.Version != nil && *f.Version != entryVersion { // checked first, since another version may have any keys
		err = fmt.Errorf("v: got %d, want %d", *f.Version, entryVersion)
	}
	for _, part := range []struct {
		key     string
		missing bool
	}{{"v", f.Version == nil}, {"s", f.Seq == nil}, {"w", f.Writer == nil}, {"t", f.Time == nil}, {"e", f.Events == nil}} {
		if err == nil && part.missing {
			err = fmt.Errorf("%s: missing", part.key)
		}
	}
	switch {
	case err != nil && f.Seq == nil:
		return Entry{}, fmt.Errorf("unmarshal entry: %w", err)
	case err != nil:
		return Entry{}, fmt.Errorf("unmarshal entry %d: %w", *f.Seq, err)
	}
	e := Entry{Seq: *f.Seq, Generation: f.Generation, Writer: *f.Writer, Time: time.UnixMilli(*f.Time).UTC(),
		Snapshot: f.Snapshot, Prev: f.Prev, hash: HashBody(data)}
	for _, form := range f.Kinds {
		k, ok := formKinds[form]
		if !ok {
			return Entry{}, fmt.Errorf("unmarshal entry %d: checkpoint: want one of: U, A, T, R", e.Seq)
		}
		e.Kinds = append(e.Kinds, k)
	}
	for i, raw := range f.Events {
		ev, err := UnmarshalEvent(raw)
		if err != nil {
			return Entry{}, fmt.Errorf("unmarshal entry %d event %d: %w", e.Seq, i, err)
		}
		e.Events = append(e.Events, ev)
	}
	return e, nil
}
