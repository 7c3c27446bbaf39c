package approval_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

// TestGrantOfANewerVersionCoversNothing: it may be bounded by what this version does not know. People are asked, and the others are listed.
func TestGrantOfANewerVersionCoversNothing(t *testing.T) {
	inRoomOfStandingGrants(t, replaysTool, func(t *testing.T, r *room) {
		require.False(t, r.again("covered"))
		changed := 0
		for _, it := range r.table.Table.(*memory.Table).All() {
			if !strings.Contains(it.PK, "#GRANT") || len(it.Body) == 0 {
				continue
			}
			it.Body = []byte(strings.Replace(string(it.Body), "{", `{"weekdays":["mon"],`, 1))
			require.NoError(t, r.table.Write(r.ctx, store.Op{Kind: store.Put, Item: it}))
			changed++
		}
		require.Positive(t, changed)
		require.True(t, r.again("uncovered"))
		list, _, err := approval.ListStanding(r.ctx, r.table, tenant, approval.Grants{}, r.ports.Clock.Now())
		unread, err := store.Spared(err)
		require.NoError(t, err)
		require.Empty(t, list)
		require.Len(t, unread, changed)
		require.ErrorIs(t, unread[0].Err, agent.ErrNewer)
		err = r.desk().Revoke(r.ctx, approval.Revocation{Tenant: tenant, Agent: "clerk", Tool: "refund", By: ana})
		require.ErrorIs(t, err, agent.ErrNewer, "whoever revokes hears that one is left")
	})
}
