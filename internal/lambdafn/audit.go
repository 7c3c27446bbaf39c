package lambdafn

import (
	"context"
	"time"

	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/observe/metrics"
	"github.com/countersign/countersign/internal/runtime"
)

// auditor derives a deployment's audit records.
func auditor(p runtime.Ports) *audit.Auditor {
	log := &audit.Log{Table: p.Table, Clock: p.Clock, Jitter: ids.System(p.Clock).Jitter}
	return &audit.Auditor{Table: p.Table, Journal: p.Journal, Log: log}
}

const (
	// auditShare is the part of a sweep's time that is the audit's, and auditMost the most of it.
	auditShare = 4
	auditMost  = 3 * time.Minute
)

// audit audits what nobody has. What it does not come to, the next sweep does: the repair of runs waits for no chain.
func (s *sweeping) audit(ctx context.Context) {
	patience := auditMost
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, deadline.Sub(s.clock.Now())/auditShare)
	}
	bounded, cancel := s.clock.WithTimeout(ctx, patience)
	defer cancel()
	tenants, err := s.sweep.Tenants.Tenants(bounded)
	var swept audit.Swept
	if err == nil {
		swept, err = s.audits.Run(bounded, tenants)
	}
	for _, f := range swept.Failed {
		s.log.Error("run could not be audited", "tenant", f.Tenant, "run", f.Run, "kind", string(kindOf(f.Err)), "error", f.Err)
	}
	failures := int64(len(swept.Failed))
	if err != nil {
		failures++
		s.log.Error("audit stopped", "kind", string(kindOf(err)), "error", err)
	}
	if failures > 0 {
		s.metrics.Count(metrics.AuditFailures, failures)
	}
}
