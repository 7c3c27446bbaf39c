package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"go.etcd.io/bbolt"

	"github.com/countersign/countersign/internal/store"
)

// pending is a Write that waits for its commit.
type pending struct {
	ops  []store.Op
	done chan struct{} // closed when err is final
	err  error
}

// Write implements store.Table. Writes that arrive during a commit queue up; the next leader commits all of them with
// one sync. Each is decided separately, in order, against the writes before it in the group, and is written whole or
// not at all. A queued Write is not given up, so its context is only checked before.
//
// An error of the commit itself (a full disk) means that the outcome is unknown, by the port's contract. Usually
// nothing was written and the table continues to work. If that cannot be determined, this and every later call return
// ErrUnknownState.
func (t *Table) Write(ctx context.Context, ops ...store.Op) error {
	if err := cmp.Or(ctx.Err(), store.CheckOps(ops)); err != nil {
		return err
	}
	p := &pending{ops: ops, done: make(chan struct{})}
	t.mu.Lock()
	t.queue = append(t.queue, p)
	t.mu.Unlock()
	select {
	case <-p.done:
	case t.lead <- struct{}{}:
		t.mu.Lock()
		group := t.queue
		t.queue = nil
		t.mu.Unlock()
		t.commit(group)
		<-t.lead
		<-p.done // closed by this commit or an earlier one, since p was queued before both
	}
	return p.err
}

// errNothing rolls back a transaction in which no Write of the group succeeded, because nothing has to be synced.
var errNothing = errors.New("nothing to commit")

// commit decides and writes a group. If the transaction fails, the whole group fails, because what one Write saw of
// another was never stored.
func (t *Table) commit(group []*pending) {
	if len(group) == 0 {
		return
	}
	err := t.update(func(b buckets) error {
		written := false
		for _, p := range group {
			var changes []store.Change
			changes, p.err = store.Decide(p.ops, b.get)
			if p.err != nil {
				continue // refused by its own conditions or items
			}
			for _, c := range changes {
				if err := b.put(c); err != nil {
					return err
				}
			}
			written = true
		}
		if !written {
			return errNothing
		}
		return nil
	})
	for _, p := range group {
		if err != nil {
			p.err = fmt.Errorf("write %d operations to store %s: %w", len(p.ops), t.path, withErrno(err))
		}
		close(p.done)
	}
}

// withErrno restores the error number of a full disk: bbolt keeps only the text if a file cannot grow.
func withErrno(err error) error {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if !errors.Is(err, full) && strings.HasSuffix(err.Error(), full.Error()) {
			return fmt.Errorf("%w: %w", err, full)
		}
	}
	return err
}

// notBegun is the number of no transaction.
const notBegun = 0

// update runs one transaction and syncs it.
func (t *Table) update(write func(buckets) error) error {
	if err := t.failure(); err != nil {
		return err
	}
	attempt := notBegun
	err := recoverDamage(func() error {
		return t.db.Update(func(tx *bbolt.Tx) error {
			attempt = tx.ID()
			return write(bucketsOf(tx))
		})
	})
	if err == nil || errors.Is(err, errNothing) {
		return nil
	}
	return t.checkDoubtfulCommit(attempt, err)
}

// checkDoubtfulCommit checks whether the transaction whose commit failed is visible nevertheless. Then its pages may
// not have reached the disk, while bbolt counts them as used and the replaced pages as free. Continuing could read
// pages that may be lost and overwrite pages in use. The same may be true after a panic, when bbolt's locks may still
// be held. Such a table becomes unusable.
func (t *Table) checkDoubtfulCommit(attempt int, cause error) error {
	if attempt != notBegun {
		newest := attempt // the newest transaction on disk; if unknown, it may be this one
		err := recoverDamage(func() error {
			return t.db.View(func(tx *bbolt.Tx) error {
				newest = tx.ID()
				return nil
			})
		})
		if err == nil && newest < attempt {
			attempt = notBegun
		}
	}
	if attempt == notBegun && !errors.Is(cause, store.ErrDamaged) {
		return cause
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = fmt.Errorf("%w: %w", ErrUnknownState, cause)
	return t.fault
}
