package approval_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

var operator = policy.Principal{ID: "user:ops", Groups: []string{"group:operators"}}

// sights has a run see a server's tools, each with its digest.
func sights(run string, tools ...string) approval.Sighting {
	s := approval.Sighting{Tenant: tenant, Agent: "clerk", Run: run, Server: "files"}
	for i := 0; i+1 < len(tools); i += 2 {
		s.Tools = append(s.Tools, agent.ServerTool{Name: tools[i], Description: "is " + tools[i+1], Schema: json.RawMessage(`{"type":"object"}`), Digest: tools[i+1]})
	}
	return s
}

func newPins() *approval.ServerPins {
	return &approval.ServerPins{Table: memory.New(), Blobs: memory.NewBlobs(), Clock: clock.System()}
}

// TestServerIsTrustedOnFirstUseAlone is A7.
func TestServerIsTrustedOnFirstUseAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newPins()
		saw := func(s approval.Sighting) policy.Pins {
			t.Helper()
			pins, err := v.Saw(t.Context(), s)
			require.NoError(t, err)
			return pins
		}
		first := policy.Pins{"read": "1", "list": "2"}
		require.Equal(t, first, saw(sights("r1", "read", "1", "list", "2")))
		require.Equal(t, first, saw(sights("r2", "read", "9", "list", "2", "wipe", "3")), "what differs is not approved by being seen")
		s, err := v.Get(t.Context(), tenant, "clerk", "files")
		require.NoError(t, err)
		require.Equal(t, "r2", s.Pending[0].Run)
		require.Len(t, s.Pending, 2)
		was, err := v.Definition(t.Context(), tenant, s.Tools[1].Seen, "read")
		require.NoError(t, err)
		is, err := v.Definition(t.Context(), tenant, s.Pending[0].Seen, "read")
		require.NoError(t, err)
		require.Equal(t, []string{"is 1", "is 9"}, []string{was.Description, is.Description})

		time.Sleep(time.Hour)
		saw(sights("r3", "read", "9", "list", "2", "wipe", "3"))
		again, err := v.Get(t.Context(), tenant, "clerk", "files")
		require.NoError(t, err)
		require.Equal(t, s, again, "nothing new is nothing to write")

		require.Equal(t, first, saw(sights("r4", "read", "1", "list", "2")))
		s, err = v.Get(t.Context(), tenant, "clerk", "files")
		require.NoError(t, err)
		require.Empty(t, s.Pending, "what the server does not say any more waits no longer")

		other := sights("r5", "read", "7")
		other.Agent = "other"
		require.Equal(t, policy.Pins{"read": "7"}, saw(other), "another agent has pins of its own")
		other.Agent, other.Tenant = "clerk", "tenant2"
		require.Equal(t, policy.Pins{"read": "7"}, saw(other), "and so has another tenant")
	})
}

// TestApprovingAServerApprovesWhatWasSeen: by its digest, by an operator, once.
func TestApprovingAServerApprovesWhatWasSeen(t *testing.T) {
	v := newPins()
	ctx := t.Context()
	approve := func(tool, digest string, by policy.Principal) error {
		_, err := v.Approve(ctx, approval.ServerApproval{Tenant: tenant, Agent: "clerk", Server: "files", Tool: tool, Digest: digest, By: by, Note: "n"})
		return err
	}
	require.ErrorIs(t, approve("read", "1", operator), approval.ErrNoServer)
	for _, s := range []approval.Sighting{sights("r1", "read", "1"), sights("r2", "read", "2", "wipe", "3")} {
		_, err := v.Saw(ctx, s)
		require.NoError(t, err)
	}
	require.ErrorIs(t, approve("read", "2", policy.Principal{ID: "user:ops", Groups: []string{"group:finance"}}), approval.ErrForbidden)
	var moved *approval.ServerMovedError
	require.ErrorAs(t, approve("read", "1.5", operator), &moved)
	require.Equal(t, "2", moved.Now)
	require.ErrorIs(t, approve("list", "1", operator), approval.ErrNoPending)
	require.NoError(t, approve("read", "2", operator))
	require.NoError(t, approve("read", "2", operator), "the same again")
	s, err := v.Get(ctx, tenant, "clerk", "files")
	require.NoError(t, err)
	require.Equal(t, []string{"2", "user:ops", "n"}, []string{s.Tools[0].Digest, s.Tools[0].By, s.Tools[0].Note})
	was, err := v.Definition(ctx, tenant, s.Tools[0].Was, "read")
	require.NoError(t, err)
	require.Equal(t, "is 1", was.Description, "what it was before is on record")

	all := s.PendingDigest()
	require.NoError(t, approve("", all, operator))
	require.NoError(t, approve("", all, operator), "the same again")
	require.ErrorIs(t, approve("", "x", operator), approval.ErrNoPending)
	pins, err := v.Saw(ctx, sights("r3", "read", "2", "wipe", "3"))
	require.NoError(t, err)
	require.Equal(t, policy.Pins{"read": "2", "wipe": "3"}, pins)
}

// TestMetAToolThatNobodyCouldRead: its digest waits until a list shows the definition.
func TestMetAToolThatNobodyCouldRead(t *testing.T) {
	v := newPins()
	ctx := t.Context()
	require.NoError(t, v.Met(ctx, sights("r0"), "read", "2"), "of a server that is on no record there is nothing to say")
	_, err := v.Get(ctx, tenant, "clerk", "files")
	require.ErrorIs(t, err, approval.ErrNoServer)
	_, err = v.Saw(ctx, sights("r1", "read", "1"))
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, v.Met(ctx, sights("r1"), "read", "2"))
	}
	s, err := v.Get(ctx, tenant, "clerk", "files")
	require.NoError(t, err)
	require.Equal(t, int64(2), s.Version)
	require.Empty(t, s.Pending[0].Seen)
	_, err = v.Saw(ctx, sights("r2", "read", "2"))
	require.NoError(t, err)
	s, err = v.Get(ctx, tenant, "clerk", "files")
	require.NoError(t, err)
	require.NotEmpty(t, s.Pending[0].Seen)
}

// TestServerRecordsUnderConcurrency: whoever lists first pins, everybody gets the same pins, and of two approvals of different digests at most
// one is taken.
func TestServerRecordsUnderConcurrency(t *testing.T) {
	v := newPins()
	var wg sync.WaitGroup
	got := make([]policy.Pins, 8)
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = v.Saw(t.Context(), sights(fmt.Sprint("r", i), "read", fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, pins := range got {
		require.Equal(t, got[0], pins)
	}
}

func TestListServers(t *testing.T) {
	v := newPins()
	for _, name := range []string{"a", "b"} {
		for _, server := range []string{"x", "y"} {
			s := sights("r", "read", "1")
			s.Agent, s.Server = name, server
			_, err := v.Saw(t.Context(), s)
			require.NoError(t, err)
		}
	}
	for of, want := range map[string][]string{"": {"a/x", "a/y", "b/x", "b/y"}, "b": {"b/x", "b/y"}, "c": nil} {
		var names []string
		q := approval.Servers{Agent: of, Limit: 1}
		for {
			list, next, err := v.List(t.Context(), tenant, q)
			require.NoError(t, err)
			for _, s := range list {
				names = append(names, s.Agent+"/"+s.Server)
			}
			if q.Cursor = next; next == "" {
				break
			}
		}
		require.Equal(t, want, names)
	}
	_, err := v.Get(t.Context(), tenant, "a", "z")
	require.ErrorIs(t, err, approval.ErrNoServer)
	_, _, err = v.List(t.Context(), tenant, approval.Servers{Cursor: "%%"})
	require.ErrorIs(t, err, store.ErrInvalid)
}
