package approval

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

var damagedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newStandingGrant(tool, digest string) StandingGrant {
	return StandingGrant{
		Agent: "clerk", Tool: tool, Digest: digest, Approval: "a1", Run: "r1", By: "user:ana", At: damagedAt, Expires: damagedAt.Add(time.Hour),
		Approvers: []string{"user:ana"}, Uses: 3,
	}
}

// TestItemsThatAreNotWhatTheirKeySays: a request or a grant that stands under another key, that conditions
// would compare to something else, or that has a key of another version, decides nothing: an error names it.
func TestItemsThatAreNotWhatTheirKeySays(t *testing.T) {
	request, err := CreateOp(Approval{
		Tenant: "acme", ID: "a1", Run: "r1", Agent: "clerk", Kind: KindCall, Calls: []string{"c1"}, Tools: []string{"refund"},
		Digest: store.BlobDigest(nil), Status: Pending, Approvers: []string{"group:desk"},
		RequestedAt: damagedAt, ExpiresAt: damagedAt.Add(time.Hour),
	})
	require.NoError(t, err)
	grant, err := newStandingGrant("refund", "d1").putOp("acme")
	require.NoError(t, err)
	for _, c := range []struct {
		good  store.Item
		other store.Key
		attrs map[string]store.Value
		read  func(table store.Table, other bool) error
	}{
		{
			request.Item, itemKey("acme", "a2"), map[string]store.Value{
				"digest": store.Str("x"), "expires": store.Num(1), "status": store.Str("asleep"),
				"seal": store.Str("x"), "consumed": store.Str("no"),
			},
			func(table store.Table, other bool) error {
				_, err := Get(t.Context(), table, "acme", map[bool]string{false: "a1", true: "a2"}[other])
				return err
			},
		},
		{
			grant.Item, standingKey("acme", "clerk", "refund", "d2"), map[string]store.Value{
				"approval": store.Str("a2"), "expires": store.Num(1), "revoked": store.Num(1), usedAttr: store.Num(-1),
			},
			func(table store.Table, other bool) error {
				named := []run.StandingGrant{{Tool: "refund", Digest: map[bool]string{false: "d1", true: "d2"}[other]}}
				_, err := LiveStanding(t.Context(), table, "acme", "clerk", named, damagedAt)
				return err
			},
		},
	} {
		table := store.NewMemory()
		refused := func(what string, change func(it *store.Item)) {
			t.Helper()
			it := c.good
			it.Attrs = maps.Clone(it.Attrs)
			change(&it)
			require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
			var damaged *store.DamagedError
			require.ErrorAs(t, c.read(table, it.Key == c.other), &damaged, what)
			require.Equal(t, it.Key, damaged.Key, what)
		}
		refused("another key", func(it *store.Item) { it.Key = c.other })
		for attr, v := range c.attrs {
			refused(attr, func(it *store.Item) { it.Attrs[attr] = v })
		}
		refused("a key of another version", func(it *store.Item) {
			it.Body = append([]byte(`{"zzz":1,`), it.Body[1:]...)
			if _, sealed := it.Attrs["seal"]; sealed {
				it.Attrs["seal"] = store.Str(store.BlobDigest(it.Body))
			}
		})
		require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: c.good}))
		require.NoError(t, c.read(table, false))
	}
}

// TestRevokingBesideAGrantThatCannotBeRead: the others are revoked, and the error names the one that is left.
func TestRevokingBesideAGrantThatCannotBeRead(t *testing.T) {
	table := store.NewMemory()
	for _, digest := range []string{"d1", "d2", "d3"} {
		op, err := newStandingGrant("refund", digest).putOp("acme")
		require.NoError(t, err)
		if digest == "d2" {
			op.Item.Body = op.Item.Body[1:]
		}
		require.NoError(t, table.Write(t.Context(), op))
	}
	d := &Desk{Table: table, Clock: clock.NewVirtual(damagedAt)}
	revoke := func(digest string) error {
		return d.Revoke(t.Context(), Revocation{Tenant: "acme", Agent: "clerk", Tool: "refund", Digest: digest, By: policy.Principal{ID: "user:ana"}})
	}
	require.NoError(t, revoke("d1"), "nobody wants the other one revoked")
	require.ErrorIs(t, revoke("d4"), ErrNoGrant)
	require.ErrorIs(t, revoke("d\x00"), ErrNoGrant)
	require.ErrorIs(t, revoke("d2"), store.ErrDamaged)
	err := revoke("")
	require.ErrorIs(t, err, store.ErrDamaged)
	require.ErrorContains(t, err, "refund#d2")
	for _, digest := range []string{"d1", "d3"} {
		it, _, err := table.Get(t.Context(), standingKey("acme", "clerk", "refund", digest))
		require.NoError(t, err)
		require.EqualValues(t, 1, it.Attrs["revoked"].Int(), digest)
	}
}

// A record that cannot be read keeps no run from being deleted: the grants of the others go.
func TestDeletingBesideARecordThatCannotBeRead(t *testing.T) {
	table := store.NewMemory()
	op, err := newStandingGrant("refund", "d1").putOp("acme")
	require.NoError(t, err)
	good, err := json.Marshal(decisionGrants{ApprovedBy: []run.Approver{}, Grants: []tracedGrant{{Tool: "refund", Digest: "d1"}}})
	require.NoError(t, err)
	ops := []store.Op{op}
	for sk, body := range map[string][]byte{"G#a0#1": good[1:], "G#a1#1": good} {
		ops = append(ops, store.Op{Kind: store.Put, Item: store.Item{Key: store.Key{PK: runPartition("acme", "r1"), SK: sk}, Body: body}})
	}
	require.NoError(t, table.Write(t.Context(), ops...))
	require.NoError(t, DeleteStanding(t.Context(), table, "acme", "clerk", "r1"))
	_, found, err := table.Get(t.Context(), op.Item.Key)
	require.NoError(t, err)
	require.False(t, found)
}
