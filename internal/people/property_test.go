package people

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
)

// errDied ends whoever sweeps in the middle of what they do.
var errDied = errors.New("the process died")

// dies has the table or the channels fail from their n-th call on, as a process that is gone. It gives what brings the next one up.
func (w *fixture) dies(n int) (restart func()) {
	calls := 0
	gone := func() error {
		if calls++; calls >= n {
			return errDied
		}
		return nil
	}
	w.onWrite(gone)
	w.email.beforeSend, w.slack.beforeSend = gone, gone
	return func() {
		w.onWrite(nil)
		w.email.beforeSend, w.slack.beforeSend = nil, nil
	}
}

// TestA15EveryDutyIsDone: whatever is decided, expires or escalates, in whatever order, and whoever dies at what point, every approver is told
// and reminded, escalation happens, no message asks for what its sender had read to be decided, and in the end nothing is due.
func TestA15EveryDutyIsDone(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newFixture(t)
		a := newRequest()
		if rapid.Bool().Draw(r, "reminds") {
			remindEvery(time.Duration(rapid.IntRange(1, 12).Draw(r, "every")) * time.Hour)(&a)
		}
		if rapid.Bool().Draw(r, "escalates") {
			escalatesTo(time.Duration(rapid.IntRange(1, 23).Draw(r, "after"))*time.Hour, "group:board")(&a)
		}
		w.store(a)
		deeds := map[string]func(r *rapid.T){
			"asked": func(*rapid.T) {
				_, _ = w.n.processRequests(context.Background(), acme, passOptions{createsNotice: true, ignoresDue: true}, "a1")
			},
			"sweep": func(*rapid.T) { _, _ = w.n.ProcessDue(context.Background(), 100) },
			"time": func(r *rapid.T) {
				w.clock.AdvanceTo(w.clock.Now().Add(time.Duration(rapid.IntRange(1, 300).Draw(r, "minutes")) * time.Minute))
			},
			"dies": func(r *rapid.T) {
				restart := w.dies(rapid.IntRange(1, 12).Draw(r, "at"))
				_, _ = w.n.ProcessDue(context.Background(), 100)
				restart()
			},
			"dies asking": func(r *rapid.T) {
				restart := w.dies(rapid.IntRange(1, 12).Draw(r, "at"))
				_, _ = w.n.processRequests(context.Background(), acme, passOptions{createsNotice: true, ignoresDue: true}, "a1")
				restart()
			},
			"another sweeps meanwhile": func(r *rapid.T) {
				other := w.notifier()
				w.table.Use(fault.OnlyIf(fault.IsWrite, fault.Nth(rapid.IntRange(1, 6).Draw(r, "at"), fault.Before(func() error {
					_, err := other.ProcessDue(context.Background(), 100)
					return err
				}))))
				_, _ = w.n.ProcessDue(context.Background(), 100)
				w.table.Use(nil)
			},
			"fails": func(r *rapid.T) { w.slack.failures = rapid.IntRange(0, 2).Draw(r, "fails") },
			"decide": func(r *rapid.T) {
				if w.load().Status != approval.Pending {
					return
				}
				as := rapid.SampledFrom([]approval.Status{approval.Approved, approval.Denied, approval.Cancelled, approval.Voided}).Draw(r, "as")
				if !w.clock.Now().Before(a.ExpiresAt) {
					as = approval.Expired
				}
				a := w.closeAs(as)
				if rapid.Bool().Draw(r, "told") {
					restart := w.dies(rapid.IntRange(1, 12).Draw(r, "at"))
					w.n.NotifyChange(context.Background(), a)
					restart()
				}
			},
		}
		for _, deed := range rapid.SliceOfN(rapid.SampledFrom(names(deeds)), 0, 20).Draw(r, "deeds") {
			deeds[deed](r)
		}
		w.slack.failures = 0
		if s := w.load(); s.Status == approval.Pending {
			_, err := w.n.EnsureNotified(context.Background(), s)
			require.NoError(r, err)
			sweepUntil(r, w, a.ExpiresAt.Add(-time.Second))
			w.everyDuty(r, w.load())
			w.clock.AdvanceTo(a.ExpiresAt)
			w.closeAs(approval.Expired)
		}
		sweepUntil(r, w, w.clock.Now().Add(48*time.Hour))
		require.Equal(r, time.Duration(-1), w.nextDue(), "nothing is due in the end")
		for _, m := range w.sent {
			require.Equal(r, approval.Pending, m.status, "%v", m)
		}
		w.everyMessageShows(r, w.load().Status)
	})
}

// sweepUntil sweeps every five minutes, as the schedule does, where anything is due.
func sweepUntil(r *rapid.T, w *fixture, end time.Time) {
	for w.clock.Now().Before(end) {
		next := min(w.clock.Now().Add(5*time.Minute).Sub(day), end.Sub(day))
		if due := w.nextDue(); due > next {
			next = min(due, end.Sub(day))
		} else if due < 0 {
			return
		}
		w.clock.AdvanceTo(day.Add(next))
		_, err := w.n.ProcessDue(context.Background(), 100)
		require.NoError(r, err)
	}
}

// everyDuty wants of a request that was pending until its end that everybody was told and reminded, and that it has escalated.
func (w *fixture) everyDuty(r *rapid.T, a approval.Approval) {
	require.Equal(r, a.EscalatesAt.IsZero(), a.EscalatedAt.IsZero())
	seats := map[string]time.Time{"user:ana email": a.RequestedAt, "user:ana slack": a.RequestedAt, "user:ben email": a.RequestedAt}
	if !a.EscalatedAt.IsZero() {
		seats["user:cleo slack"] = a.EscalatedAt
	}
	last := remindersDue(a, w.clock.Now())
	for seat := range seats {
		var got []message
		for _, m := range w.sent {
			if m.to+" "+m.channel == seat {
				got = append(got, m)
			}
		}
		require.NotEmpty(r, got, seat)
		require.NotEqual(r, Reminder, got[0].occasion, seat)
		require.Equal(r, last, remindersDue(a, got[len(got)-1].at), "%s has the newest reminder", seat)
	}
}

// everyMessageShows wants every message that can be updated to show the outcome.
func (w *fixture) everyMessageShows(r *rapid.T, status approval.Status) {
	for _, ref := range w.refsKept(r) {
		require.True(r, slices.Contains(w.updated, ref+" "+string(status)), "%s shows %s: %v", ref, status, w.updated)
	}
}

// refsKept are the messages that the notice knows of. One of a process that died before it said so is nobody's.
func (w *fixture) refsKept(r *rapid.T) []string {
	n, err := loadNotice(context.Background(), w.table, acme, "a1")
	require.NoError(r, err)
	var refs []string
	for _, t := range n.Contacts {
		refs = append(refs, t.Refs...)
	}
	return refs
}

func names[V any](m map[string]V) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}

// TestC3TwoAtOnce: two sweeps at once send what is due once, unless one of them was dead; a decision in the middle is heard.
func TestC3TwoAtOnce(t *testing.T) {
	w := newFixture(t)
	w.store(newRequest(remindEvery(time.Hour)))
	w.notifyPeople()
	w.takeSent()
	w.clock.AdvanceTo(day.Add(time.Hour))
	other := w.notifier()
	w.table.Once(fault.IsWrite, fault.Before(func() error { // right before the first one's claim
		_, err := other.ProcessDue(context.Background(), 10)
		return err
	}))
	did, err := w.n.ProcessDue(context.Background(), 10)
	require.NoError(t, err)
	require.Empty(t, did)
	require.Len(t, w.takeSent(), 3)

	w.clock.AdvanceTo(day.Add(2 * time.Hour))
	w.slack.beforeSend = func() error { // while messages go out
		w.slack.beforeSend = nil
		other.NotifyChange(context.Background(), w.closeAs(approval.Approved))
		return nil
	}
	_, err = w.n.ProcessDue(context.Background(), 10)
	require.NoError(t, err)
	for ref := 1; ref <= w.refs; ref++ {
		require.Contains(t, w.updated, fmt.Sprintf("C%d approved", ref))
	}
	require.Equal(t, time.Duration(-1), w.nextDue())
}

// FuzzDueItem: a place of the index is read as what it was written for, or it is none.
func FuzzDueItem(f *testing.F) {
	f.Add("0000000005000#acme#r1#a1")
	f.Add("5000#acme#r#a#1")
	f.Add("-1###")
	f.Fuzz(func(t *testing.T, sort string) {
		at, tenant, run, id, err := parseDueSortKey(sort)
		if err != nil {
			return
		}
		again, sameTenant, sameRun, sameID, err := parseDueSortKey(dueSortKey(at, tenant, run, id))
		require.NoError(t, err)
		require.Equal(t, []any{at, tenant, run, id}, []any{again, sameTenant, sameRun, sameID})
	})
}
