package lambdafn_test

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
)

// chain is acme's chain as functions/http gives it, which must be whole.
func (s *stack) chain() (all []audit.Record, last audit.Head) {
	s.t.Helper()
	p := read[api.AuditPage](s, ana, 200, "GET /v1/audit?limit=200", "")
	require.Zero(s.t, p.Next)
	log := audit.Log{Table: s.counts, Clock: s.machine.Ports.Clock}
	v, err := log.Verify(s.t.Context(), "acme")
	require.NoError(s.t, err)
	require.Equal(s.t, p.Head, v.Last)
	for _, l := range p.Entries {
		var r audit.Record
		require.NoError(s.t, json.Unmarshal(l.Record, &r))
		all = append(all, r)
	}
	return all, v.Last
}

func kindsOf(all []audit.Record) []audit.Kind {
	kinds := []audit.Kind{}
	for _, r := range all {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

// C5: a deployment audits a decision once its run is awake, who is refused at once, and all else in the sweep.
func TestC5DeploymentsAudit(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		run := s.waiting(ana, "k")
		all, _ := s.chain()
		require.Empty(t, all, "functions/step and functions/tool audit nothing")
		decision := "POST /v1/approvals/" + run.Waiting[0].Approval + "/decision"
		for range 2 {
			read[api.Problem](s, eve, 403, decision, `{"action":"approve"}`)
		}
		s.do(ana, decision, `{"action":"approve"}`)
		all, _ = s.chain()
		require.Equal(t, []audit.Kind{audit.Refused, audit.Requested, audit.Decided}, kindsOf(all)[:3])
		synctest.Wait()
		time.Sleep(time.Hour)
		s.swept(ruleEvent)
		all, last := s.chain()
		require.Equal(t, []audit.Kind{audit.Refused, audit.Requested, audit.Decided, audit.Consumed, audit.Executed}, kindsOf(all))
		time.Sleep(time.Hour)
		s.swept(ruleEvent)
		_, again := s.chain()
		require.Equal(t, last, again)
		for _, who := range []map[string]string{eve, with(eve, "groups", "[staff auditor]")} {
			read[api.Problem](s, who, 403, "GET /v1/audit", "")
		}
		read[api.AuditPage](s, with(eve, "groups", "[auditors]"), 200, "GET /v1/audit", "")
		require.Empty(t, read[api.AuditPage](s, bob, 200, "GET /v1/audit", "").Entries)
	})
}

// A sweep whose audit cannot be done repairs runs all the same, and says so in the log and the metrics.
func TestC5AnAuditThatFailsStopsNoSweep(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		run := s.waiting(ana, "k")
		other := s.waiting(ana, "other")
		s.do(ana, "POST /v1/approvals/"+other.Waiting[0].Approval+"/decision", `{"action":"deny"}`)
		s.kill(runtime.ExecutionName(run.ID, 0))
		time.Sleep(2 * time.Minute)
		s.metrics.take()
		s.table.spoils("AUDIT", errors.New("sk-canary"))
		require.EqualValues(t, 1, s.swept(ruleEvent).Repaired[runtime.RepairTookOver])
		m := s.metrics.take()
		require.EqualValues(t, 1, m["AuditFailures"])
		require.Zero(t, m["SweepFailures"])
		require.Contains(t, s.logs.String(), "audit stopped")
		require.NotContains(t, s.logs.String(), "canary")
		s.table.spoils("", nil)
		s.swept(ruleEvent)
		all, _ := s.chain()
		require.NotEmpty(t, all)
		require.Zero(t, s.metrics.take()["AuditFailures"])
	})
}
