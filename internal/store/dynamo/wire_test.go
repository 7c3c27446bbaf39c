package dynamo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"
)

// request is one request as it went over the wire (awsJson1.0).
type request struct {
	Operation string // of X-Amz-Target
	Body      map[string]any
}

type answerFunc func(*http.Request) (*http.Response, error)

// wire answers requests in this process, one answer for each, and keeps them. It works inside a synctest bubble.
type wire struct {
	mu       sync.Mutex
	answers  []answerFunc
	requests []request
}

func (w *wire) Do(r *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	q := request{Operation: operation}
	if err := json.Unmarshal(raw, &q.Body); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, q)
	if len(w.answers) == 0 {
		return nil, errors.New("no answer left")
	}
	next := w.answers[0]
	w.answers = w.answers[1:]
	return next(r)
}

func answer(status int, body string) answerFunc {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
		}, nil
	}
}

func refusal(code string) answerFunc { return refusalSaying(code, "m") }

func refusalSaying(code, message string) answerFunc {
	return answer(400, fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":%q}`, code, message))
}

// cancelled is a transaction's refusal with a reason, and perhaps ": message", for each operation.
func cancelled(reasons ...string) answerFunc {
	list := make([]map[string]string, len(reasons))
	for i, r := range reasons {
		code, message, _ := strings.Cut(r, ": ")
		list[i] = map[string]string{"Code": code, "Message": message}
	}
	raw, err := json.Marshal(map[string]any{
		"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", "Message": "cancelled", "CancellationReasons": list,
	})
	if err != nil {
		panic(err)
	}
	return answer(400, string(raw))
}

func down(*http.Request) (*http.Response, error) {
	return answer(500, `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"m"}`)(nil)
}

func reset(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// late is what an HTTP client gives when an attempt's own time is up.
type late struct{}

func (late) Error() string { return "Client.Timeout exceeded while awaiting headers" }
func (late) Timeout() bool { return true }

func slow(*http.Request) (*http.Response, error) { return nil, late{} }

func config(client aws.HTTPClient) aws.Config {
	return aws.Config{
		Region: "us-east-1", HTTPClient: client, BaseEndpoint: aws.String("https://dynamodb.test"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}
}

// over runs body with a table behind those answers, in virtual time.
func over(t *testing.T, body func(*testing.T, *dynamo.Table, *wire), answers ...answerFunc) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answers: answers}
		n := 0
		token := func() string { n++; return fmt.Sprintf("token-%d", n) }
		body(t, dynamo.New(config(w), "runs", token), w)
	})
}

var (
	key     = store.Key{PK: "P", SK: "S"}
	absent  = store.Cond{Op: store.ItemAbsent}
	put     = store.Op{Kind: store.Put, Item: store.Item{Key: key, Body: []byte("body")}, If: []store.Cond{absent}}
	update  = store.Op{Kind: store.Update, Item: store.Item{Key: key, Attrs: map[string]store.Value{"status": store.Str("done"), "n": store.Num(-7)}, Index: "I", IndexSort: "1"}, If: []store.Cond{{Attr: "n", Op: store.AtMost, Value: store.Num(3)}}}
	check   = store.Op{Kind: store.Check, Item: store.Item{Key: store.Key{PK: "R", SK: "S"}}, If: []store.Cond{absent}}
	another = store.Op{Kind: store.Put, Item: store.Item{Key: store.Key{PK: "Q", SK: "S"}}}
)

// Every call of the port is one request, and all reads are consistent but those of the index.
func TestRequests(t *testing.T) {
	write := func(ops ...store.Op) func(context.Context, *dynamo.Table) error {
		return func(ctx context.Context, tb *dynamo.Table) error { return tb.Write(ctx, ops...) }
	}
	query := func(r store.Range) func(context.Context, *dynamo.Table) error {
		return func(ctx context.Context, tb *dynamo.Table) error {
			_, err := tb.Query(ctx, r)
			return err
		}
	}
	for _, c := range []struct {
		name, operation string
		fields          map[string]any // some of the request's
		call            func(context.Context, *dynamo.Table) error
	}{
		{"get", "GetItem", map[string]any{"ConsistentRead": true}, func(ctx context.Context, tb *dynamo.Table) error {
			_, found, err := tb.Get(ctx, key)
			require.False(t, found)
			return err
		}},
		{"put", "PutItem", map[string]any{"ConditionExpression": "attribute_not_exists(#n0)"}, write(put)},
		{"put without conditions", "PutItem", nil, write(another)},
		{"update", "UpdateItem", map[string]any{"ConditionExpression": "attribute_exists(#n4) AND #n5 <= :v4"}, write(update)},
		{"check", "GetItem", map[string]any{"ConsistentRead": true}, write(check)},
		{"transaction", "TransactWriteItems", map[string]any{"ClientRequestToken": "token-1"}, write(another, update, check)},
		{"query", "Query", map[string]any{"ConsistentRead": true, "ScanIndexForward": true}, query(store.Range{PK: "P"})},
		{"query of the index", "Query", map[string]any{"ConsistentRead": false, "ScanIndexForward": false, "IndexName": "lists", "Limit": 5.0},
			query(store.Range{PK: "I", Index: true, Reverse: true, Limit: 5, Cursor: "NwBQAFM"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			over(t, func(t *testing.T, tb *dynamo.Table, w *wire) {
				require.NoError(t, c.call(t.Context(), tb))
				require.Len(t, w.requests, 1)
				require.Equal(t, c.operation, w.requests[0].Operation)
				require.Subset(t, w.requests[0].Body, c.fields)
			}, answer(200, `{}`))
		})
	}
}

// meaning is what an error says to the port: the first that it is, or "uncertain".
func meaning(err error) string {
	var failed *store.ConditionError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &failed):
		return fmt.Sprint("failed ", failed.Failed)
	case errors.Is(err, store.ErrThrottled):
		return "throttled"
	case errors.Is(err, store.ErrConflict):
		return "conflict"
	case errors.Is(err, store.ErrTooLarge):
		return "too large"
	case errors.Is(err, store.ErrInvalid):
		return "invalid"
	default:
		return "uncertain"
	}
}

const sizeMessage = "Item size to update has exceeded the maximum allowed size"

// One put or update is sent once, whatever comes back.
func TestWriteAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer answerFunc
		want   string
	}{
		{"done", answer(200, `{}`), "ok"},
		{"condition", refusal("ConditionalCheckFailedException"), "failed [0]"},
		{"table throttled", refusal("ProvisionedThroughputExceededException"), "throttled"},
		{"throttled", refusal("ThrottlingException"), "throttled"},
		{"account throttled", refusal("RequestLimitExceeded"), "throttled"},
		{"conflict", refusal("TransactionConflictException"), "conflict"},
		{"conflict of regions", refusal("ReplicatedWriteConflictException"), "conflict"},
		{"too large", refusalSaying("ValidationException", sizeMessage), "too large"},
		{"invalid", refusalSaying("ValidationException", "The provided key element does not match the schema"), "invalid"},
		{"denied", refusal("AccessDeniedException"), "uncertain"},
		{"no table", refusal("ResourceNotFoundException"), "uncertain"}, {"down", down, "uncertain"},
		{"connection lost", reset, "uncertain"}, {"attempt timed out", slow, "uncertain"},
		{"answer cut short", answer(200, `{"Attrib`), "uncertain"},
		{"refusal cut short", answer(400, `{"__type":"com.amaz`), "uncertain"},
		{"another's answer", answer(502, `<html>Bad gateway</html>`), "uncertain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, op := range []store.Op{put, update} {
				over(t, func(t *testing.T, tb *dynamo.Table, w *wire) {
					err := tb.Write(t.Context(), op)
					require.Equal(t, c.want, meaning(err), "%v", err)
					require.Len(t, w.requests, 1)
				}, c.answer)
			}
		})
	}
}

// A transaction is sent again only when nobody knows what became of it, once, and under the same token.
func TestTransactionAnswers(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []answerFunc
		want    string
	}{
		{"done", []answerFunc{answer(200, `{}`)}, "ok"},
		{"first condition", []answerFunc{cancelled("ConditionalCheckFailed", "None")}, "failed [0]"},
		{"second condition", []answerFunc{cancelled("None", "ConditionalCheckFailed")}, "failed [1]"},
		{"both conditions", []answerFunc{cancelled("ConditionalCheckFailed", "ConditionalCheckFailed")}, "failed [0 1]"},
		{"conflict", []answerFunc{cancelled("None", "TransactionConflict")}, "conflict"},
		{"conflict hides conditions", []answerFunc{cancelled("ConditionalCheckFailed", "TransactionConflict")}, "conflict"},
		{"throttling hides conditions", []answerFunc{cancelled("ConditionalCheckFailed", "ThrottlingError")}, "throttled"},
		{"throttled", []answerFunc{cancelled("ProvisionedThroughputExceeded", "None")}, "throttled"},
		{"throttled as a whole", []answerFunc{refusal("ThrottlingException")}, "throttled"},
		{"too large", []answerFunc{cancelled("None", "ValidationError: "+sizeMessage)}, "too large"},
		{"condition before size", []answerFunc{cancelled("ConditionalCheckFailed", "ValidationError: "+sizeMessage)}, "failed [0]"},
		{"invalid", []answerFunc{cancelled("None", "ValidationError: no such thing")}, "invalid"},
		{"no reasons", []answerFunc{cancelled()}, "uncertain"},
		{"cancelled for nothing", []answerFunc{cancelled("None", "None")}, "uncertain"},
		{"denied", []answerFunc{refusal("AccessDeniedException")}, "uncertain"},

		{"down, then done", []answerFunc{down, answer(200, `{}`)}, "ok"},
		{"lost, then done", []answerFunc{reset, answer(200, `{}`)}, "ok"},
		{"in progress, then done", []answerFunc{refusal("TransactionInProgressException"), answer(200, `{}`)}, "ok"},
		{"refusal cut short, then done", []answerFunc{answer(400, `{"__typ`), answer(200, `{}`)}, "ok"},
		{"timed out, then condition", []answerFunc{slow, cancelled("None", "ConditionalCheckFailed")}, "failed [1]"},
		{"timed out, then throttled", []answerFunc{slow, refusal("ThrottlingException")}, "uncertain"},
		{"timed out, then conflict", []answerFunc{slow, cancelled("None", "TransactionConflict")}, "uncertain"},
		{"in progress twice", []answerFunc{refusal("TransactionInProgressException"), refusal("TransactionInProgressException")}, "uncertain"},
		{"down twice", []answerFunc{down, down}, "uncertain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			over(t, func(t *testing.T, tb *dynamo.Table, w *wire) {
				err := tb.Write(t.Context(), put, another)
				require.Equal(t, c.want, meaning(err), "%v", err)
				require.Len(t, w.requests, len(c.answers))
				for _, r := range w.requests {
					require.Equal(t, w.requests[0], r, "the identical request")
				}
			}, c.answers...)
		})
	}
}

// Reads are resent when something failed, and not when they were throttled.
func TestReadAnswers(t *testing.T) {
	item := answer(200, `{"Item":{"PK":{"S":"P"},"SK":{"S":"S"},"Body":{"B":"Ym9keQ=="},"n":{"N":"5"}}}`)
	for _, c := range []struct {
		name    string
		answers []answerFunc
		want    string
	}{
		{"done", []answerFunc{item}, "ok"},
		{"down, then done", []answerFunc{down, item}, "ok"},
		{"lost and slow, then done", []answerFunc{reset, slow, item}, "ok"},
		{"down for good", []answerFunc{down, down, down}, "uncertain"},
		{"throttled", []answerFunc{refusal("ProvisionedThroughputExceededException")}, "throttled"},
		{"denied", []answerFunc{refusal("AccessDeniedException")}, "uncertain"},
		{"cut short, then done", []answerFunc{answer(200, `{"Item":{"PK":{"S"`), item}, "ok"},
		{"a list", []answerFunc{answer(200, `{"Item":{"PK":{"S":"P"},"SK":{"S":"S"},"a":{"L":[]}}}`)}, "uncertain"},
		{"a fraction", []answerFunc{answer(200, `{"Item":{"PK":{"S":"P"},"SK":{"S":"S"},"a":{"N":"0.5"}}}`)}, "uncertain"},
		{"an unknown body", []answerFunc{answer(200, `{"Item":{"PK":{"S":"P"},"SK":{"S":"S"},"Body":{"M":{"zip":{"B":"AA=="}}}}}`)}, "uncertain"},
		{"a text body", []answerFunc{answer(200, `{"Item":{"PK":{"S":"P"},"SK":{"S":"S"},"Body":{"S":"x"}}}`)}, "uncertain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			over(t, func(t *testing.T, tb *dynamo.Table, w *wire) {
				it, found, err := tb.Get(t.Context(), key)
				require.Equal(t, c.want, meaning(err), "%v", err)
				require.Len(t, w.requests, len(c.answers))
				require.Equal(t, err == nil, found)
				if err == nil {
					require.Equal(t, store.Item{Key: key, Body: []byte("body"), Attrs: map[string]store.Value{"n": store.Num(5)}}, it)
				}
			}, c.answers...)
		})
	}
}

// A context that ends during a request ends it, and nothing is sent any more.
func TestContextEndsDuringARequest(t *testing.T) {
	for name, call := range map[string]func(context.Context, *dynamo.Table) error{
		"put":         func(ctx context.Context, tb *dynamo.Table) error { return tb.Write(ctx, put) },
		"transaction": func(ctx context.Context, tb *dynamo.Table) error { return tb.Write(ctx, put, another) },
		"get": func(ctx context.Context, tb *dynamo.Table) error {
			_, _, err := tb.Get(ctx, key)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			over(t, func(t *testing.T, tb *dynamo.Table, w *wire) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := call(ctx, tb)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, "uncertain", meaning(err))
				require.Len(t, w.requests, 1)
			}, hang, hang, hang)
		})
	}
}

// silent is a connection to somebody who says nothing.
func silent(t *testing.T) (net.Conn, error) {
	here, there := net.Pipe()
	t.Cleanup(func() { _ = there.Close() })
	go func() { _, _ = io.Copy(io.Discard, there) }() // ends with the connection
	return here, nil
}

// An attempt takes two seconds at most, and what the caller has set of the SDK's HTTP client is kept.
func TestClientTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialled := 0
		own := awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) {
			tr.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { dialled++; return silent(t) }
		})
		tb := dynamo.New(config(own), "runs", token)
		from := time.Now()
		require.Equal(t, "uncertain", meaning(tb.Write(t.Context(), put)))
		require.Equal(t, 2*time.Second, time.Since(from))
		require.Equal(t, 1, dialled)
		from = time.Now()
		_, _, err := tb.Get(t.Context(), key)
		require.Equal(t, "uncertain", meaning(err))
		require.Equal(t, 4, dialled)
		require.InDelta(t, 3*2*time.Second, time.Since(from), float64(2*200*time.Millisecond))
	})
}

// losing sends requests to the real engine and loses the answers to the first so many of an operation.
type losing struct {
	next      aws.HTTPClient
	operation string
	lose      int
	sent      int
}

func (l *losing) Do(r *http.Request) (*http.Response, error) {
	resp, err := l.next.Do(r)
	if err != nil || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+l.operation) {
		return resp, err
	}
	if l.sent++; l.sent > l.lose {
		return resp, nil
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return nil, errors.Join(errors.New("connection reset"), err, resp.Body.Close())
}

// lossy is a table of the real engine behind such a connection.
func lossy(t *testing.T, operation string, lose int) (*dynamo.Table, *losing) {
	cfg, name := realEngine(t)
	l := &losing{next: cfg.HTTPClient, operation: operation, lose: lose}
	cfg.HTTPClient = l
	return dynamo.New(cfg, name, token), l
}

// requirePut wants what put writes.
func requirePut(t *testing.T, tb *dynamo.Table) {
	t.Helper()
	it, found, err := tb.Get(t.Context(), key)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, put.Item.Body, it.Body)
}

// Executed, then lost: the transaction is sent again under its token, is not executed again, and says that it is done, though its
// own condition would not hold any more.
func TestTransactionExecutedThenLost(t *testing.T) {
	tb, l := lossy(t, "TransactWriteItems", 1)
	require.NoError(t, tb.Write(t.Context(), put, another))
	require.Equal(t, 2, l.sent)
	requirePut(t, tb)
	require.Equal(t, "failed [0]", meaning(tb.Write(t.Context(), put, another)), "another call is another transaction")
}
