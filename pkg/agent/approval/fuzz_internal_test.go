package approval

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// FuzzReadItems: whatever body a stored request, grant or server has, it is read as what is written again, or refused as damaged.
func FuzzReadItems(f *testing.F) {
	for _, made := range []func() (store.Op, error){
		func() (store.Op, error) {
			return CreateOp(Approval{
				Tenant: "acme", ID: "a1", Run: "r1", Agent: "clerk", Kind: KindCall, Calls: []string{"c1"}, Args: json.RawMessage(`{"a":1.50}`),
				Status: Pending, RequestedAt: damagedAt, ExpiresAt: damagedAt.Add(time.Hour), Thread: []Remark{{By: "user:ana", At: damagedAt, Text: "Why?"}},
			})
		},
		func() (store.Op, error) {
			return Standing{Agent: "clerk", Tool: "refund", Digest: "d", Expires: damagedAt, When: []agent.Condition{{Path: "/a", In: []json.RawMessage{json.RawMessage("1")}}}}.op("acme")
		},
		Server{Agent: "clerk", Server: "files", Version: 1, Tools: []PinnedTool{{Tool: "read", Digest: "d"}}}.opOf("acme"),
	} {
		op, err := made()
		require.NoError(f, err)
		f.Add(op.Item.Body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var request form
		if agent.DecodeStored(body, &request) == nil {
			a := request.approval()
			a.Tenant = "acme"
			op, err := put(a)
			if err != nil { // times behind the year 9999
				return
			}
			again, err := decode("acme", a.ID, op.Item)
			if err == nil {
				twice, err := put(again)
				require.NoError(t, err)
				require.Equal(t, string(op.Item.Body), string(twice.Item.Body))
			}
		}
		for _, err := range []error{readErr(decodeStanding("acme", store.Item{Body: body})), readErr(decodeServer("acme", store.Item{Body: body})), readErr(decode("acme", "a1", store.Item{Body: body}))} {
			require.ErrorIs(t, err, store.ErrDamaged, "its attributes are not there")
		}
	})
}

func readErr[T any](_ T, err error) error { return err }
