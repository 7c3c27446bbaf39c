package approval_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

// The tests are named after the requirements of docs/approvals.md.

// TestA6ChangedDefinitionStopsTheCall: whatever is changed of the tool, its policy or a policy above it after asking,
// before or after deciding, the approval fits no more.
func TestA6ChangedDefinitionStopsTheCall(t *testing.T) {
	for name, tamper := range map[string]func(d *agent.Definition){
		"tool description": func(d *agent.Definition) { d.Tools[0].Description += "." },
		"tool schema":      func(d *agent.Definition) { d.Tools[0].Schema = json.RawMessage(`{"type":"object"}`) },
		"tool effect":      func(d *agent.Definition) { d.Tools[0].Effect = run.EffectRead },
		"tool kind":        func(d *agent.Definition) { d.Tools[0].Kind = agent.KindMCP },
		"tool priority":    func(d *agent.Definition) { d.Tools[0].Priority++ },
		"tool timeout":     func(d *agent.Definition) { d.Tools[0].Timeout++ },
		"tool root":        func(d *agent.Definition) { d.Tools[0].Root = "/" },
		"mode":             func(d *agent.Definition) { d.Permission.Mode = agent.ModeBlockAndRetry },
		"default":          func(d *agent.Definition) { d.Permission.Default = agent.DefaultAllow },
		"expiry":           func(d *agent.Definition) { d.Permission.Expires++ },
		"approvers": func(d *agent.Definition) {
			d.Permission.Approvers = []string{"group:operators",
				"group:guests"}
		},
		"a rule's limit":  func(d *agent.Definition) { d.Permission.Rules[1].When[0].Gt = json.RawMessage("1001") },
		"a rule's note":   func(d *agent.Definition) { d.Permission.Rules[1].Note = "please" },
		"a rule's people": func(d *agent.Definition) { d.Permission.Rules[1].Approvers = nil },
		"a rule less":     func(d *agent.Definition) { d.Permission.Rules = d.Permission.Rules[1:] },
		"none above":      func(d *agent.Definition) { d.Ceilings = nil },
		"one more above":  func(d *agent.Definition) { d.Ceilings = append(d.Ceilings, d.Ceilings[0]) },
		"mode above":      func(d *agent.Definition) { d.Ceilings[0].Mode = agent.ModeAdvisory },
		"default above":   func(d *agent.Definition) { d.Ceilings[0].Default = agent.DefaultAllow },
		"approvers above": func(d *agent.Definition) { d.Ceilings[0].Approvers = []string{"group:bosses", "group:guests"} },
		"a rule more above": func(d *agent.Definition) {
			d.Ceilings[0].Rules = []agent.Rule{{Tool: "x",
				Verdict: agent.VerdictDeny}}
		},
		"scope above":  func(d *agent.Definition) { d.Ceilings[0].Scope = agent.ScopeCall },
		"expiry above": func(d *agent.Definition) { d.Ceilings[0].Expires++ },
	} {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, before deciding %t", name, early), delegated(nil, func(t *testing.T, r *fixture) {
				if early {
					r.tamper(tamper)
				}
				_, err := r.decide(approval.Approve, boss)
				if early { // the desk sees it already
					require.ErrorAs(t, err, new(*approval.PolicyError))
					require.Empty(t, r.refund.paid)
					return
				}
				require.NoError(t, err)
				r.tamper(tamper)
				r.resume()
				require.Empty(t, r.refund.paid)
				require.Equal(t, run.WhyVoided, r.call().Reason)
				require.Zero(t, r.item().Attrs["consumed"].Int())
			}))
		}
	}
}

// tamper changes a copy: the run's own memory of its definition is not what is attacked.
func (r *fixture) tamper(f func(*agent.Definition)) {
	d := *r.def
	d.Tools, d.Ceilings = slices.Clone(d.Tools), slices.Clone(d.Ceilings)
	d.Permission.Rules = slices.Clone(d.Permission.Rules)
	for i := range d.Permission.Rules {
		d.Permission.Rules[i].When = slices.Clone(d.Permission.Rules[i].When)
	}
	f(&d)
	r.def = &d
}

// TestA6ChangedJournalStopsTheCall: any byte of the stored arguments, or of what the call depends on.
func TestA6ChangedJournalStopsTheCall(t *testing.T) {
	for _, stored := range []string{args, `{\"status\":\"paid\"}`} {
		for i := range len(stored) {
			for _, early := range []bool{true, false} {
				withPrecondition(t, func(t *testing.T, r *fixture, _ *ordersTool) {
					changed := []byte(stored)
					changed[i] ^= 1
					if early {
						r.tamperJournal(stored, string(changed))
					}
					_, err := r.decide(approval.Approve, ana)
					if early { // the desk sees it already
						require.Error(t, err)
						require.Empty(t, r.refund.paid)
						return
					}
					require.NoError(t, err)
					r.tamperJournal(stored, string(changed))
					l, err := r.ports.Journal.Load(r.ctx, tenant, r.run)
					if err == nil { // else the journal cannot be read any more, which stops the call, too
						_, err = r.try(l.State.WaitSeq)
					}
					require.Empty(t, r.refund.paid, "byte %d: %s", i, changed)
					if err == nil && stored == args {
						require.Contains(t, []run.CallReason{run.WhyVoided, run.WhyInvalidArguments, run.WhyDenied}, r.call().Reason)
					}
				})
			}
		}
	}
}

// tamperJournal changes a stored journal entry.
func (r *fixture) tamperJournal(from, to string) {
	r.t.Helper()
	p, err := r.table.Table.Query(r.ctx, store.Range{PK: "T#" + tenant + "#RUN#" + r.run, From: "J#", To: "J#~"})
	require.NoError(r.t, err)
	changed := 0
	for _, it := range p.Items {
		body := strings.ReplaceAll(string(it.Body), from, to)
		if body != string(it.Body) {
			it.Body = []byte(body)
			require.NoError(r.t, r.table.Table.Write(r.ctx, store.Op{Kind: store.Put, Item: it}))
			changed++
		}
	}
	require.Equal(r.t, 1, changed)
}

// TestA6ForgedRequestStopsTheCall: the claim's write compares with the request itself.
func TestA6ForgedRequestStopsTheCall(t *testing.T) {
	for name, v := range map[string]store.Value{
		"digest": store.Str("forged"), "status": store.Str(string(approval.Voided)), "consumed": store.Num(1), "expires": store.Num(1),
	} {
		t.Run(name, parked(func(t *testing.T, r *fixture) {
			r.must(r.decide(approval.Approve, ana))
			r.tamperAttr(name, v)
			require.NoError(t, errOf(r.try(r.state().WaitSeq)))
			require.Empty(t, r.refund.paid)
			s := r.state()
			c := s.Calls()[0]
			require.Equal(t, run.StatusFailed, c.Status)
			require.Equal(t, run.WhyVoided, c.Reason)
		}))
	}
}

// tamperAttr changes a stored attribute of the request.
func (r *fixture) tamperAttr(name string, v store.Value) {
	r.t.Helper()
	require.NoError(r.t, r.table.Table.Write(r.ctx, store.Op{
		Kind: store.Update, Item: store.Item{Key: r.key(), Attrs: map[string]store.Value{name: v}},
	}))
}

// setExpiry changes when the stored request expires.
func (r *fixture) setExpiry(at time.Time) {
	r.t.Helper()
	it := r.item()
	var body map[string]json.RawMessage
	require.NoError(r.t, json.Unmarshal(it.Body, &body))
	text, err := json.Marshal(at.UTC())
	require.NoError(r.t, err)
	body["expiresAt"] = text
	it.Body, err = json.Marshal(body)
	require.NoError(r.t, err)
	it.Attrs["expires"], it.Attrs["seal"] = store.Num(at.UnixMilli()), store.Str(store.BlobDigest(it.Body))
	require.NoError(r.t, r.table.Table.Write(r.ctx, store.Op{Kind: store.Put, Item: it}))
}

// TestA6ConsumedOnce: an approval is used by one claim.
func TestA6ConsumedOnce(t *testing.T) {
	t.Run("two invocations at once", parked(func(t *testing.T, r *fixture) {
		r.must(r.decide(approval.Approve, ana))
		woken := r.state().WaitSeq
		hookWrite(r.table, "J#", func() error { _, err := r.batch(woken); return err }, nil)
		require.NoError(t, errOf(r.batch(woken)))
		require.Len(t, r.refund.paid, 1)
		require.EqualValues(t, 1, r.item().Attrs["consumed"].Int())
	}))
	t.Run("the claim's answer lost", parked(func(t *testing.T, r *fixture) {
		r.must(r.decide(approval.Approve, ana))
		hookWrite(r.table, "A", nil, func() error { return errReset })
		r.resume()
		require.Len(t, r.refund.paid, 1)
	}))
	t.Run("the operation itself", parked(func(t *testing.T, r *fixture) {
		a := r.must(r.decide(approval.Approve, ana))
		use := approval.ConsumeOp(tenant, run.Grant{Approval: a.ID, Digest: a.Digest}, r.ports.Clock.Now())
		require.NoError(t, r.table.Write(r.ctx, use))
		require.True(t, store.FailedOp(r.table.Write(r.ctx, use), 0))
	}))
}

// TestDecisionsThatAreNone: what cannot be read, or is not about what the request asks, decides nothing.
func TestDecisionsThatAreNone(t *testing.T) {
	withParkedRun(t, func(t *testing.T, r *fixture) {
		for _, text := range []string{`{"amount":1,"amount":5000,"to":"x"}`, `{"amount":`} {
			require.ErrorAs(t, errOf(r.edit(text, ana)), new(*policy.EditError))
		}
		q := r.request(approval.Approve, ana)
		q.Args = json.RawMessage(args)
		require.ErrorIs(t, errOf(r.desk().Decide(r.ctx, q)), approval.ErrKind, "arguments go with an edit alone")
		require.ErrorIs(t, errOf(r.decide(approval.Edit, ana)), approval.ErrKind)
		require.ErrorIs(t, errOf(r.decide("shrug", ana)), approval.ErrKind)
		q = r.request(approval.Approve, ana)
		q.Tenant = "rival"
		require.ErrorIs(t, errOf(r.desk().Decide(r.ctx, q)), approval.ErrNotFound)
		require.Equal(t, approval.Pending, r.approval().Status)
		require.Empty(t, r.inbox())
	})
}

// TestA12SameAndOther: also when the first answer was lost, and after the run has gone on.
func TestA12SameAndOther(t *testing.T) {
	for action, said := range map[approval.Action]string{
		approval.Deny: "is denied: deny by user:ana", approval.Cancel: "is cancelled: cancel by user:ana",
	} {
		withParkedRun(t, func(t *testing.T, r *fixture) {
			hookWrite(r.table, "A", nil, func() error { return errReset })
			first := r.must(r.decide(action, ana)) // executed, then error: it looks who won, and it did
			r.resume()
			require.Equal(t, first, r.must(r.decide(action, ana)))
			require.ErrorContains(t, errOf(r.decide(approval.Approve, ben)), said)
			require.Empty(t, r.refund.paid)
		})
	}
	t.Run("an edit is another decision than an approval, and than another edit", parked(func(t *testing.T, r *fixture) {
		r.must(r.edit(`{"amount":1,"to":"x"}`, ana))
		r.must(r.edit(`{ "amount": 1, "to": "x" }`, ben)) // the same but for white space
		require.ErrorAs(t, errOf(r.edit(`{"amount":2,"to":"x"}`, ben)), new(*approval.DecidedError))
		require.ErrorAs(t, errOf(r.decide(approval.Approve, ben)), new(*approval.DecidedError))
	}))
	t.Run("not written at all", parked(func(t *testing.T, r *fixture) {
		hookWrite(r.table, "A", func() error { return errReset }, nil)
		require.ErrorIs(t, errOf(r.decide(approval.Deny, ana)), errReset)
		require.Equal(t, approval.Pending, r.approval().Status)
		r.must(r.decide(approval.Deny, ana)) // it may be repeated
	}))
	t.Run("not written at all, and refused then", parked(func(t *testing.T, r *fixture) {
		d := r.desk()
		hookWrite(r.table, "A", func() error {
			d.CheckLinked = func(context.Context, approval.Approval) error { return approval.ErrNotLinked }
			return errReset
		}, nil)
		_, err := d.Decide(r.ctx, r.request(approval.Deny, ana))
		require.ErrorIs(t, err, approval.ErrNotLinked)
		require.ErrorIs(t, err, errReset, "why the outcome of the write is not known")
	}))
	t.Run("somebody else was first, and the run has ended by it", parked(func(t *testing.T, r *fixture) {
		d := r.desk()
		d.Definitions = func(ctx context.Context, tenant, digest string) (*agent.Definition, error) { // ben's request has been read by then
			_, err := r.decide(approval.Deny, ana)
			r.resume()
			require.Equal(t, run.RunDone, r.state().Status)
			return r.def, err
		}
		_, err := d.Decide(r.ctx, r.request(approval.Approve, ben))
		require.ErrorContains(t, err, "is denied: deny by user:ana")
	}))
	t.Run("a run that has ended", parked(func(t *testing.T, r *fixture) {
		c := runtime.Canceller{Ports: r.ports, Definitions: r.loadDefinition}
		require.NoError(t, errOf(c.Cancel(r.ctx, tenant, r.run, "user:ana", "")))
		var decided *approval.DecidedError
		require.ErrorAs(t, errOf(r.decide(approval.Approve, ana)), &decided)
		require.Equal(t, approval.Cancelled, decided.Approval.Status)
	}))
}

// TestA13RecordedBeforeOrAfterTheToken: whichever side comes second wakes the run; a wake that was lost is repeated
// with the decision.
func TestA13RecordedBeforeOrAfterTheToken(t *testing.T) {
	for name, order := range map[string]func(r *fixture, decide func() error){
		"before": func(r *fixture, decide func() error) {
			require.NoError(r.t, decide())
			require.Empty(r.t, r.resumedTokens)
			r.park()
		},
		"after": func(r *fixture, decide func() error) {
			r.park()
			require.NoError(r.t, decide())
		},
		"right before": func(r *fixture, decide func() error) {
			hookWrite(r.table, "HEAD", decide, nil)
			r.park()
		},
		"right after": func(r *fixture, decide func() error) {
			hookWrite(r.table, "HEAD", nil, decide)
			r.park()
		},
		"lost": func(r *fixture, decide func() error) {
			r.park()
			r.resumeErr = errReset
			require.ErrorIs(r.t, decide(), errReset)
			require.Equal(r.t, approval.Approved, r.approval().Status, "recorded all the same")
			r.resumeErr = nil
			require.NoError(r.t, decide())
			require.Len(r.t, r.inbox(), 1, "once")
		},
	} {
		t.Run(name, parked(func(t *testing.T, r *fixture) {
			order(r, func() error { return errOf(r.decide(approval.Approve, ana)) })
			require.NotEmpty(t, r.resumedTokens)
			require.Equal(t, "t1", r.resumedTokens[0])
			r.resume()
			require.Len(t, r.refund.paid, 1)
		}))
	}
}

// TestA14ExpiryBoundary: at the very millisecond it is too late, one earlier it is not. The condition of the write
// decides, not the look before it.
func TestA14ExpiryBoundary(t *testing.T) {
	withParkedRun(t, func(t *testing.T, r *fixture) {
		r.untilExpiry(0)
		hookWrite(r.table, "A", func() error { return errReset }, nil)
		for _, a := range []approval.Action{approval.Approve, approval.Deny, approval.Cancel} {
			require.ErrorIs(t, errOf(r.decide(a, ana)), approval.ErrExpired, "it is not even tried")
		}
		require.Empty(t, r.inbox())
	})
	withParkedRun(t, func(t *testing.T, r *fixture) {
		hookWrite(r.table, "A", func() error { r.setExpiry(r.ports.Clock.Now()); return nil }, nil)
		require.ErrorIs(t, errOf(r.decide(approval.Approve, ana)), approval.ErrExpired)
		require.Empty(t, r.inbox())
	})
	withParkedRun(t, func(t *testing.T, r *fixture) {
		r.untilExpiry(time.Millisecond)
		a := r.must(r.decide(approval.Approve, ana))
		g := run.Grant{Approval: a.ID, Digest: a.Digest}
		require.True(t, store.FailedOp(r.table.Write(r.ctx, approval.ConsumeOp(tenant, g, a.ExpiresAt)), 0))
		require.NoError(t, r.table.Write(r.ctx, approval.ConsumeOp(tenant, g, a.ExpiresAt.Add(-time.Millisecond))))
	})
}

// Messages that ask what became of a call, or about a request that a change of policy has voided, have to say that
// nobody is asked any more.
func TestWokenIsToldOfOutcomesAndOfVoidRequests(t *testing.T) {
	told := func(r *fixture, q approval.DecisionInput, want error, status approval.Status) {
		d, all := r.desk(), []approval.Status{}
		d.ResumeRun = func(ctx context.Context, tenant, run string) error {
			require.Empty(r.t, all, "behind the wake")
			return r.waits().Wake(ctx, tenant, run)
		}
		d.OnChange = func(_ context.Context, a approval.Approval) { all = append(all, a.Status) }
		require.ErrorIs(r.t, errOf(d.Decide(r.ctx, q)), want)
		require.Equal(r.t, []approval.Status{status}, all)
	}
	withFixture(t, func(t *testing.T, r *fixture) {
		r.interrupted()
		told(r, approval.DecisionInput{
			Tenant: tenant, Run: r.run, Call: "c1", Content: "paid", By: ben, Action: approval.ReportResult,
		}, nil, approval.Approved)
	})
	withRule(t, agent.Rule{}, func(t *testing.T, r *fixture) {
		r.deploy(func(d *agent.Definition) { d.Permission.Approvers = []string{"group:bosses"} })
		told(r, r.request(approval.Approve, ana), approval.ErrPolicyChanged, approval.Voided)
	})
}

// TestA8LargestEdit: an item holds the arguments of an edit once, beside those that the model sent.
func TestA8LargestEdit(t *testing.T) {
	withFixture(t, func(t *testing.T, r *fixture) {
		large := func(of string) string { return `{"amount":1,"to":"` + strings.Repeat(of, 190<<10) + `"}` }
		r.startAndPark(large("x"))
		r.must(r.edit(large("y"), ana))
		a := r.approval()
		require.Equal(t, []string{large("y"), large("y"), large("x")}, []string{string(a.Args), string(a.Decisions[0].Args), string(a.OriginalArgs)})
	})
}

// TestA12EditIsSaidAgain: whoever got no answer to an edit that takes others besides says it again, about what they were shown, and is told how it stands.
func TestA12EditIsSaidAgain(t *testing.T) {
	withRule(t, agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) {
		q := r.request(approval.Edit, ana)
		q.Args, q.Digest = json.RawMessage(`{"amount":1,"to":"x"}`), r.approval().Digest
		for range 2 {
			a := r.must(r.desk().Decide(r.ctx, q))
			require.Equal(t, approval.Pending, a.Status)
			require.Len(t, a.Decisions, 1)
		}
		q.Args = json.RawMessage(`{"amount":2,"to":"x"}`)
		_, err := r.desk().Decide(r.ctx, q)
		require.ErrorIs(t, err, approval.ErrStale, "another edit is of what they have not seen")
		require.ErrorContains(t, err, "user:ana has changed them")
		q.By, q.Args = ben, json.RawMessage(`{"amount":1,"to":"x"}`)
		require.ErrorIs(t, errOf(r.desk().Decide(r.ctx, q)), approval.ErrStale, "so is somebody else's")
	})
}
