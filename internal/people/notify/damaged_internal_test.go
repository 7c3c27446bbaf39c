package notify

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/damage"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

// Who was told is told again where the notice of it cannot be read; one of which nobody can say how often it was written is left alone.
func TestDamagedNotice(t *testing.T) {
	table := memory.New()
	n := notice{Tenant: "acme", ID: "a1", Due: time.UnixMilli(5000).UTC(), Told: []telling{{To: "user:ana", Channel: "email", As: "asked", Refs: []string{"m1"}}}}
	require.NoError(t, n.save(t.Context(), table))
	t.Logf("%d cases", damage.Check(t, damage.Case{
		Table: table, Key: noticeKey("acme", "a1"), Mended: true,
		Read: func(ctx context.Context, t store.Table) error {
			_, err := load(ctx, t, "acme", "a1")
			return err
		},
	}))
	for _, sort := range []string{"", "x", "1#2", "1#acme#a1", "x#acme#r1#a1", "#acme#r1#a1", "1x#acme#r1#a1"} {
		_, _, _, _, err := dueItem(sort)
		require.Error(t, err, sort)
	}
}
