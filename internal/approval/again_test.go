package approval_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
)

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
		q.By, q.Args = ben, json.RawMessage(`{"amount":1,"to":"x"}`)
		require.ErrorIs(t, errOf(r.desk().Decide(r.ctx, q)), approval.ErrStale, "so is somebody else's")
	})
}
