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

// Write implements store.Table. Whoever comes while a commit is under way queues; the next to lead commits all that are
// queued with one sync. Each is decided by itself, in turn, against what those before it in the group have written, and
// is written whole or not at all. Once queued a Write is not given up: its context is looked at before.
//
// An error of the commit itself (a full disk) is uncertain by the port's contract. Mostly nothing was written and the
// table goes on; when that cannot be known, it and every later call match ErrUnsure.
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
		<-p.done // this commit's or an earlier one's: it was queued before either
	}
	return p.err
}

// errNothing rolls back a transaction in which no Write of the group came through: there is nothing to sync.
var errNothing = errors.New("nothing to commit")

// commit decides and writes a group. If the transaction fails, all of the group fail with it: what one saw of another
// was never stored.
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
				continue // its own conditions or items refuse it, and nothing else
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

// withErrno restores the number of a full-disk error: bbolt keeps the text alone if a file cannot grow.
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

// checkDoubtfulCommit looks whether the transaction whose commit failed can be seen all the same. Then its pages may
// not have reached the disk while bbolt takes the pages it replaced for used and its own for free: going on would read
// what may be lost and write over what is in use. After a panic the same may be true and bbolt's locks may be held.
// Such a table is of no more use.
func (t *Table) checkDoubtfulCommit(attempt int, cause error) error {
	if attempt != notBegun {
		newest := attempt // the newest transaction on disk; if that is unknown, it may be this one
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
	t.fault = fmt.Errorf("%w: %w", ErrUnsure, cause)
	return t.fault
}
