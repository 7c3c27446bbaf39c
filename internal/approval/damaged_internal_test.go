package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/damage"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

var damagedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func tableOf(t *testing.T, ops ...func() (store.Op, error)) *memory.Table {
	t.Helper()
	table := memory.New()
	for _, op := range ops {
		o, err := op()
		require.NoError(t, err)
		require.NoError(t, table.Write(t.Context(), o))
	}
	return table
}

// sealed makes the seal of a body that was changed on purpose fit again, so that it is the reader that is asked.
type sealed struct{ store.Table }

func (s sealed) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	it, found, err := s.Table.Get(ctx, k)
	if _, ok := it.Attrs["seal"]; ok && it.Attrs["seal"].IsString() {
		it.Attrs["seal"] = store.Str(store.BlobDigest(it.Body))
	}
	return it, found, err
}

// A request that is not what was written is shown to nobody and decided by nobody; neither is one that was sealed again.
func TestDamagedRequests(t *testing.T) {
	request := func(tenant, id string) func() (store.Op, error) {
		return func() (store.Op, error) {
			return CreateOp(Approval{
				Tenant: tenant, ID: id, Run: "r1", Agent: "clerk", Kind: KindCall, Calls: []string{"c1"}, Tools: []string{"refund"},
				Args: json.RawMessage(`{"amount":1.50}`), Digest: store.BlobDigest([]byte(id)), Effect: agent.EffectNonIdempotent, Status: Pending,
				Approvers: []string{"group:desk"}, Quorum: 2, RequestedAt: damagedAt, ExpiresAt: damagedAt.Add(time.Hour), FourEyes: true,
				Decisions: []Decision{{By: "user:ana", Action: Approve, At: damagedAt}},
			})
		}
	}
	reads := func(tenant, id string) func(context.Context, store.Table) error {
		return func(ctx context.Context, t store.Table) error {
			_, err := Get(ctx, t, tenant, id)
			return err
		}
	}
	c := damage.Case{
		Table: tableOf(t, request("acme", "a1"), request("acme", "a2")), Key: key("acme", "a1"), Read: reads("acme", "a1"),
		Taken:  []string{"rev: missing", "seal: missing"}, // as it was before there were any
		Sealed: true,
		Copies: map[store.Key]func(context.Context, store.Table) error{key("acme", "a2"): reads("acme", "a2"), key("acme", "a3"): reads("acme", "a3")},
	}
	t.Logf("%d cases", damage.Check(t, c))

	c.Table = tableOf(t, request("acme", "a1"), request("acme", "a2"))
	c.Read = func(ctx context.Context, t store.Table) error { return reads("acme", "a1")(ctx, sealed{t}) }
	c.Sealed = false
	c.Summed = append(optionalOf("approvers", "quorum", "effect", "agent", "tools", "requestedAt", "decisions", "status", "fourEyes"), "body: args")
	t.Logf("%d cases", damage.Check(t, c))
}

// optionalOf are the damages that leave a text which somebody might have written: a key is not there.
func optionalOf(keys ...string) []string {
	out := make([]string, 0, 2*len(keys))
	for _, k := range keys {
		out = append(out, "body: "+k+": missing", "body: "+k+"[0].")
	}
	return out
}

// A standing grant covers calls that nobody is asked about: one that is not what was written covers none.
func TestDamagedGrants(t *testing.T) {
	digest := store.BlobDigest([]byte("x"))
	given := func(digest string) func() (store.Op, error) {
		return func() (store.Op, error) {
			return Standing{
				Agent: "clerk", Tool: "refund", Digest: digest, Approval: "a1", Run: "r1", By: "user:ana", At: damagedAt, Expires: damagedAt.Add(time.Hour),
				Approvers: []string{"group:desk"}, When: []agent.Condition{{Path: "/amount", Lte: json.RawMessage("50")}}, Uses: 3, Used: 1,
			}.op("acme")
		}
	}
	reads := func(tenant, digest string) func(context.Context, store.Table) error {
		return func(ctx context.Context, t store.Table) error {
			all, err := standingRecords(ctx, t, tenant, "clerk", "refund")
			covers, coversErr := StandingOf(ctx, t, tenant, "clerk", []agent.StandingGrant{{Tool: "refund", Digest: digest}}, damagedAt)
			switch {
			case coversErr != nil:
				return fmt.Errorf("calls are kept from being asked about: %w", coversErr)
			case err != nil && (len(covers) > 0 || len(all) != 1):
				return errors.New("a grant that cannot be read covers calls, or hides another")
			case err == nil && (len(covers) != 1 || len(all) != 2):
				return errors.New("a grant that is read covers nothing")
			}
			return err
		}
	}
	other := store.BlobDigest([]byte("y"))
	t.Logf("%d cases", damage.Check(t, damage.Case{
		Table: tableOf(t, given(digest), given(other)), Key: standingKey("acme", "clerk", "refund", digest), Read: reads("acme", digest),
		Taken: []string{"used: missing"}, Summed: append(optionalOf("run", "by", "at", "approvers", "uses", "argsHash"), "body: when"),
		Copies: map[store.Key]func(context.Context, store.Table) error{standingKey("acme", "clerk", "refund", other): reads("acme", other)},
	}))
}

// What is on record of a server decides which of its tools run without anybody being asked.
func TestDamagedServers(t *testing.T) {
	server := func(name string) func() (store.Op, error) {
		return Server{
			Agent: "clerk", Server: name, Version: 1, Since: damagedAt, Run: "r1", Tools: []PinnedTool{{Tool: "read", Digest: "d1", At: damagedAt}},
			Pending: []PendingTool{{Tool: "write", Digest: "d2", Since: damagedAt, Run: "r1"}},
		}.opOf("acme")
	}
	reads := func(name string) func(context.Context, store.Table) error {
		return func(ctx context.Context, t store.Table) error {
			_, err := (&ServerPins{Table: t}).Get(ctx, "acme", "clerk", name)
			return err
		}
	}
	t.Logf("%d cases", damage.Check(t, damage.Case{
		Table: tableOf(t, server("files"), server("web")), Key: serverKey("acme", "clerk", "files"), Read: reads("files"),
		Summed: append(optionalOf("run", "since", "tools", "pending"), "body: pending[0].", "body: tools[0].at: missing"),
		Copies: map[store.Key]func(context.Context, store.Table) error{serverKey("acme", "clerk", "web"): reads("web")},
	}))
}

func (s Server) opOf(tenant string) func() (store.Op, error) {
	return func() (store.Op, error) { return s.op(tenant) }
}

// One that is broken hides no other from who lists them, and is told by itself.
func TestDamagedItemsHideNoOthers(t *testing.T) {
	ctx := t.Context()
	request := func(id string) func() (store.Op, error) {
		return func() (store.Op, error) {
			return CreateOp(Approval{Tenant: "acme", ID: id, Run: "r1", Kind: KindCall, Calls: []string{"c1"}, Status: Pending, RequestedAt: damagedAt, ExpiresAt: damagedAt.Add(time.Hour)})
		}
	}
	grant := func(tool string) func() (store.Op, error) {
		return func() (store.Op, error) {
			return Standing{Agent: "clerk", Tool: tool, Digest: "d", Expires: damagedAt.Add(time.Hour)}.op("acme")
		}
	}
	server := func(name string) func() (store.Op, error) {
		return Server{Agent: "clerk", Server: name, Version: 1}.opOf("acme")
	}
	table := tableOf(t, request("a1"), request("a2"), request("a3"), grant("b1"), grant("b2"), grant("b3"), server("s1"), server("s2"), server("s3"))
	for _, k := range []store.Key{key("acme", "a2"), standingKey("acme", "clerk", "b2", "d"), serverKey("acme", "clerk", "s2")} {
		it, found, err := table.Get(ctx, k)
		require.NoError(t, err)
		require.True(t, found)
		it.Body = it.Body[:len(it.Body)-1]
		require.NoError(t, table.Write(ctx, store.Op{Kind: store.Put, Item: it}))
	}
	approvals, _, err := List(ctx, table, "acme", Pending, 0, "")
	requireSpared(t, err, "#APPROVAL#a2")
	require.Len(t, approvals, 2)
	grants, _, err := ListStanding(ctx, table, "acme", Grants{}, damagedAt)
	requireSpared(t, err, "b2#d")
	require.Len(t, grants, 2)
	servers, _, err := (&ServerPins{Table: table}).List(ctx, "acme", Servers{})
	requireSpared(t, err, "s2")
	require.Len(t, servers, 2)
}

func requireSpared(t *testing.T, err error, names string) {
	t.Helper()
	damaged, spoilt := store.Spared(err)
	require.NoError(t, spoilt)
	require.Len(t, damaged, 1)
	require.ErrorIs(t, damaged[0].Err, store.ErrDamaged)
	require.ErrorContains(t, damaged[0].Err, names)
}

// Whoever takes grants back takes back those that can be read, and hears of the one that is left.
func TestRevokingBesideADamagedGrant(t *testing.T) {
	for name, spoil := range map[string]struct {
		change func(body []byte) []byte
		is     error
	}{
		"damaged": {func(b []byte) []byte { return b[:len(b)-1] }, store.ErrDamaged},
		"newer":   {func(b []byte) []byte { return append([]byte(`{"weekdays":["mon"],`), b[1:]...) }, agent.ErrNewer},
	} {
		t.Run(name, func(t *testing.T) {
			given := func(digest string) func() (store.Op, error) {
				return func() (store.Op, error) {
					return Standing{Agent: "clerk", Tool: "refund", Digest: digest, Approval: "a1", Expires: damagedAt.Add(time.Hour), Approvers: []string{"user:ana"}}.op("acme")
				}
			}
			table := tableOf(t, given("d1"), given("d2"), given("d3"))
			bad := standingKey("acme", "clerk", "refund", "d2")
			it, _, err := table.Get(t.Context(), bad)
			require.NoError(t, err)
			it.Body = spoil.change(it.Body)
			require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
			c := clock.NewVirtual(damagedAt)
			d := &Desk{Table: table, Clock: c}
			revoke := func(digest string) error {
				return d.Revoke(t.Context(), Revocation{Tenant: "acme", Agent: "clerk", Tool: "refund", Digest: digest, By: agent.Principal{ID: "user:ana"}})
			}
			require.NoError(t, revoke("d1"), "another one is not about it")
			require.ErrorIs(t, revoke("d2"), spoil.is)
			err = revoke("")
			require.ErrorIs(t, err, spoil.is)
			require.ErrorContains(t, err, "all but what cannot be read")
			require.ErrorContains(t, err, bad.SK)
			for _, digest := range []string{"d1", "d3"} {
				it, _, err := table.Get(t.Context(), standingKey("acme", "clerk", "refund", digest))
				require.NoError(t, err)
				require.EqualValues(t, 1, it.Attrs["revoked"].Int(), digest)
			}
		})
	}
}
