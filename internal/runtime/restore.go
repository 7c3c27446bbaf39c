package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
)

// Tokens looks at task tokens where executions were not restored along with the table: a wait that goes on has not been woken since the copy.
type Tokens interface {
	// Waits reports whether a token's wait goes on.
	Waits(ctx context.Context, token string) (bool, error)
}

// Restore quarantines the runs of a table that was restored from an older copy, on an operator's word. Every run that is open is, but those of
// which a task token proves that nobody has woken them since; those that are done have nothing that could be done again.
//
// It keeps the operator's word and its place in the table (PK "RESTORE", SK "MARK"). While the word is not carried out, no sweep repairs
// anything: it goes on with this instead. It may be repeated at any point.
type Restore struct {
	Sweeper *Sweeper
	Tenants Tenants
	Tokens  Tokens // nil = nothing proves anything: executions may be as old as the table, or gone
}

// Mark is an operator's word that a table was restored, and how far it is carried out.
type Mark struct {
	Copied      time.Time `json:"copied"` // when the copy had been made
	By          string    `json:"by"`
	Since       time.Time `json:"since"`             // when the word was given
	Tenant      string    `json:"tenant"`            // the last of those it is carried out for; "" = the first is under way
	Quarantined int64     `json:"quarantined"`       // runs
	Untouched   int64     `json:"untouched"`         // open runs that were left alone: somebody still waits for them as they are
	Damaged     int64     `json:"damaged,omitempty"` // runs that could not be quarantined, as they cannot be read: nobody can go on with them either
	Complete    bool      `json:"complete"`
}

var markKey = store.Key{PK: "RESTORE", SK: "MARK"}

// The errors of a Restore.
var (
	ErrMarkLater = errors.New("the copy cannot be newer than now")
	ErrMarkOther = errors.New("another restore is marked and not carried out")
)

// ReadMark is the newest mark; found is false where the table was never restored.
func ReadMark(ctx context.Context, t store.Table) (m Mark, found bool, err error) {
	it, found, err := t.Get(ctx, markKey)
	if err != nil || !found {
		return Mark{}, false, wrapMark(err)
	}
	if err := agent.ReadStored("mark", it.Body, &m); err != nil {
		return Mark{}, false, wrapMark(store.Unreadable(it.Key, err))
	}
	if m.Copied.IsZero() || m.Since.IsZero() {
		return Mark{}, false, wrapMark(store.Damaged(it.Key, "copied and since: got nothing, want when"))
	}
	return m, true, nil
}

func wrapMark(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the mark of a restore: %w", err)
}

// Mark keeps an operator's word that the table is a copy of that time, and carries it out as far as ctx allows. The same word again goes on with
// it, and does nothing once it is carried out; a word on another copy is one on another restore.
func (r *Restore) Mark(ctx context.Context, copied time.Time, by string) (Mark, error) {
	now := r.Sweeper.Clock.Now().UTC().Truncate(time.Millisecond)
	if copied.IsZero() || copied.After(now) {
		return Mark{}, fmt.Errorf("mark the restore of a copy of %s: %w", copied.Format(time.RFC3339), ErrMarkLater)
	}
	m, found, err := ReadMark(ctx, r.Sweeper.Table)
	switch {
	case err != nil:
		return Mark{}, err
	case found && m.Copied.Equal(copied):
	case found && !m.Complete:
		return m, fmt.Errorf("mark the restore of a copy of %s: %w: that of %s", copied.Format(time.RFC3339), ErrMarkOther, m.Copied.Format(time.RFC3339))
	default:
		m = Mark{Copied: copied.UTC(), By: by, Since: now}
		if err := r.keep(ctx, m); err != nil {
			return m, err
		}
	}
	return r.carryOut(ctx, m)
}

// Continue carries out a mark that is not. It reports whether there was one to carry out, and how many runs it has quarantined: then nothing else may
// repair runs.
func (r *Restore) Continue(ctx context.Context) (m Mark, quarantined int64, open bool, err error) {
	before, found, err := ReadMark(ctx, r.Sweeper.Table)
	if err != nil || !found || before.Complete {
		return before, 0, false, err
	}
	m, err = r.carryOut(ctx, before)
	return m, m.Quarantined - before.Quarantined, true, err
}

// carryOut goes through the open runs of all tenants. One tenant is carried out as a whole, or again.
func (r *Restore) carryOut(ctx context.Context, m Mark) (Mark, error) {
	if m.Complete {
		return m, nil
	}
	tenants, err := r.Tenants.Tenants(ctx)
	if err != nil {
		return m, wrapMark(err)
	}
	for _, tenant := range tenants {
		if tenant <= m.Tenant {
			continue
		}
		if err := r.tenant(ctx, tenant, &m); err != nil {
			return m, errors.Join(err, r.keepCounts(ctx, m))
		}
		m.Tenant = tenant
		if err := r.keep(ctx, m); err != nil {
			return m, err
		}
	}
	m.Complete = true
	return m, r.keep(ctx, m)
}

// keepCounts keeps what is counted of a tenant that is not done: who is quarantined is not counted a second time. It may come behind the end of ctx's
// time, and is lost then.
func (r *Restore) keepCounts(ctx context.Context, m Mark) error {
	if ctx.Err() != nil {
		return nil
	}
	m.Untouched = 0 // counted again
	return r.keep(ctx, m)
}

// tenant quarantines the open runs of a tenant. Runs that are quarantined meanwhile move from one list to the other; both are gone through until
// neither has a run left.
func (r *Restore) tenant(ctx context.Context, tenant string, m *Mark) (err error) {
	untouched, damaged := m.Untouched, m.Damaged
	defer func() {
		if err != nil { // it is gone through again
			m.Damaged = damaged
		}
	}()
	for {
		found := int64(0)
		m.Untouched, m.Damaged = untouched, damaged
		for _, status := range []agent.RunStatus{agent.RunRunning, agent.RunWaiting} {
			n, err := r.list(ctx, tenant, status, m)
			if err != nil {
				return err
			}
			found += n
		}
		if found == 0 {
			return nil
		}
	}
}

func (r *Restore) list(ctx context.Context, tenant string, status agent.RunStatus, m *Mark) (quarantined int64, err error) {
	cursor := ""
	for {
		heads, next, err := r.Sweeper.Journal.List(ctx, tenant, status, sweepPage, cursor)
		unread, err := store.Spared(err)
		if err != nil {
			return quarantined, wrapMark(err)
		}
		for _, u := range unread { // the view alone: the journal says what the run is
			heads = append(heads, store.Head{Tenant: tenant, Run: store.RunOf(tenant, u.Key)})
		}
		for _, h := range heads {
			did, err := r.one(ctx, h, m)
			if errors.Is(err, store.ErrDamaged) {
				r.Sweeper.warn("quarantine run "+h.Run, err)
				m.Damaged++
				continue
			}
			if err != nil { // one of a newer version is not skipped: that version would carry it on
				return quarantined, err
			}
			if did {
				quarantined++
			}
		}
		if cursor = next; cursor == "" {
			return quarantined, nil
		}
	}
}

// one quarantines a run, unless it is done, in quarantine, or not touched since the copy. The list that named it may be late.
func (r *Restore) one(ctx context.Context, h store.Head, m *Mark) (did bool, err error) {
	for tries := (reloads{}); ; {
		did, err = r.quarantine(ctx, h, m)
		if err == nil {
			return did, nil
		}
		if again, fatal := tries.again(ctx, err); !again {
			return false, fmt.Errorf("quarantine run %s: %w", h.Run, fatal)
		}
	}
}

func (r *Restore) quarantine(ctx context.Context, h store.Head, m *Mark) (bool, error) {
	l, err := r.Sweeper.Journal.Load(ctx, h.Tenant, h.Run)
	if err != nil || l.State.Status == agent.RunDone {
		return false, err
	}
	if q := l.State.Quarantine; q != nil {
		return false, nil
	}
	untouched, err := r.untouched(ctx, &l.State)
	if err != nil {
		return false, err
	}
	if untouched {
		m.Untouched++
		return false, nil
	}
	if _, err := r.Sweeper.quarantine(ctx, l, agent.QuarantineMarked, m.Copied); err != nil {
		return false, err
	}
	m.Quarantined++
	return true, nil
}

// untouched reports whether the run waits as it did when the copy was made: the token that the copy has of its wait is not used up. What was
// accepted since and has woken nobody is lost with the table, and nothing was done about it.
func (r *Restore) untouched(ctx context.Context, s *agent.AgentState) (bool, error) {
	if r.Tokens == nil || s.Status != agent.RunWaiting {
		return false, nil
	}
	h, err := r.Sweeper.Journal.Head(ctx, s.Tenant, s.Run)
	if errors.Is(err, store.ErrDamaged) { // it proves nothing
		return false, nil
	}
	if err != nil || h.Token == "" || h.WaitSeq != s.WaitSeq {
		return false, err
	}
	return r.Tokens.Waits(ctx, h.Token)
}

func (r *Restore) keep(ctx context.Context, m Mark) error {
	body, err := json.Marshal(m)
	if err != nil {
		return wrapMark(err)
	}
	return wrapMark(r.Sweeper.Table.Write(ctx, store.Op{Kind: store.Put, Item: store.Item{Key: markKey, Body: body}}))
}
