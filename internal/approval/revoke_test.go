package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// scriptCalls scripts so many replies with so many refund calls each, and a last one that ends the run.
func (r *fixture) scriptCalls(rounds, calls int) {
	r.replies = nil
	for i := range rounds {
		var reply agent.Reply
		for j := range calls {
			reply.Calls = append(reply.Calls, agent.ReplyCall{ID: fmt.Sprintf("c%d", i*calls+j+1), Name: "refund", Input: json.RawMessage(args)})
		}
		r.replies = append(r.replies, reply)
	}
}

// onToolCall calls f in the nth call of the tool from now on.
func (r *fixture) onToolCall(n int, f func()) {
	r.refund.onCall = func() {
		if n--; n == 0 {
			f()
		}
	}
}

// grantInNewRun starts another run, in which ana gives a standing grant of refund.
func (r *fixture) grantInNewRun(key string) error {
	r.t.Helper()
	r.scriptCalls(1, 1)
	require.True(r.t, r.startNextRun(key))
	_, err := r.decide(approval.Approve, ana)
	return err
}

// What is revoked holds no more in the run in which it was granted, either: it asks anew, and may be granted again.
func TestStandingGrantRevokedInItsOwnRun(t *testing.T) {
	for _, under := range policies {
		withStandingGrant(t, under, func(t *testing.T, r *fixture) {
			r.scriptCalls(4, 1)
			before := len(r.refund.paid)
			r.onToolCall(1, func() { require.NoError(t, r.revoke(ben)) })
			r.resume() // calls under the grant, and again once it is revoked
			require.Equal(t, before+1, len(r.refund.paid))
			s := r.state()
			require.Equal(t, run.RunWaiting, s.Status)
			require.Empty(t, s.Permissions.Tools)
			require.Empty(t, r.listStanding())
			again := r.request(approval.Approve, ben)
			if len(s.Permissions.Asked) > 0 {
				again.ID = s.Permissions.Asked[0].Approval
			} else {
				again.ID = s.Waits()[0].Wait.Approval
			}
			r.must(r.desk().Decide(r.ctx, again))
			r.resume()
			require.Len(t, r.listStanding(), 1)
			require.Equal(t, run.RunDone, r.state().Status)
			require.Greater(t, len(r.refund.paid), before+1)
		})
	}
}

// A revocation that meets another one, or a new grant, takes back what is there then.
func TestRevocationsRace(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(r *fixture) error
		by        string // who is on record for it
	}{
		"another revocation":        {func(r *fixture) error { return r.revoke(ben) }, "user:ben"},
		"revoked and granted again": {func(r *fixture) error { return errors.Join(r.revoke(ben), r.grantInNewRun("k2")) }, "user:ana"},
	} {
		t.Run(name, func(t *testing.T) {
			withStandingGrant(t, replaysTool, func(t *testing.T, r *fixture) {
				hookWrite(r.table, "refund#", func() error { return c.meanwhile(r) }, nil)
				require.NoError(t, r.revoke(ana))
				require.Empty(t, r.listStanding())
				g := r.onRecord()
				require.Equal(t, []string{r.run, c.by}, []string{g.Run, g.RevokedBy})
			})
		})
	}
	withStandingGrant(t, replaysTool, func(t *testing.T, r *fixture) { // nobody knows whether it was written
		hookWrite(r.table, "refund#", nil, func() error { return errReset })
		require.ErrorIs(t, r.revoke(ana), errReset)
		require.NoError(t, r.revoke(ana))
		require.Empty(t, r.listStanding())
	})
}

// onRecord is the record of the standing grant as it is stored.
func (r *fixture) onRecord() (g approval.StandingGrant) {
	r.t.Helper()
	p, err := r.table.Table.Query(r.ctx, store.Range{PK: "T#" + tenant + "#GRANT#clerk"})
	require.NoError(r.t, err)
	require.Len(r.t, p.Items, 1)
	require.NoError(r.t, json.Unmarshal(p.Items[0].Body, &g))
	return g
}

// A claim names the grant that holds when it is made: one that was revoked and given again since the gate is the new one.
func TestStandingGrantGivenAgainBeforeTheClaim(t *testing.T) {
	withStandingGrant(t, replaysTool, func(t *testing.T, r *fixture) {
		old := r.onRecord()
		v := r.beforeClaim(func() {
			run := r.run
			require.NoError(t, errors.Join(r.revoke(ana), r.grantInNewRun("k2")))
			r.run = run
		})
		r.ports.Table, r.ports.Journal = v, store.NewJournal(v, 0)
		require.False(t, r.startNextRun("k3"))
		require.NotEqual(t, old.Approval, r.onRecord().Approval)
		require.Equal(t, r.onRecord().Approval, r.call().Grant.Approval)
	})
}

// Whenever a grant is revoked, before whichever read or write of whatever run, no entry written from then on claims under it.
func TestRevokedGrantsLetNoLaterClaimThrough(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		under := rapid.SampledFrom(policies).Draw(rt, "policy")
		executor := rapid.SampledFrom(executors).Draw(rt, "executor")
		rounds, calls := rapid.IntRange(1, 3).Draw(rt, "rounds"), rapid.IntRange(1, 3).Draw(rt, "calls")
		own, at := rapid.Bool().Draw(rt, "in its own run"), rapid.IntRange(1, 60).Draw(rt, "at")
		var problem error
		withStandingGrant(t, under, func(t *testing.T, r *fixture) {
			r.def.Executor = executor
			r.scriptCalls(rounds, calls)
			l, left, entries := fault.NewTable(r.table.Table), at, 0
			l.Use(func(_ context.Context, c fault.Call, call func() error) error {
				if left--; left == 0 {
					require.NoError(t, r.revoke(boss))
				}
				err := call()
				for _, op := range c.Ops { // of journals, that were written before the grant was revoked
					if err == nil && left > 0 && op.Kind == store.Put && strings.HasPrefix(op.Item.SK, "J#") {
						entries++
					}
				}
				return err
			})
			start := 0
			if own {
				start = len(r.entries())
			}
			r.ports.Table, r.ports.Journal = l, store.NewJournal(l, 0)
			if own {
				r.resume()
			} else {
				r.startNextRun("k2")
			}
			if left > 0 { // it was over before
				return
			}
			for _, e := range r.entries()[start+entries:] {
				for _, fact := range e.Events {
					if c, ok := fact.(run.CallClaimed); ok && c.Under != "" {
						problem = errors.Join(problem, fmt.Errorf("entry %d claims %s under %s", e.Seq, c.Call, c.Under))
					}
				}
			}
		})
		if problem != nil {
			rt.Fatal(problem)
		}
	})
}

func (r *fixture) entries() []run.Entry {
	r.t.Helper()
	all, err := store.NewJournal(r.table, 0).Entries(r.ctx, tenant, r.run, 0, 100)
	require.NoError(r.t, err)
	return all
}

// Who decides only once others have not, and gave a grant then, may take it back (A11).
func TestStandingGrantRevokedByAnEscalatedApprover(t *testing.T) {
	withRule(t, agent.Rule{Escalate: &agent.Escalation{After: time.Minute, To: []string{"group:guests"}}}, func(t *testing.T, r *fixture) {
		time.Sleep(time.Minute)
		r.must(r.decide(approval.Approve, stranger))
		require.Len(t, r.listStanding(), 1)
		require.NoError(t, r.revoke(stranger))
		require.Empty(t, r.listStanding())
	}, func(r *fixture) {
		r.def.Permission.Scope, r.def.Permission.Grants = agent.ScopeTool, agent.GrantsStanding
	})
}
