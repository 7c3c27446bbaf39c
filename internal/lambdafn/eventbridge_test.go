package lambdafn_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/runtime"
)

const taken = `{"FailedEntryCount":0,"Entries":[{"EventId":"e1"}]}`

func bus(answers ...answer) (*lambdafn.Bus, *service) {
	s := &service{answers: answers}
	return lambdafn.NewBus(config(s), "orders", machine), s
}

var event = policy.Outgoing{ID: "r1/c1", Type: "com.weather", Tenant: "acme", Run: "r1", Agent: "clerk", Call: "c1", Subject: "r1", Data: json.RawMessage(`{"city":"<Oslo>","n":1.0}`)}

func TestEmit(t *testing.T) {
	b, s := bus(says(200, taken))
	require.NoError(t, b.Emit(t.Context(), event))
	require.Len(t, s.asked, 1)
	r := s.asked[0]
	require.Equal(t, "AWSEvents.PutEvents", r.Header.Get("X-Amz-Target"))
	require.Equal(t, "application/x-amz-json-1.1", r.Header.Get("Content-Type"))
	require.Contains(t, r.Header.Get("Authorization"), "/eu-central-1/events/aws4_request")
	require.Equal(t, "SESSION", r.Header.Get("X-Amz-Security-Token"))
	require.Len(t, s.bodies[0]["Entries"], 1)
	entry := s.bodies[0]["Entries"].([]any)[0].(map[string]any)
	require.Subset(t, entry, map[string]any{"Source": "countersign", "DetailType": "com.weather", "EventBusName": "orders"})
	require.Equal(t, []any{machine}, entry["Resources"], "rules tell one stack's events from another's")
	require.Contains(t, entry["Detail"], `"data":{"city":"<Oslo>","n":1.0}`, "digit for digit")
	var detail policy.Outgoing
	require.NoError(t, json.Unmarshal([]byte(entry["Detail"].(string)), &detail))
	require.Equal(t, event, detail)
}

// What may pass is tried again, under the same id; what will not is said to be undeliverable; and nothing of the event is in an error.
func TestEmitFails(t *testing.T) {
	failed := func(code string) answer {
		return says(200, fmt.Sprintf(`{"FailedEntryCount":1,"Entries":[{"ErrorCode":%q,"ErrorMessage":"secret <Oslo>"}]}`, code))
	}
	for name, c := range map[string]struct {
		answers       []answer
		asked         int
		ok, permanent bool
	}{
		"throttled once": {answers: []answer{
			says(400, `{"__type":"com.amazonaws#ThrottlingException","message":"secret <Oslo>"}`), says(200, taken),
		}, asked: 2, ok: true},
		"the entry throttled":  {answers: []answer{failed("ThrottlingException"), says(200, taken)}, asked: 2, ok: true},
		"failing":              {answers: []answer{failed("InternalFailure")}, asked: 4},
		"unavailable":          {answers: []answer{says(503, `secret <Oslo>`)}, asked: 4},
		"no answer to it":      {answers: []answer{says(200, `{}`)}, asked: 4},
		"no JSON":              {answers: []answer{says(200, `<html>secret`)}, asked: 1},
		"forbidden":            {answers: []answer{says(400, `{"__type":"AccessDeniedException","message":"secret <Oslo>"}`)}, asked: 1},
		"malformed":            {answers: []answer{failed("MalformedDetail")}, asked: 1, permanent: true},
		"refused as it is":     {answers: []answer{says(400, `{"__type":"ValidationException"}`)}, asked: 1, permanent: true},
		"too large for it":     {answers: []answer{says(413, ``)}, asked: 1, permanent: true},
		"redirected elsewhere": {answers: []answer{says(307, ``)}, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, s := bus(c.answers...)
				err := b.Emit(t.Context(), event)
				require.Len(t, s.asked, c.asked)
				if c.ok {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, "r1/c1")
				require.NotContains(t, err.Error(), "secret")
				require.NotContains(t, err.Error(), "Oslo")
				require.Equal(t, c.permanent, isUndeliverable(err), "%v", err)
			})
		})
	}
	t.Run("too large", func(t *testing.T) {
		b, s := bus(says(200, taken))
		large := event
		large.Data = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
		require.ErrorIs(t, b.Emit(t.Context(), large), runtime.ErrUndeliverable)
		require.Empty(t, s.asked)
	})
	t.Run("nobody there", func(t *testing.T) {
		cfg := config(nil)
		cfg.BaseEndpoint = aws.String("http://127.0.0.1:1")
		err := lambdafn.NewBus(cfg, "orders", machine).Emit(t.Context(), event)
		require.Error(t, err)
		require.False(t, isUndeliverable(err))
	})
}

func isUndeliverable(err error) bool { return errors.Is(err, runtime.ErrUndeliverable) }
