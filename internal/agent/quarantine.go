package agent

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A table that was restored from an older copy holds runs that may be behind what really happened: their tools may have run, people may have
// decided. Such a run is quarantined: it is parked on a person, and nothing of it runs until that person releases it. Who is wrong about a
// run in quarantine has delayed it; who is wrong about one that is not has paid twice.

// Quarantine is why a run stands still until a person releases it. The zero value is valid only with a Why.
type Quarantine struct {
	Why     QuarantineReason `json:"why"`
	Seq     int64            `json:"seq"`             // of the entry that quarantined the run
	Copied  time.Time        `json:"copied,omitzero"` // when the copy that was restored had been made, as the operator said; zero = nobody said
	Since   time.Time        `json:"since"`
	Expires time.Time        `json:"expires"` // when the run ends if nobody releases it
}

// String says all of it.
func (q *Quarantine) String() string {
	if q == nil {
		return "none"
	}
	return fmt.Sprintf("%s at entry %d, %s to %s, copy of %s", q.Why, q.Seq, q.Since.UTC().Format(time.RFC3339), q.Expires.UTC().Format(time.RFC3339),
		q.Copied.UTC().Format(time.RFC3339))
}

// QuarantineReason says how it was seen that a run may be behind what happened.
type QuarantineReason string

// The reasons.
const (
	QuarantineMarked    QuarantineReason = "marked"    // an operator said that the table was restored, and nothing proves that the run was not touched since the copy
	QuarantineAhead     QuarantineReason = "ahead"     // an execution knows of entries that are not in the journal
	QuarantineFinished  QuarantineReason = "finished"  // the execution that owns the run has ended well, which it does at the run's end alone
	QuarantineSuccessor QuarantineReason = "successor" // an execution has been started that no entry names
	QuarantineVanished  QuarantineReason = "vanished"  // the execution that wrote the newest entries does not exist
)

// QuarantineExpiry is how long a run stays in quarantine unless a person releases or cancels it: then it ends in error, with code restored.
const QuarantineExpiry = 30 * 24 * time.Hour

// CodeRestored says that a run was quarantined after a restore and nobody released it.
const CodeRestored ErrorCode = "restored"

// Quarantined parks a run on a person's word that it may go on, and makes Owner the execution that waits for it. A generation that is not
// the run's own leaves room for those whose executions exist though no entry names them: the owner's generation marks the restore.
type Quarantined struct {
	Why        QuarantineReason `json:"why"`
	Owner      string           `json:"owner"`
	Generation int64            `json:"gen"`
	Copied     time.Time        `json:"copied,omitzero"`
	Expires    time.Time        `json:"expires"`
}

// Released is a person's word that a run in quarantine may go on from where its journal is.
type Released struct {
	Slot int64  `json:"slot"`
	Seq  int64  `json:"seq"` // of the entry that quarantined it; a word on another quarantine is none on this
	By   string `json:"by"`
	Note string `json:"note,omitempty"`
}

func (Quarantined) event() {}
func (Released) event()    {}

func (s *AgentState) applyQuarantine(e Event) (known bool, err error) {
	switch e := e.(type) {
	case Quarantined:
		return true, s.quarantined(e)
	case Released:
		if s.Quarantine != nil && s.Quarantine.Seq == e.Seq {
			s.Quarantine = nil
		}
		return true, nil
	default:
		return false, nil
	}
}

func (s *AgentState) quarantined(e Quarantined) error {
	switch {
	case e.Why == "" || e.Owner == "" || e.Expires.IsZero():
		return &ApplyError{Event: "quarantined", Problem: "a reason, an owner and an expiry are required"}
	case e.Owner == s.Owner && e.Generation != s.Generation || e.Owner != s.Owner && e.Generation <= s.Generation:
		return &ApplyError{Event: "quarantined", Problem: fmt.Sprintf("generation %d of %s, behind generation %d of %s", e.Generation, e.Owner, s.Generation, s.Owner)}
	}
	if e.Owner != s.Owner {
		s.FormerOwner, s.Owner = s.Owner, e.Owner
		s.Generation, s.Epoch = e.Generation, e.Generation
		s.OwnedSince = s.head.seq
	}
	s.Quarantine = &Quarantine{Why: e.Why, Seq: s.head.seq, Copied: e.Copied, Since: s.head.time, Expires: e.Expires}
	return nil
}

// epochLength is how many generations an epoch has room for: those of a run that was never restored stay far below the first.
const epochLength = 1000

// NextEpoch is the first generation of an epoch that begins now: its executions have names that none has had, in this table, in what was lost,
// or in one that was restored another time.
func NextEpoch(generation int64, now time.Time) int64 {
	return epochLength * max(generation/epochLength+1, now.Unix()/60)
}

// Witness is what an invocation knows of its run by what it was handed: entries that were in the journal when it was.
type Witness struct {
	Run       string
	Execution string // its name
	Woken     int64  // the wait that has ended
	Seq       int64  // the newest entry that the invocation before it knew
	At        int64  // the hint where the live part of the journal begins
}

// Ahead reports whether a witness knows of entries that are not in the journal that s was folded from, which is read consistently: the table
// is an older copy. An execution that the run has handed over from, here or after a restore, is no witness: it is turned away. A run
// that is done has nothing that could be done again.
func (w Witness) Ahead(s *AgentState) bool {
	if s.Status == RunDone || s.Status == "" {
		return false
	}
	return w.Execution == s.Owner && max(w.Woken, w.Seq, w.At) > s.Seq() || w.generation() > s.Generation
}

// generation is that of an execution that is named as owners are, RUN-GENERATION; -1 of any other.
func (w Witness) generation() int64 {
	n, ok := strings.CutPrefix(w.Execution, w.Run+"-")
	if !ok {
		return -1
	}
	g, err := strconv.ParseInt(n, 10, 64)
	if err != nil || g < 0 || strconv.FormatInt(g, 10) != n {
		return -1
	}
	return g
}

// QuarantineEnd is the end of a run that nobody has released in time.
func QuarantineEnd(q Quarantine) Finished {
	return Fail(CodeRestored, fmt.Sprintf("the table was restored from an older copy; the run was quarantined at %s and nobody released it",
		q.Since.UTC().Format(time.RFC3339)))
}

// MayRelease reports whether p may let a run of the agent out of quarantine: who may approve its calls, as far as no rule names others.
func MayRelease(d *Definition, p Principal) bool { return MayDecide(d.Permission.Approvers, p) }

// OpenOnRelease lists the calls that run, or are looked into, as soon as a run is released: those that nobody is asked about. Where the journal is
// behind, each of them may have run.
func (s *AgentState) OpenOnRelease() []Call {
	var out []Call
	for _, c := range s.Live {
		if c.Open() && c.Status != StatusSuspended {
			out = append(out, c)
		}
	}
	return out
}
