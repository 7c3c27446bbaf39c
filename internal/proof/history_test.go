package proof

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// operator decides whatever is asked, one request after the other, as soon as a run has stored its token.
type operator struct {
	action approval.Action

	mu     sync.Mutex
	parked []string // approvals
	wake   chan struct{}
}

func (o *operator) Committed(_ context.Context, _ run.Entry, s *run.AgentState) {
	if s.Status != run.RunWaiting {
		return
	}
	o.mu.Lock()
	for _, c := range s.Waits() {
		o.parked = append(o.parked, c.Wait.Approval)
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

var ana = policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}}

// work decides until the context ends.
func (o *operator) work(ctx context.Context, l *lab) error {
	for {
		o.mu.Lock()
		all := o.parked
		o.parked = nil
		o.mu.Unlock()
		for _, id := range all {
			_, err := l.Desk.Decide(ctx, approval.DecisionInput{Tenant: local.Tenant, ID: id, Action: o.action, By: ana})
			if err != nil {
				return err
			}
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// TestHistoriesOfApprovals: an iteration that waits for a person takes many more events than a plain one; the history
// stays below its bound all the same (R10).
func TestHistoriesOfApprovals(t *testing.T) {
	for action, few := range map[approval.Action]int{approval.Deny: 0, approval.Approve: 260} {
		t.Run(string(action), func(t *testing.T) {
			n := sized(few, 3000)
			if n == 0 {
				onlyWhole(t)
			}
			o := &operator{action: action, wake: make(chan struct{}, 1)}
			l := newLab(t, setup{table: stores["memory"](t), model: WorkModel{N: n, Tool: "work_pay"}, define: small, warm: 8, sink: o})
			ctx, cancel := context.WithCancel(t.Context())
			worked := make(chan error, 1)
			go func() { worked <- o.work(ctx, l) }()
			run := l.start(t, "approvals").Run
			require.Positive(t, l.untilOver(t, run).Generation)
			cancel()
			require.NoError(t, <-worked)
			l.assertHandOvers(t, run)
			entered := 0
			if action == approval.Approve {
				entered = n
			}
			require.Len(t, l.ended.entered, entered)
			for key, times := range l.ended.entered {
				require.Equal(t, 1, times, key)
			}
		})
	}
}
