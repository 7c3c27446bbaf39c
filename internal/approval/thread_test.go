package approval_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

func (r *fixture) remark(text string, by policy.Principal) approval.RemarkInput {
	return approval.RemarkInput{Tenant: tenant, ID: run.ApprovalID(r.run, "c1", 1), Text: text, By: by, Via: agent.ViaAPI}
}

func (r *fixture) askQuestion(text string, by policy.Principal) (approval.Approval, error) {
	return r.desk().AddRemark(r.ctx, r.remark(text, by))
}

// threadText is the thread as NAME: TEXT.
func threadText(a approval.Approval) []string {
	var out []string
	for _, m := range a.Thread {
		out = append(out, strings.TrimPrefix(m.By, "user:")+": "+m.Text)
	}
	return out
}

// TestA15WhoMayTalk: who could decide may ask and reply, the requesters may reply, and nobody else may do either.
func TestA15WhoMayTalk(t *testing.T) {
	withParkedRun(t, func(t *testing.T, r *fixture) {
		r.updateStored(func(a *approval.Approval) { a.Requesters = []string{"user:rita"} })
		for _, c := range []struct {
			by             policy.Principal
			asks, mayReply bool
		}{
			{ana, true, true}, {policy.Principal{ID: "user:rita"}, false, true},
			{stranger, false, false}, {policy.Principal{}, false, false},
			{policy.Principal{ID: "group:operators"}, false, false},
		} {
			for reply, allowed := range map[bool]bool{false: c.asks, true: c.mayReply} {
				w, before := r.remark(fmt.Sprint(c.by.ID, reply), c.by), len(r.approval().Thread)
				w.Reply = reply
				err := errOf(r.desk().AddRemark(r.ctx, w))
				if allowed {
					require.NoError(t, err)
					before++
				} else {
					require.ErrorIs(t, err, approval.ErrForbidden)
				}
				require.Len(t, r.approval().Thread, before)
			}
		}
	})
}

// updateStored rewrites the stored request, as an entry of the run would have written it.
func (r *fixture) updateStored(f func(a *approval.Approval)) {
	r.t.Helper()
	a := r.approval()
	f(&a)
	op, err := approval.DecideOp(a, r.ports.Clock.Now())
	require.NoError(r.t, err)
	require.NoError(r.t, r.table.Write(r.ctx, op))
}

// TestA15RemarkAndDecisionKeepBoth: a remark that is written while a decision is on its way is kept, and so is the decision.
func TestA15RemarkAndDecisionKeepBoth(t *testing.T) {
	for _, action := range []approval.Action{approval.Approve, approval.Deny, approval.Cancel, approval.Edit} {
		withParkedRun(t, func(t *testing.T, r *fixture) {
			hookWrite(r.table, "A", func() error { _, err := r.askQuestion("Sure?", ben); return err }, nil)
			q := r.request(action, ana)
			if action == approval.Edit {
				q.Args = []byte(`{"amount":1,"to":"x"}`)
			}
			got := r.must(r.desk().Decide(r.ctx, q))
			require.Equal(t, []string{"ben: Sure?"}, threadText(got))
			a := r.approval()
			require.Equal(t, []string{"ben: Sure?"}, threadText(a))
			require.Len(t, a.Decisions, 1)
			require.Equal(t, action, a.Decisions[0].Action)
			require.Len(t, r.inbox(), 1, "it is decided once")
		})
	}
}

// The same where tools are decided about one by one.
func TestA15RemarkAndVerdictsKeepBoth(t *testing.T) {
	withToolsRequest(t, func(t *testing.T, r *fixture) {
		hookWrite(r.table, "A", func() error { _, err := r.askQuestion("Sure?", ben); return err }, nil)
		r.must(r.decideTool(approval.Approve, "refund", ana))
		hookWrite(r.table, "A", func() error { _, err := r.decideTool(approval.Deny, "wire", boss); return err }, nil)
		_, err := r.askQuestion("And the other?", ben)
		require.ErrorAs(t, err, new(*approval.DecidedError), "it was decided first")
		require.Equal(t, []string{"ben: Sure?"}, threadText(r.approval()))
		require.Equal(t, []run.ToolVerdict{run.ToolGranted, run.ToolDenied}, verdicts(r.approval()))
	})
}

// A claim may use a grant up while somebody talks about the request's other tools: it stays used.
func TestA15RemarkGivesNoGrantBack(t *testing.T) {
	withToolsRequest(t, func(t *testing.T, r *fixture) {
		r.must(r.decideTool(approval.Approve, "refund", ana))
		p := r.approval()
		use := approval.PermitOp(tenant, run.ToolPermit{Approval: p.ID, Place: 0, Digests: p.Permissions[0].Digests}, true)
		hookWrite(r.table, "A", func() error { return r.table.Table.Write(r.ctx, use) }, nil)
		r.must(r.askQuestion("And the other?", ben))
		require.Equal(t, "used", r.item().Attrs["v0"].String())
		require.Equal(t, []string{"ben: And the other?"}, threadText(r.approval()))
	})
}

// TestA15RemarksEndWithTheRequest: nothing is said of a request that waits for nobody any more.
func TestA15RemarksEndWithTheRequest(t *testing.T) {
	withParkedRun(t, func(t *testing.T, r *fixture) {
		hookWrite(r.table, "A", func() error { _, err := r.decide(approval.Deny, ana); return err }, nil)
		_, err := r.askQuestion("Sure?", ben)
		var decided *approval.DecidedError
		require.ErrorAs(t, err, &decided)
		require.Equal(t, "user:ana", decided.Approval.Decisions[0].By)
		require.Empty(t, r.approval().Thread)
	})
	withParkedRun(t, func(t *testing.T, r *fixture) {
		r.untilExpiry(time.Millisecond)
		r.must(r.askQuestion("Sure?", ben))
		r.untilExpiry(0)
		require.ErrorIs(t, errOf(r.askQuestion("And now?", ben)), approval.ErrExpired)
		require.Len(t, r.approval().Thread, 1)
	})
	withParkedRun(t, func(t *testing.T, r *fixture) {
		w := r.remark("Sure?", ben)
		w.Tenant = "other"
		require.ErrorIs(t, errOf(r.desk().AddRemark(r.ctx, w)), approval.ErrNotFound)
	})
}

// TestA15ThreadsAreBounded: in number, in length, and so that there is room for the decision.
func TestA15ThreadsAreBounded(t *testing.T) {
	withParkedRun(t, func(t *testing.T, r *fixture) {
		for _, text := range []string{"", " \n", strings.Repeat("é", approval.MaxRemarkChars+1)} {
			require.ErrorIs(t, errOf(r.askQuestion(text, ana)), approval.ErrRemark)
		}
		for i := range approval.MaxRemarks {
			r.must(r.askQuestion(fmt.Sprintf("%04d", i)+strings.Repeat("x", approval.MaxRemarkChars-4), ana))
		}
		require.ErrorIs(t, errOf(r.askQuestion("one more", ana)), approval.ErrThreadFull)
		require.Len(t, r.approval().Thread, approval.MaxRemarks)
		r.must(r.decide(approval.Approve, ana))
	})
	withParkedRun(t, func(t *testing.T, r *fixture) {
		var err error
		for i := 0; err == nil; i++ {
			_, err = r.askQuestion(fmt.Sprintf("%04d", i)+strings.Repeat("語", approval.MaxRemarkChars-4), ana)
		}
		require.ErrorIs(t, err, approval.ErrThreadFull)
		require.Less(t, len(r.item().Body), store.MaxItem/2+store.MaxItem/4)
		q := r.request(approval.Edit, ana)
		q.Args = []byte(`{"amount":1,"to":"` + strings.Repeat("x", 40<<10) + `"}`)
		r.must(r.desk().Decide(r.ctx, q)) // there is room for an edit
	})
}

// Of remarks that come at once none is lost and none is doubled; the same words again are said once.
func TestA15RemarksAtOnce(t *testing.T) {
	withParkedRun(t, func(t *testing.T, r *fixture) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for {
					_, err := r.askQuestion(fmt.Sprint(i), ana)
					if !errors.Is(err, store.ErrConflict) {
						require.NoError(t, err)
						return
					}
				}
			})
		}
		wg.Wait()
		said := threadText(r.approval())
		require.Len(t, said, 20)
		slices.Sort(said)
		require.Len(t, slices.Compact(said), 20)
	})
	withParkedRun(t, func(t *testing.T, r *fixture) {
		hookWrite(r.table, "A", nil, func() error { return errReset })
		require.ErrorIs(t, errOf(r.askQuestion("Sure?", ana)), errReset, "nobody knows")
		for range 2 {
			r.must(r.askQuestion("Sure?", ana))
		}
		require.Equal(t, []string{"ana: Sure?"}, threadText(r.approval()))
		r.must(r.askQuestion("Sure?", ben))
		require.Len(t, r.approval().Thread, 2, "another person says it for themself")
	})
}

// B4: who is shown what is masked is on record, once a person and way, while the request waits; nobody else may be shown it.
func TestB4UncoveringIsOnRecord(t *testing.T) {
	withParkedRun(t, func(t *testing.T, r *fixture) {
		id, before := run.ApprovalID(r.run, "c1", 1), r.approval()
		require.ErrorIs(t, r.desk().RecordUnmasking(r.ctx, tenant, id, stranger, agent.ViaPage), approval.ErrForbidden)
		require.Empty(t, r.approval().Unmaskings)
		for range 2 {
			require.NoError(t, r.desk().RecordUnmasking(r.ctx, tenant, id, ana, agent.ViaPage))
		}
		require.NoError(t, r.desk().RecordUnmasking(r.ctx, tenant, id, ana, agent.ViaConsole))
		now := r.approval()
		require.Len(t, now.Unmaskings, 2)
		require.Equal(t, []string{ana.ID, string(agent.ViaPage)}, []string{now.Unmaskings[0].By, string(now.Unmaskings[0].Via)})
		require.Equal(t, before.Digest, now.Digest)
		r.must(r.desk().Decide(r.ctx, approval.DecisionInput{Tenant: tenant, ID: id, Action: approval.Deny, By: ana}))
		require.ErrorAs(t, r.desk().RecordUnmasking(r.ctx, tenant, id, ana, agent.ViaPage), new(*approval.DecidedError))
	})
	withToolsRequest(t, func(t *testing.T, r *fixture) { // of several tools, an approver of each
		id := r.approval().ID
		require.ErrorIs(t, r.desk().RecordUnmasking(r.ctx, tenant, id, ana, agent.ViaPage), approval.ErrForbidden)
		require.NoError(t, r.desk().RecordUnmasking(r.ctx, tenant, id, boss, agent.ViaPage))
	})
}

// C5: who is refused is logged, with nothing of what they said.
func TestC5RefusalsAreLogged(t *testing.T) {
	withParkedRun(t, func(t *testing.T, r *fixture) {
		var log strings.Builder
		desk := r.desk()
		desk.Log = slog.New(slog.NewTextHandler(&log, nil))
		_, err := desk.Decide(r.ctx, approval.DecisionInput{
			Tenant: tenant, ID: run.ApprovalID(r.run, "c1", 1), Action: approval.Approve, By: stranger, Via: agent.ViaSlack, Note: "let me",
		})
		require.ErrorIs(t, err, approval.ErrForbidden)
		require.Regexp(t, `^time=\S+ level=WARN msg="refused: not one of the approvers" tenant=\S+ approval=a[a-z2-7]{25} via=slack by=user:eve\n$`, log.String())
	})
}
