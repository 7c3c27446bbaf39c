package awssdk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/runtime"
)

func config(url string) aws.Config {
	return aws.Config{
		Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", "SESSION"), BaseEndpoint: &url,
	}
}

// busAnswer is what a service at the other end says to one request.
type busAnswer struct {
	status int
	body   string
}

const taken = `{"FailedEntryCount":0,"Entries":[{"EventId":"e1"}]}`

// bus answers in order, the last one repeating, and keeps what it was asked.
func bus(t *testing.T, answers ...busAnswer) (b *awssdk.Bus, asked *[]*http.Request, bodies *[]string) {
	t.Helper()
	asked, bodies = new([]*http.Request), new([]string)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		a := answers[min(len(*asked), len(answers)-1)]
		*asked, *bodies = append(*asked, r), append(*bodies, string(body))
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.body))
	}))
	t.Cleanup(srv.Close)
	return awssdk.NewBus(config(srv.URL), "orders", machine), asked, bodies
}

var event = policy.Outgoing{ID: "r1/c1", Type: "com.weather", Tenant: "acme", Run: "r1", Agent: "clerk", Call: "c1", Subject: "r1", Data: json.RawMessage(`{"city":"<Oslo>","n":1.0}`)}

func TestEmit(t *testing.T) {
	b, asked, bodies := bus(t, busAnswer{200, taken})
	require.NoError(t, b.Emit(t.Context(), event))
	require.Len(t, *asked, 1)
	r := (*asked)[0]
	require.Equal(t, "AWSEvents.PutEvents", r.Header.Get("X-Amz-Target"))
	require.Equal(t, "application/x-amz-json-1.1", r.Header.Get("Content-Type"))
	require.Contains(t, r.Header.Get("Authorization"), "/eu-central-1/events/aws4_request")
	require.Equal(t, "SESSION", r.Header.Get("X-Amz-Security-Token"))
	var in struct {
		Entries []struct {
			Source, DetailType, Detail, EventBusName string
			Resources                                []string
		}
	}
	require.NoError(t, json.Unmarshal([]byte((*bodies)[0]), &in))
	require.Len(t, in.Entries, 1)
	require.Equal(t, []string{"countersign", "com.weather", "orders"}, []string{in.Entries[0].Source, in.Entries[0].DetailType, in.Entries[0].EventBusName})
	require.Equal(t, []string{machine}, in.Entries[0].Resources, "rules tell one stack's events from another's")
	require.Contains(t, in.Entries[0].Detail, `"data":{"city":"<Oslo>","n":1.0}`, "digit for digit")
	var detail policy.Outgoing
	require.NoError(t, json.Unmarshal([]byte(in.Entries[0].Detail), &detail))
	require.Equal(t, event, detail)
}

// What may pass is tried again, under the same id; what will not is said to be undeliverable; and nothing of the event is in an error.
func TestEmitFails(t *testing.T) {
	refused := func(code string) busAnswer {
		return busAnswer{200, fmt.Sprintf(`{"FailedEntryCount":1,"Entries":[{"ErrorCode":%q,"ErrorMessage":"secret <Oslo>"}]}`, code)}
	}
	for name, c := range map[string]struct {
		answers       []busAnswer
		asked         int
		ok, permanent bool
	}{
		"throttled once":       {answers: []busAnswer{{400, `{"__type":"com.amazonaws#ThrottlingException","message":"secret <Oslo>"}`}, {200, taken}}, asked: 2, ok: true},
		"the entry throttled":  {answers: []busAnswer{refused("ThrottlingException"), {200, taken}}, asked: 2, ok: true},
		"failing":              {answers: []busAnswer{refused("InternalFailure")}, asked: 4},
		"unavailable":          {answers: []busAnswer{{503, `secret <Oslo>`}}, asked: 4},
		"no answer to it":      {answers: []busAnswer{{200, `{}`}}, asked: 4},
		"no JSON":              {answers: []busAnswer{{200, `<html>secret`}}, asked: 1},
		"forbidden":            {answers: []busAnswer{{400, `{"__type":"AccessDeniedException","message":"secret <Oslo>"}`}}, asked: 1},
		"malformed":            {answers: []busAnswer{refused("MalformedDetail")}, asked: 1, permanent: true},
		"refused as it is":     {answers: []busAnswer{{400, `{"__type":"ValidationException"}`}}, asked: 1, permanent: true},
		"too large for it":     {answers: []busAnswer{{413, ``}}, asked: 1, permanent: true},
		"redirected elsewhere": {answers: []busAnswer{{307, ``}}, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some wait before they ask again
			b, asked, _ := bus(t, c.answers...)
			err := b.Emit(t.Context(), event)
			require.Len(t, *asked, c.asked)
			if c.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "r1/c1")
			require.NotContains(t, err.Error(), "secret")
			require.NotContains(t, err.Error(), "Oslo")
			require.Equal(t, c.permanent, isUndeliverable(err), "%v", err)
		})
	}
	t.Run("too large", func(t *testing.T) {
		b, asked, _ := bus(t, busAnswer{200, taken})
		large := event
		large.Data = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
		require.ErrorIs(t, b.Emit(t.Context(), large), runtime.ErrUndeliverable)
		require.Empty(t, *asked)
	})
	t.Run("nobody there", func(t *testing.T) {
		b := awssdk.NewBus(config("http://127.0.0.1:1"), "orders", machine)
		err := b.Emit(t.Context(), event)
		require.Error(t, err)
		require.False(t, isUndeliverable(err))
	})
}

func isUndeliverable(err error) bool { return errors.Is(err, runtime.ErrUndeliverable) }
