package approval_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

var cem = policy.Principal{ID: "user:cem", Groups: []string{"group:operators"}}

// withRule runs a test with a run that is parked on its call c1, under a rule about refunds.
func withRule(t *testing.T, rule agent.Rule, f func(t *testing.T, r *fixture), with ...func(*fixture)) {
	t.Helper()
	withFixture(t, func(t *testing.T, r *fixture) {
		rule.Tool, rule.Verdict = "refund", agent.VerdictAsk
		r.def.Permission.Rules = append(r.def.Permission.Rules, rule)
		for _, w := range with {
			w(r)
		}
		r.startAndPark(args)
		f(t, r)
	})
}

// underRule is withRule as a subtest.
func underRule(rule agent.Rule, f func(t *testing.T, r *fixture), with ...func(*fixture)) func(*testing.T) {
	return func(t *testing.T) { withRule(t, rule, f, with...) }
}

// A9, A10: who may come under several names approves where one person is enough, and where people are counted or told
// apart may deny and not approve.
func TestUnpinnedPrincipals(t *testing.T) {
	free := policy.Principal{ID: "user:ana@operators", Groups: []string{"group:operators"}, Unpinned: true}
	for name, c := range map[string]struct {
		rule agent.Rule
		err  error
	}{
		"one person": {agent.Rule{}, nil}, "quorum": {agent.Rule{Quorum: 2}, approval.ErrUnpinned},
		"four eyes": {agent.Rule{FourEyes: true}, approval.ErrUnpinned},
	} {
		t.Run(name, underRule(c.rule, func(t *testing.T, r *fixture) {
			require.Equal(t, c.err == nil, r.approval().Awaits(free, r.ports.Clock.Now()))
			_, err := r.decide(approval.Approve, free)
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				return
			}
			require.ErrorIs(t, err, approval.ErrForbidden)
			a := r.must(r.decide(approval.Deny, free))
			require.Equal(t, approval.Denied, a.Status)
		}))
	}
}

// TestA10QuorumTakesSoManyPeople: until the last of them the request stays pending and the run hears nothing; nobody
// counts twice.
func TestA10QuorumTakesSoManyPeople(t *testing.T) {
	withRule(t, agent.Rule{Quorum: 3}, func(t *testing.T, r *fixture) {
		var noted []int
		desk := r.desk()
		desk.OnChange = func(_ context.Context, a approval.Approval) { noted = append(noted, len(a.CountedApprovals())) }
		other := policy.Principal{ID: ana.ID, Groups: []string{"group:bosses", "group:operators"}}
		for i, by := range []policy.Principal{ana, ben, ana, ben, other} {
			a := r.must(desk.Decide(r.ctx, r.request(approval.Approve, by)))
			require.Equal(t, approval.Pending, a.Status)
			require.Equal(t, r.approval().Decisions, a.Decisions)
			require.Equal(t, i >= 2, a.IsRepeated())
			require.Len(t, a.Decisions, min(i+1, 2))
			require.Empty(t, r.inbox())
		}
		require.Equal(t, []int{1, 2}, noted)
		r.park()
		a := r.must(desk.Decide(r.ctx, r.request(approval.Approve, cem)))
		require.Equal(t, approval.Approved, a.Status)
		require.Equal(t, []string{"t1"}, r.resumedTokens)
		require.Len(t, r.inbox(), 1)
		fact := r.inbox()[0].(run.Decided)
		require.Equal(t, "user:cem", fact.By)
		require.Equal(t, []string{"user:ana", "user:ben"}, fact.With)
		for _, by := range []policy.Principal{ana, cem, boss} { // the same decision again, by whomever
			again := r.must(r.decide(approval.Approve, by))
			require.True(t, again.IsRepeated())
			require.Equal(t, a.Decisions, again.Decisions)
		}
	})
}

// TestA10NotesLeaveRoomForAVeto: no note, however long, keeps a denial out of the request's item.
func TestA10NotesLeaveRoomForAVeto(t *testing.T) {
	withRule(t, agent.Rule{Quorum: 3}, func(t *testing.T, r *fixture) {
		for i, by := range []policy.Principal{ana, ben} {
			q := r.request(approval.Approve, by)
			q.Note = strings.Repeat("x", []int{250, 140}[i]<<10)
			_, err := r.desk().Decide(r.ctx, q)
			require.Equal(t, i == 1, errors.Is(err, store.ErrTooLarge), err)
		}
		q := r.request(approval.Deny, cem)
		q.Note = strings.Repeat("x", 20<<10)
		require.Equal(t, approval.Denied, r.must(r.desk().Decide(r.ctx, q)).Status)
	})
}

// TestA12ApprovedByHalfAndOver: a request of several people that expired, or was called off with its run, after one of them had approved was decided by
// nobody. Who approved hears how it ended; nobody else hears that they have approved it.
func TestA12ApprovedByHalfAndOver(t *testing.T) {
	for status, end := range map[approval.Status]func(r *fixture){
		approval.Expired: func(r *fixture) {
			r.untilExpiry(0)
			r.resume()
		},
		approval.Cancelled: func(r *fixture) {
			_, err := (&runtime.Canceller{Ports: r.ports, Definitions: r.loadDefinition}).Cancel(r.ctx, tenant, r.run, "user:boss", "")
			require.NoError(r.t, err)
		},
	} {
		t.Run(string(status), underRule(agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) {
			r.must(r.decide(approval.Approve, ana))
			end(r)
			a := r.must(r.decide(approval.Approve, ana))
			require.Equal(t, status, a.Status)
			for _, action := range []approval.Action{approval.Approve, approval.Deny, approval.Cancel} {
				_, err := r.decide(action, ben)
				var decided *approval.DecidedError
				require.ErrorAs(t, err, &decided)
				require.Equal(t, status, decided.Approval.Status)
				require.EqualError(t, err, "approval "+a.ID+" is "+string(status), "it names nobody who has not decided it")
			}
			require.Empty(t, r.refund.paid)
		}))
	}
}

// TestA10NoApprovalIsLost: whoever writes between another's look and write, both are on record.
func TestA10NoApprovalIsLost(t *testing.T) {
	rule := agent.Rule{Quorum: 3, Escalate: &agent.Escalation{After: time.Hour, To: []string{"group:guests"}}}
	withRule(t, rule, func(t *testing.T, r *fixture) {
		require.NoError(t, r.ports.Clock.Sleep(r.ctx, time.Hour))
		hookWrite(r.table, "A", func() error {
			_, err := r.decide(approval.Approve, ben)
			return err
		}, nil)
		r.must(r.decide(approval.Approve, ana))
		require.Len(t, r.approval().CountedApprovals(), 2)
		hookWrite(r.table, "A", func() error {
			_, changed, err := approval.MarkEscalated(r.ctx, r.table, tenant, r.approval().ID, r.ports.Clock.Now())
			require.True(t, changed)
			return err
		}, nil)
		a := r.must(r.decide(approval.Approve, cem))
		require.Equal(t, approval.Approved, a.Status)
		require.False(t, r.approval().EscalatedAt.IsZero())
		require.Len(t, r.approval().Decisions, 3)
	})
}

// TestA8EditIsNeverWeaker: who decides about an edit is an approver of both, and it takes as many people as either wants.
func TestA8EditIsNeverWeaker(t *testing.T) {
	withRule(t, agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) { // more than 1000 is for the bosses, one of whom is enough
		require.ErrorIs(t, errOf(r.edit(`{"amount":2000,"to":"x"}`, ana)), approval.ErrForbidden)
		a := r.must(r.edit(`{"amount":2000,"to":"x"}`, boss))
		require.Equal(t, approval.Pending, a.Status)
		require.ErrorIs(t, errOf(r.decide(approval.Approve, ana)), approval.ErrForbidden)
		_, err := r.decide(approval.Approve, policy.Principal{ID: "user:zoe", Groups: []string{"group:bosses"}})
		require.ErrorIs(t, err, approval.ErrForbidden, "she is none of those who were asked")
		_, err = r.decide(approval.Approve, policy.Principal{ID: "user:zoe", Groups: []string{"group:bosses", "group:operators"}})
		require.ErrorIs(t, err, approval.ErrStale, "she does not say that she has seen what it is about now")
		require.Equal(t, a.Digest, r.approval().Digest)
		require.Len(t, r.approval().Decisions, 1)
		r.must(r.approveShown(policy.Principal{ID: "user:zoe", Groups: []string{"group:bosses", "group:operators"}}))
		r.resume()
		require.Equal(t, []string{`{"amount":2000,"to":"x"}`}, r.refund.paid)
	})
}

// TestA8AnEditThatChangesNothingIsAnApproval: it is counted with those before it and those behind it, also of an edit.
func TestA8AnEditThatChangesNothingIsAnApproval(t *testing.T) {
	const same, other = `{"to": "ana@example.com", "amount": 100}`, `{"amount":1,"to":"x"}`
	withRule(t, agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) {
		r.must(r.decide(approval.Approve, ana))
		require.True(t, r.must(r.edit(same, ana)).IsRepeated())
		for _, repeated := range []bool{false, true} {
			a := r.must(r.edit(same, ben))
			require.Equal(t, []any{approval.Approved, repeated}, []any{a.Status, a.IsRepeated()})
			require.Nil(t, a.OriginalArgs)
		}
		r.resume()
		require.Equal(t, []string{args}, r.refund.paid)
	})
	withRule(t, agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) {
		shown := r.approval().Digest
		r.must(r.edit(other, ana))
		q := r.request(approval.Edit, ben)
		q.Args, q.Digest = json.RawMessage(other), shown
		require.ErrorIs(t, errOf(r.desk().Decide(r.ctx, q)), approval.ErrStale, "he was shown something else")
		for _, repeated := range []bool{false, true} {
			a := r.must(r.edit(other, ben))
			require.Equal(t, []any{approval.Approved, repeated}, []any{a.Status, a.IsRepeated()})
		}
		require.Equal(t, "user:ana", r.inbox()[0].(run.Decided).Editor)
		r.resume()
		require.Equal(t, []string{other}, r.refund.paid)
	})
	withRule(t, agent.Rule{FourEyes: true}, func(t *testing.T, r *fixture) {
		require.ErrorIs(t, errOf(r.edit(same, ben)), approval.ErrRequester)
		require.Equal(t, approval.Approved, r.must(r.edit(same, ana)).Status)
	}, func(r *fixture) { r.starters = []string{"user:ben"} })
}

// TestA10FourEyes: whoever started the run, or is its subject, may deny and not approve, whatever group they act by.
func TestA10FourEyes(t *testing.T) {
	withRule(t, agent.Rule{FourEyes: true}, func(t *testing.T, r *fixture) {
		require.ElementsMatch(t, []string{"user:ana", "user:ben"}, r.approval().Requesters)
		for _, own := range []policy.Principal{ana, ben} {
			err := errOf(r.decide(approval.Approve, own))
			require.ErrorIs(t, err, approval.ErrRequester)
			require.ErrorIs(t, err, approval.ErrForbidden)
			require.ErrorIs(t, errOf(r.edit(`{"amount":1,"to":"x"}`, own)), approval.ErrRequester)
		}
		require.Empty(t, r.approval().Decisions)
		require.Equal(t, approval.Denied, r.must(r.decide(approval.Deny, ana)).Status)
	}, func(r *fixture) { r.starters, r.subject = []string{"user:ben"}, "user:ana" })
}

// TestA15EscalationIsATimeAlone: others are approvers from then on, whether or not anybody has noticed.
func TestA15EscalationIsATimeAlone(t *testing.T) {
	escalate := &agent.Escalation{After: time.Hour, To: []string{"group:guests"}}
	for _, noticed := range []bool{true, false} {
		withRule(t, agent.Rule{Escalate: escalate, Remind: 10 * time.Minute}, func(t *testing.T, r *fixture) {
			a := r.approval()
			require.Equal(t, a.RequestedAt.Add(time.Hour), a.EscalatesAt)
			require.Equal(t, int64(600), a.RemindSeconds)
			marks := func(want bool) {
				t.Helper()
				now := r.ports.Clock.Now()
				a, changed, err := approval.MarkEscalated(r.ctx, r.table, tenant, a.ID, now)
				require.NoError(t, err)
				require.Equal(t, want, changed)
				require.Equal(t, want, a.EscalatedAt.Equal(now))
			}
			require.NoError(t, r.ports.Clock.Sleep(r.ctx, time.Hour-time.Millisecond))
			require.ErrorIs(t, errOf(r.decide(approval.Approve, stranger)), approval.ErrForbidden)
			marks(false)
			require.NoError(t, r.ports.Clock.Sleep(r.ctx, time.Millisecond))
			if noticed {
				marks(true)
				require.NoError(t, r.ports.Clock.Sleep(r.ctx, time.Millisecond))
				marks(false) // it is marked once
			}
			r.must(r.decide(approval.Approve, stranger))
			require.NoError(t, r.ports.Clock.Sleep(r.ctx, time.Millisecond))
			marks(false) // it is decided
			r.resume()
			require.Len(t, r.refund.paid, 1)
		})
	}
}

// TestA9EmptySetsMeanNobody: wherever a set stands.
func TestA9EmptySetsMeanNobody(t *testing.T) {
	now := time.Unix(10, 0)
	toAna, byAna := []string{"user:ana"}, []string{"user:ana"}
	above := [][]string{{"user:ben"}}
	for name, a := range map[string]approval.Approval{
		"approvers":    {},
		"above":        {Approvers: byAna, Above: [][]string{{}}},
		"escalateTo":   {EscalatesAt: now, EscalateTo: []string{}},
		"aboveTo":      {Approvers: byAna, Above: above, EscalatesAt: now, EscalateTo: toAna, AboveTo: [][]string{nil}},
		"not yet time": {EscalatesAt: now.Add(1), EscalateTo: toAna},
	} {
		require.False(t, a.CanDecide(ana, now), name)
	}
	both := approval.Approval{
		Approvers: above[0], Above: above, EscalatesAt: now, EscalateTo: toAna, AboveTo: [][]string{byAna},
	}
	require.True(t, both.CanDecide(ana, now))
}

// TestA9EveryWayGoesThroughTheChokePoint: whatever a stranger calls, and however, nothing is recorded.
func TestA9EveryWayGoesThroughTheChokePoint(t *testing.T) {
	withRule(t, agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) {
		before := r.item()
		s := r.state()
		for _, who := range []policy.Principal{stranger, {}, {ID: "group:operators"}, {Groups: []string{"group:operators"}}} {
			for _, action := range []approval.Action{approval.Approve, approval.Deny, approval.Cancel, approval.Fail, approval.Edit} {
				q := r.request(action, who)
				if action == approval.Edit {
					q.Args = json.RawMessage(args)
				}
				require.ErrorIs(t, errOf(r.desk().Decide(r.ctx, q)), approval.ErrForbidden, "%s as %v", action, who)
				carry, err := r.desk().PrepareDecision(r.ctx, &s, approval.DecisionInput{Tenant: tenant, Run: r.run, Call: "c1", Action: action, By: who})
				if err == nil {
					err = carry(r.ctx, nil)
				}
				require.Error(t, err)
			}
			_, err := r.desk().Decide(r.ctx, approval.DecisionInput{Tenant: tenant, Run: r.run, Call: "c1", Action: approval.Rerun, By: who})
			require.Error(t, err)
			require.Error(t, r.desk().Revoke(r.ctx, approval.Revocation{Tenant: tenant, Agent: "clerk", Tool: "refund", By: who}))
		}
		require.Equal(t, before, r.item())
		require.Empty(t, r.inbox())
	})
}

// TestA12ManyDeciders: one wins, or as many as it takes; every other is told who did; and the run hears of it once.
func TestA12ManyDeciders(t *testing.T) {
	for _, quorum := range []int{1, 3} {
		withRule(t, agent.Rule{Quorum: quorum}, func(t *testing.T, r *fixture) {
			var wg sync.WaitGroup
			errs := make([]error, 300)
			for i := range errs {
				wg.Go(func() {
					by := policy.Principal{ID: fmt.Sprintf("user:p%d", i), Groups: []string{"group:operators"}}
					switch i % 5 {
					case 3:
						_, errs[i] = r.edit(fmt.Sprintf(`{"amount":%d,"to":"x"}`, 1+i%7), by)
					case 4:
						_, errs[i] = r.decide(approval.Deny, by)
					default:
						_, errs[i] = r.decide(approval.Approve, by)
					}
				})
			}
			wg.Wait()
			a := r.approval()
			require.NotEqual(t, approval.Pending, a.Status)
			require.Len(t, r.inbox(), 1)
			last := a.Decisions[len(a.Decisions)-1]
			for i, err := range errs {
				var decided *approval.DecidedError
				if errors.As(err, &decided) {
					require.ErrorContains(t, err, last.By)
				} else if err != nil {
					require.ErrorIs(t, err, approval.ErrStale)
				}
				require.False(t, err != nil && last.By == fmt.Sprintf("user:p%d", i), "who decided it is told an error: %v", err)
			}
			if a.Status == approval.Approved {
				require.Len(t, a.CountedApprovals(), quorum)
			}
		})
	}
}

// TestA10RerunOfWhatSeveralApproved: a call that was approved by several runs again when as many order it, none of them
// a requester.
func TestA10RerunOfWhatSeveralApproved(t *testing.T) {
	withRule(t, agent.Rule{Quorum: 2, FourEyes: true}, func(t *testing.T, r *fixture) {
		for _, by := range []policy.Principal{ana, ben} {
			r.must(r.decide(approval.Approve, by))
		}
		r.refund.setHanging(true)
		r.resume()
		require.Equal(t, run.ForOutcome, r.call().Wait.For)
		r.refund.setHanging(false)
		again := func(by policy.Principal) (approval.Approval, error) {
			return r.desk().Decide(r.ctx, approval.DecisionInput{Tenant: tenant, Run: r.run, Call: "c1", Action: approval.Rerun, By: by})
		}
		_, err := again(policy.Principal{ID: "user:req", Groups: []string{"group:operators"}})
		require.ErrorIs(t, err, approval.ErrRequester)
		for range 2 {
			a, err := again(ana)
			require.NoError(t, err)
			require.Equal(t, approval.Pending, a.Status)
			require.Empty(t, r.inbox())
		}
		a, err := again(cem)
		require.NoError(t, err)
		require.Equal(t, approval.Approved, a.Status)
		require.Equal(t, []string{"user:ana"}, r.inbox()[0].(run.Answered).With)
	}, func(r *fixture) { r.starters = []string{"user:req"} })
}

// deploy changes the deployment's definition of the agent from now on.
func (r *fixture) deploy(change func(d *agent.Definition)) {
	d := *r.def
	d.Permission.Rules = append([]agent.Rule(nil), r.def.Permission.Rules...)
	change(&d)
	r.deployed = &d
}

// TestA17PolicyTightenedWhileParked: what the deployment says of the agent when somebody decides, and when the call is
// to run, holds as well. A call that it denies is refused; else other people are asked about it.
func TestA17PolicyTightenedWhileParked(t *testing.T) {
	last := func(f func(*agent.Rule)) func(d *agent.Definition) {
		return func(d *agent.Definition) { f(&d.Permission.Rules[len(d.Permission.Rules)-1]) }
	}
	for name, c := range map[string]struct {
		change func(d *agent.Definition)
		denied bool
		next   []policy.Principal // who decides about it then; none = nobody can
		twice  func(d *agent.Definition)
	}{
		"a rule denies": {change: last(func(rule *agent.Rule) { rule.Verdict = agent.VerdictDeny }), denied: true},
		"no such tool":  {change: func(d *agent.Definition) { d.Tools = nil }, denied: true},
		"other approvers": {
			change: last(func(rule *agent.Rule) { rule.Approvers = []string{"group:bosses"} }), next: []policy.Principal{boss},
		},
		"a quorum": {change: last(func(rule *agent.Rule) { rule.Quorum = 2 }), next: []policy.Principal{ana, ben}},
		"a quorum, twice": {
			change: last(func(rule *agent.Rule) { rule.Quorum = 2 }), next: []policy.Principal{ana, ben},
			twice: last(func(rule *agent.Rule) { rule.Quorum = 3 }),
		},
		"four eyes":       {change: last(func(rule *agent.Rule) { rule.FourEyes = true }), next: []policy.Principal{ben}},
		"nobody any more": {change: last(func(rule *agent.Rule) { rule.Approvers = []string{"user:gone"} })},
	} {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, before deciding %t", name, early), underRule(agent.Rule{}, func(t *testing.T, r *fixture) {
				if early {
					r.deploy(c.change)
					require.ErrorIs(t, errOf(r.decide(approval.Approve, ana)), approval.ErrPolicyChanged)
					require.Empty(t, r.approval().Decisions)
				} else {
					r.must(r.decide(approval.Approve, ana))
					r.deploy(c.change)
				}
				r.resume()
				require.Empty(t, r.refund.paid)
				if c.denied {
					require.Equal(t, run.WhyDenied, r.call().Reason)
					return
				}
				require.Equal(t, approval.Voided, r.approval().Status)
				require.Zero(t, r.item().Attrs["consumed"].Int())
				again := r.request(approval.Approve, stranger)
				again.ID = run.ApprovalID(r.run, "c1", 2)
				require.ErrorIs(t, errOf(r.desk().Decide(r.ctx, again)), approval.ErrForbidden)
				for _, again.By = range c.next {
					r.must(r.desk().Decide(r.ctx, again))
				}
				if c.twice != nil {
					r.deploy(c.twice)
				}
				r.driveRun(r.state().WaitSeq)
				if c.next == nil || c.twice != nil { // an approval under the tightened policy is void under a tighter one
					require.Empty(t, r.refund.paid)
					require.Equal(t, run.StatusSuspended, r.call().Status)
					return
				}
				require.Len(t, r.refund.paid, 1)
			}, func(r *fixture) { r.starters = []string{"user:ana"} }))
		}
	}
}

// TestA17LooserPolicyChangesNothing: the stricter of pinned and current wins, and a change elsewhere in the policy voids nothing.
func TestA17LooserPolicyChangesNothing(t *testing.T) {
	for name, change := range map[string]func(d *agent.Definition){
		"all is allowed": func(d *agent.Definition) { d.Permission.Rules = nil; d.Permission.Default = agent.DefaultAllow },
		"a rule elsewhere": func(d *agent.Definition) {
			d.Permission.Rules = append(d.Permission.Rules, agent.Rule{Tool: "x", Verdict: agent.VerdictDeny})
		},
		"a tool more": func(d *agent.Definition) { d.Tools = append(d.Tools[:1:1], agent.ToolSpec{Name: "more"}) },
	} {
		t.Run(name, underRule(agent.Rule{}, func(t *testing.T, r *fixture) {
			r.deploy(change)
			require.ErrorIs(t, errOf(r.decide(approval.Approve, stranger)), approval.ErrForbidden)
			r.must(r.decide(approval.Approve, ana))
			r.resume()
			require.Equal(t, []string{args}, r.refund.paid)
		}))
	}
}

// TestA25TheClaimCountsChannels: a request whose item was changed to name other channels, or no code, lets nothing run:
// the claim counts approvals by the channels of the policy.
func TestA25TheClaimCountsChannels(t *testing.T) {
	for _, c := range []struct {
		rule                  agent.Rule
		via                   run.Via
		refusal, was, changed string
	}{
		{agent.Rule{Via: []run.Via{agent.ViaPage}}, agent.ViaCLI, "by command line: the policy lets people approve this by page;", `"via":["page"]`, `"via":["cli"]`},
		{agent.Rule{Confirm: agent.ConfirmCode}, agent.ViaPage, "this takes a code", `"confirm":"code"`, `"confirm":""`},
		{agent.Rule{Confirm: agent.ConfirmOIDC}, agent.ViaPage, "this takes a sign-in", `"confirm":"oidc"`, `"confirm":""`},
	} {
		withRule(t, c.rule, func(t *testing.T, r *fixture) {
			by := r.request(approval.Approve, ana)
			by.Via = c.via
			_, err := r.desk().Decide(r.ctx, by)
			require.ErrorAs(t, err, new(*approval.ChannelError))
			require.ErrorIs(t, err, approval.ErrForbidden)
			require.ErrorContains(t, err, c.refusal)

			it := r.item()
			it.Body = []byte(strings.Replace(string(it.Body), c.was, c.changed, 1))
			it.Attrs["seal"] = store.Str(store.BlobDigest(it.Body))
			require.NoError(t, r.table.Table.Write(r.ctx, store.Op{Kind: store.Put, Item: it}))
			r.must(r.desk().Decide(r.ctx, by)) // the item says so
			r.resume()
			require.Empty(t, r.refund.paid)
			require.Equal(t, run.ApprovalID(r.run, "c1", 2), r.call().Wait.Approval, "people are asked again")
		})
	}
}

// TestA6AnyByteOfTheStoredDefinition: whichever byte of it is changed, as long as it can still be read, the call runs
// neither while it waits nor once it is approved.
func TestA6AnyByteOfTheStoredDefinition(t *testing.T) {
	withParkedRun(t, func(t *testing.T, r *fixture) {
		stored, err := json.Marshal(r.def)
		require.NoError(t, err)
		s, tried := r.state(), 0
		waits, _ := s.Call("c1")
		approved := waits
		approved.Status = run.StatusResuming
		w := waits.Wait
		approved.Grant = &run.Grant{Approval: w.Approval, Digest: w.Digest, By: "user:ana", Expires: w.Expires}
		for i := range stored {
			changed := bytes.Clone(stored)
			changed[i] ^= 1
			var d agent.Definition
			if json.Unmarshal(changed, &d) != nil {
				continue
			}
			read, err := json.Marshal(d)
			require.NoError(t, err)
			tool, ok := d.Tool("refund")
			if bytes.Equal(read, stored) || !ok { // the same definition, or nothing of the name can run
				continue
			}
			tried++
			if agent.ToolHash(tool) == agent.ToolHash(r.def.Tools[0]) &&
				policy.PolicyVersion(d.Permission) == policy.PolicyVersion(r.def.Permission) {
				continue
			}
			for _, c := range []run.Call{waits, approved} {
				require.False(t, policy.GateHooked(&d, &s, c, agent.PluginGate{}, r.ports.Valid, r.ports.Clock.Now()).Run, "byte %d of %s", i, changed)
			}
		}
		require.Greater(t, tried, 200)
	})
}

// TestA6AnyByteOfTheRequest: whatever is changed in the stored request, nobody decides about what they were not asked.
func TestA6AnyByteOfTheRequest(t *testing.T) {
	withParkedRun(t, func(t *testing.T, r *fixture) {
		it := r.item()
		body := it.Body
		for i := range body {
			it.Body = bytes.Clone(body)
			it.Body[i] ^= 1
			require.NoError(t, r.table.Table.Write(r.ctx, store.Op{Kind: store.Put, Item: it}))
			require.ErrorIs(t, errOf(r.decide(approval.Approve, ana)), store.ErrDamaged, "byte %d", i)
		}
		require.Empty(t, r.inbox())
	})
}
