package audit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// audited is the machine's desk behind one that audits.
func (w *world) audited(warned *[]error) *audit.Desk {
	a := w.auditor(1)
	var mu sync.Mutex
	return &audit.Desk{Next: w.machine.Desk, Recorder: a.Log, Run: a.Run, Clock: w.clock, Warn: func(_ string, err error) {
		mu.Lock()
		defer mu.Unlock()
		*warned = append(*warned, err)
	}}
}

// waiting is the one request of a run that waits.
func (w *world) waiting(run string) approval.Approval {
	synctest.Wait()
	all := w.requests()[run]
	require.Len(w.t, all, 1)
	return all[0]
}

// of are the records of a kind.
func of(all []audit.Record, kind audit.Kind) []audit.Record {
	var out []audit.Record
	for _, r := range all {
		if r.Kind == kind {
			out = append(out, r)
		}
	}
	return out
}

// C5, A9: who is refused leaves one record a person, request and action, however often they try, and nothing of what they said; who names what
// is not there leaves none.
func TestC5RefusalsAreAuditedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var warned []error
		desk := w.audited(&warned)
		a := w.waiting(w.start("calls", "k", 1))
		deny := approval.Request{Tenant: tenant, ID: a.ID, Action: approval.Deny, By: eve, Note: secret, Via: approval.ViaPage}
		for range 5 {
			time.Sleep(time.Second)
			_, err := desk.Decide(w.ctx, deny)
			require.ErrorIs(t, err, approval.ErrForbidden)
		}
		deny.Action = approval.Approve
		_, err := desk.Decide(w.ctx, deny)
		require.ErrorIs(t, err, approval.ErrForbidden)
		deny.ID = run.ApprovalID("r", "c", 1)
		_, err = desk.Decide(w.ctx, deny)
		require.ErrorIs(t, err, approval.ErrNotFound)
		deny.Tenant, deny.ID = "globex", a.ID
		_, err = desk.Decide(w.ctx, deny)
		require.ErrorIs(t, err, approval.ErrNotFound)

		s, err := w.machine.Ports.Journal.Load(w.ctx, tenant, a.Run)
		require.NoError(t, err)
		for range 2 {
			carry, err := desk.Direct(w.ctx, &s.State, approval.Directive{Tenant: tenant, Run: a.Run, Target: a.Call(), Action: approval.Deny, By: eve, Note: secret})
			require.NoError(t, err)
			require.ErrorIs(t, carry(w.ctx), approval.ErrForbidden)
		}
		got := of(records(t, w.log()), audit.Refused)
		require.Len(t, got, 3)
		require.Equal(t, []string{"user:eve", "page", "deny", a.ID}, []string{got[0].Actor, got[0].Channel, got[0].Action, got[0].Approval})
		require.Equal(t, a.Run, got[2].Run)
		require.Empty(t, warned)
		w.byRun()
		require.Zero(t, of(records(t, w.log()), audit.Decided))
		other, err := w.log().Head(w.ctx, "globex")
		require.NoError(t, err)
		require.Zero(t, other)
	})
}

// C5: decisions, also those on outcomes and by the run's input, are on record when they are answered; so are revocations.
func TestC5DecisionsAreAuditedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var warned []error
		desk := w.audited(&warned)
		run := w.start("standing", "k", 1)
		a := w.waiting(run)
		a, err := desk.Decide(w.ctx, approval.Request{Tenant: tenant, ID: a.ID, Action: approval.Approve, By: ana, Via: approval.ViaSlack})
		require.NoError(t, err)
		all := records(t, w.log())
		require.Len(t, of(all, audit.Requested), 1)
		said := of(all, audit.Decided)
		require.Len(t, said, 1)
		require.Equal(t, string(a.Decisions[0].Via), said[0].Channel)
		require.Equal(t, a.Digest, said[0].Digest)
		granted := of(all, audit.Granted)
		require.Len(t, granted, 1)
		require.Equal(t, []string{"user:ana", "pay"}, []string{granted[0].Actor, granted[0].Tool})

		synctest.Wait()
		other := w.start("standing", "other", 1) // nobody is asked
		synctest.Wait()
		require.ErrorIs(t, desk.Revoke(w.ctx, approval.Revocation{Tenant: tenant, Agent: "standing", Tool: "pay", By: eve}), approval.ErrForbidden)
		require.NoError(t, desk.Revoke(w.ctx, approval.Revocation{Tenant: tenant, Agent: "standing", Tool: "pay", By: ben}))
		all = records(t, w.log())
		require.Len(t, of(all, audit.Revoked), 1)
		require.Equal(t, "user:ben", of(all, audit.Revoked)[0].Actor)
		require.Equal(t, "revoke", of(all, audit.Refused)[0].Action)

		w.sweep() // which finds the run that was never asked about
		used := of(w.byRun()[other], audit.Consumed)
		require.Len(t, used, 1)
		require.Equal(t, "a standing grant", used[0].Detail)
		require.Equal(t, a.ID, used[0].Approval)
		require.Empty(t, warned)
	})
}

// C5: an audit that fails, at whatever read or write, fails no decision: it is warned of, and the sweep makes it good.
func TestC5AnAuditThatFailsFailsNoDecision(t *testing.T) {
	for broken := 0; ; broken++ {
		done := false
		for _, lost := range []bool{false, true} {
			bubble(t, func(t *testing.T, w *world) {
				run := w.start("calls", "k", 2)
				synctest.Wait()
				asked := w.requests()[run]
				op := -1
				w.flaky.fail = func(bool) (before, after error) {
					if op++; op < broken {
						return nil, nil
					}
					if lost {
						return nil, errBlown
					}
					return errBlown, nil
				}
				var warned []error
				desk := w.audited(&warned)
				_, err := desk.Decide(w.ctx, approval.Request{Tenant: tenant, ID: asked[0].ID, Action: approval.Approve, By: ana})
				require.NoError(t, err)
				_, err = desk.Decide(w.ctx, approval.Request{Tenant: tenant, ID: asked[1].ID, Action: approval.Approve, By: eve})
				require.ErrorIs(t, err, approval.ErrForbidden)
				done = op < broken
				require.Equal(t, done, len(warned) == 0, "%d: %v", broken, warned)
				for _, err := range warned {
					require.ErrorIs(t, err, errBlown)
				}
				synctest.Wait()
				_, err = w.machine.Canceller.Cancel(w.ctx, tenant, run, "user:ana", "")
				require.NoError(t, err)
				w.flaky.fail = nil
				w.sweep()
				got := w.byRun()[run]
				require.Len(t, of(got, audit.Requested), 2)
				require.Len(t, of(got, audit.Decided), 1)
				require.Len(t, of(got, audit.Consumed), 1)
				require.Len(t, of(got, audit.Executed), 1)
				require.Len(t, of(got, audit.Cancelled), 1, "%v", got)
				w.noneOpen()
			})
		}
		if done {
			require.Greater(t, broken, 5)
			return
		}
	}
}

// contended is a table on which somebody else is always faster.
type contended struct {
	store.Table
	writes int
}

func (c *contended) Write(context.Context, ...store.Op) error {
	c.writes++
	return store.ErrConflict
}

// A chain that others keep writing to holds a decision up for no longer than the desk is patient, after the run is awake.
func TestC5AContendedChainHoldsNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.waiting(w.start("calls", "k", 1))
		table := &contended{Table: w.table}
		log := &audit.Log{Table: table, Clock: w.clock}
		auditor := &audit.Auditor{Table: table, Journal: w.machine.Ports.Journal, Log: log}
		var warned []error
		desk := &audit.Desk{Next: w.machine.Desk, Recorder: log, Run: auditor.Run, Clock: w.clock, Warn: func(_ string, err error) { warned = append(warned, err) }}
		begin := w.clock.Now()
		_, err := desk.Decide(w.ctx, approval.Request{Tenant: tenant, ID: a.ID, Action: approval.Approve, By: ana})
		require.NoError(t, err)
		require.LessOrEqual(t, w.clock.Now().Sub(begin), 2*time.Second)
		require.Len(t, warned, 1)
		require.Greater(t, table.writes, 5)
		synctest.Wait()
		require.Equal(t, 1, w.paid[a.Run], "the run went on meanwhile")

		begin = w.clock.Now()
		err = log.Record(w.ctx, tenant, audit.Record{ID: "x", Kind: audit.Viewed})
		require.ErrorIs(t, err, audit.ErrContended)
		require.Less(t, w.clock.Now().Sub(begin), 30*time.Second)
	})
}

// Slack wants its answer in three seconds: a chain that cannot be written takes no more time than whoever decides has, or half a second.
func TestC5AuditKeepsTheDeadlineOfADecision(t *testing.T) {
	for given, most := range map[time.Duration]time.Duration{time.Second: time.Second, 0: 500 * time.Millisecond, time.Hour: 2 * time.Second} {
		bubble(t, func(t *testing.T, w *world) {
			log := &audit.Log{Table: &contended{Table: w.table}, Clock: w.clock}
			desk := &audit.Desk{Next: refusing{}, Recorder: log, Clock: w.clock}
			ctx, cancel := w.clock.WithTimeout(w.ctx, given)
			defer cancel()
			begin := w.clock.Now()
			_, err := desk.Decide(ctx, approval.Request{Tenant: tenant, ID: "a", Action: approval.Approve, By: ana})
			require.ErrorIs(t, err, approval.ErrForbidden)
			took := w.clock.Now().Sub(begin)
			require.LessOrEqual(t, took, most, given)
			require.Greater(t, took, most/2, given)
		})
	}
}

// refusing is a desk that refuses whoever decides.
type refusing struct{ audit.Decisions }

func (refusing) Decide(context.Context, approval.Request) (approval.Approval, error) {
	return approval.Approval{}, approval.ErrForbidden
}

// A sweep finds a request that was made, settled and whose run ended between two sweeps; and, if a run could not be audited, it again.
func TestC5SweepsFindWhatNobodyAudited(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.sweep()
		time.Sleep(time.Hour)
		run := w.start("calls", "k", 1)
		a := w.waiting(run)
		_, err := w.machine.Desk.Decide(w.ctx, approval.Request{Tenant: tenant, ID: a.ID, Action: approval.Deny, By: ana})
		require.NoError(t, err)
		synctest.Wait()
		time.Sleep(20 * time.Minute)
		var failing audit.Sweep
		auditor := w.auditor(3)
		failing = audit.Sweep{Auditor: auditor, Heads: w.machine.Ports.Journal, Clock: w.clock}
		w.flaky.fail = func(write bool) (before, after error) {
			if write {
				return errBlown, nil
			}
			return nil, nil
		}
		swept, err := failing.Run(w.ctx, []string{tenant})
		require.NoError(t, err)
		require.Len(t, swept.Failed, 1)
		require.Equal(t, run, swept.Failed[0].Run)
		w.flaky.fail = nil
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, w.sweep().Audited)
		require.Len(t, of(w.byRun()[run], audit.Decided), 1)
		time.Sleep(time.Hour)
		require.Zero(t, w.sweep().Audited, "what is long done is not looked at again")
	})
}

// What people say on a request before it is decided, and that others are asked as well, is on record once, and nothing of what they say.
func TestC5QuestionsAndEscalations(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		run := w.start("calls", "k", 1)
		a := w.waiting(run)
		auditor := w.auditor(1)
		require.NoError(t, auditor.Run(w.ctx, tenant, run))
		at := w.clock.Now().UTC().Truncate(time.Millisecond)
		change := func(f func(a *approval.Approval)) {
			_, changed, err := approval.Rewrite(w.ctx, w.table, tenant, a.ID, func(a *approval.Approval) (bool, error) {
				f(a)
				return true, nil
			})
			require.NoError(t, err)
			require.True(t, changed)
		}
		change(func(a *approval.Approval) {
			a.Thread = []approval.Remark{{By: "user:ana", At: at, Text: secret, Via: approval.ViaSlack}}
		})
		for range 2 {
			require.NoError(t, auditor.Run(w.ctx, tenant, run))
		}
		change(func(a *approval.Approval) {
			a.Thread = append(a.Thread, approval.Remark{By: "user:ben", At: at, Text: secret})
			a.EscalatedAt, a.EscalateTo = at, []string{"group:bosses"}
			a.Quorum, a.Decisions = 2, []approval.Decision{{By: "user:ana", Action: approval.Approve, At: at, Note: secret, Via: approval.ViaPage}}
		})
		for range 2 {
			require.NoError(t, auditor.Run(w.ctx, tenant, run))
		}
		got := w.byRun()[run]
		var kinds []string
		for _, r := range got {
			kinds = append(kinds, fmt.Sprint(r.Kind, " ", r.Actor, " ", r.Channel, " ", r.Detail))
		}
		require.Equal(t, []string{
			"requested   ", "asked user:ana slack ", "asked user:ben  ", "escalated   to group:bosses", "decided user:ana page ",
		}, kinds)
		require.Equal(t, policy.ArgsHash(a.Args), got[0].ArgsHash)
		require.Equal(t, a.PolicyVersion, got[0].Policy)
	})
}

// An auditor that another has overtaken does not put the cursor back: what it planned is void, and it plans again.
func TestC5AnOvertakenAuditorPlansAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		run := w.start("calls", "k", 1)
		a := w.waiting(run)
		overtaken := false
		w.flaky.fail = func(write bool) (before, after error) {
			if write && !overtaken {
				overtaken = true
				_, err := w.machine.Desk.Decide(w.ctx, approval.Request{Tenant: tenant, ID: a.ID, Action: approval.Approve, By: ana})
				require.NoError(t, err)
				synctest.Wait()
				other := &audit.Auditor{Table: w.table, Journal: w.machine.Ports.Journal, Log: w.log()}
				require.NoError(t, other.Run(w.ctx, tenant, run))
			}
			return nil, nil
		}
		require.NoError(t, w.auditor(1).Run(w.ctx, tenant, run))
		require.True(t, overtaken)
		w.noneOpen()
		w.check(run, w.requests()[run], w.byRun()[run])
	})
}

// A run that does not exist is nobody's to audit.
func TestNoSuchRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		require.ErrorIs(t, w.auditor(1).Run(w.ctx, tenant, "r"), store.ErrNoRun)
		require.False(t, audit.Moved(errors.New("x")))
		head, err := w.log().Head(w.ctx, tenant)
		require.NoError(t, err)
		require.Zero(t, head)
	})
}
