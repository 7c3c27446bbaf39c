package otlp

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/clock"
)

func context1(t *testing.T, span byte, state string) trace.SpanContext {
	t.Helper()
	ts, err := trace.ParseTraceState(state)
	require.NoError(t, err)
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 15: 3}, SpanID: trace.SpanID{span, 7: 9}, TraceFlags: trace.FlagsSampled, TraceState: ts,
	})
}

// sample is two spans that use everything the protocol has for us.
func sample(t *testing.T) Batch {
	t.Helper()
	start := time.Unix(1_700_000_000, 123_456_789)
	in := Scope{Name: "scope", Version: "v1"}
	return Batch{Service: "countersign", Spans: []Span{
		{
			Name: "pay", SpanContext: context1(t, 1, "a=1"), Parent: context1(t, 2, "").WithRemote(true), SpanKind: trace.SpanKindInternal,
			StartTime: start, EndTime: start.Add(time.Second), Scope: in, DroppedAttributes: 3,
			Attributes: []attribute.KeyValue{
				attribute.String("s", "Grüße \x00 <&>"), attribute.String("empty", ""), attribute.Int64("n", math.MinInt64), attribute.Int("zero", 0),
				attribute.Bool("yes", true), attribute.Bool("no", false), attribute.Float64("f", 1.5), attribute.StringSlice("l", []string{"a", ""}),
			},
			Events: []Event{{Name: "e", Time: start, Attributes: []attribute.KeyValue{attribute.String("k", "v")}}},
			Links:  []trace.Link{{SpanContext: context1(t, 3, "b=2"), Attributes: []attribute.KeyValue{attribute.String("k", "v")}}},
			Status: Status{Code: codes.Error, Description: "timeout"},
		},
		{Name: "root", SpanContext: context1(t, 4, ""), SpanKind: trace.SpanKindInternal, StartTime: start, EndTime: start, Scope: in, Status: Status{Code: codes.Ok}},
	}}
}

// sent is what a collector on loopback got.
type sent struct {
	header http.Header
	path   string
	body   []byte
}

func collect(t *testing.T, c Config) sent {
	t.Helper()
	var got sent
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		got = sent{r.Header.Clone(), r.URL.Path, b}
		w.WriteHeader(http.StatusOK)
	}))
	defer s.Close()
	c.URL = s.URL + "/v1/traces"
	require.NoError(t, New(c, clock.System(), nil).Export(context.Background(), sample(t)))
	return got
}

func TestJSONOnTheWire(t *testing.T) {
	got := collect(t, Config{JSON: true, Gzip: true, Headers: map[string]string{"Api-Key": "k"}})
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, "k", got.header.Get("Api-Key"))
	require.Equal(t, "/v1/traces", got.path)
	require.JSONEq(t, `{"resourceSpans":[{
		"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"countersign"}}]},
		"scopeSpans":[{"scope":{"name":"scope","version":"v1"},"spans":[
			{"traceId":"01020000000000000000000000000003","spanId":"0100000000000009","traceState":"a=1","parentSpanId":"0200000000000009","flags":769,
			 "name":"pay","kind":1,"startTimeUnixNano":"1700000000123456789","endTimeUnixNano":"1700000001123456789","droppedAttributesCount":3,
			 "attributes":[{"key":"s","value":{"stringValue":"Grüße \u0000 <&>"}},{"key":"empty","value":{"stringValue":""}},
				{"key":"n","value":{"intValue":"-9223372036854775808"}},{"key":"zero","value":{"intValue":"0"}},{"key":"yes","value":{"boolValue":true}},
				{"key":"no","value":{"boolValue":false}},{"key":"f","value":{"doubleValue":1.5}},
				{"key":"l","value":{"arrayValue":{"values":[{"stringValue":"a"},{"stringValue":""}]}}}],
			 "events":[{"timeUnixNano":"1700000000123456789","name":"e","attributes":[{"key":"k","value":{"stringValue":"v"}}]}],
			 "links":[{"traceId":"01020000000000000000000000000003","spanId":"0300000000000009","traceState":"b=2","flags":257,"attributes":[{"key":"k","value":{"stringValue":"v"}}]}],
			 "status":{"code":2,"message":"timeout"}},
			{"traceId":"01020000000000000000000000000003","spanId":"0400000000000009","flags":257,"name":"root","kind":1,
			 "startTimeUnixNano":"1700000000123456789","endTimeUnixNano":"1700000000123456789","status":{"code":1}}
		]}]}]}`, string(got.body))
}

// The binary form has the same content: read back by field numbers, it is what the JSON says.
func TestProtobufOnTheWire(t *testing.T) {
	got := collect(t, Config{})
	require.Equal(t, "application/x-protobuf", got.header.Get("Content-Type"))
	all := fields(t, got.body)[1][0]
	resource, scoped := fields(t, all)[1][0], fields(t, all)[2][0]
	require.Equal(t, "service.name", string(fields(t, fields(t, resource)[1][0])[1][0]))
	require.Equal(t, "scope", string(fields(t, fields(t, scoped)[1][0])[1][0]))
	spans := fields(t, scoped)[2]
	require.Len(t, spans, 2)
	s := fields(t, spans[0])
	require.Equal(t, []byte{1, 2, 15: 3}, s[1][0])
	require.Equal(t, []byte{1, 7: 9}, s[2][0])
	require.Equal(t, "a=1", string(s[3][0]))
	require.Equal(t, []byte{2, 7: 9}, s[4][0])
	require.Equal(t, "pay", string(s[5][0]))
	require.Equal(t, uint64(1), number(s[6][0]))
	require.Equal(t, uint64(1700000000123456789), number(s[7][0]))
	require.Equal(t, uint64(1700000001123456789), number(s[8][0]))
	require.Equal(t, uint64(3), number(s[10][0]))
	require.Equal(t, uint64(769), number(s[16][0]))
	require.Equal(t, map[string]string{
		"s": "1:Grüße \x00 <&>", "empty": "1:", "n": "3:9223372036854775808", "zero": "3:0", "yes": "2:1", "no": "2:0", "f": "4:4609434218613702656", "l": "5:[1:a 1:]",
	}, values(t, s[9]))
	e, l, status := fields(t, s[11][0]), fields(t, s[13][0]), fields(t, s[15][0])
	require.Equal(t, "e", string(e[2][0]))
	require.Equal(t, map[string]string{"k": "1:v"}, values(t, e[3]))
	require.Equal(t, []byte{3, 7: 9}, l[2][0])
	require.Equal(t, "b=2", string(l[3][0]))
	require.Equal(t, map[string]string{"k": "1:v"}, values(t, l[4]))
	require.Equal(t, uint64(257), number(l[6][0]))
	require.Equal(t, "timeout", string(status[2][0]))
	require.Equal(t, uint64(2), number(status[3][0]))
	require.NotContains(t, fields(t, spans[1]), 4, "a root has no parent")
}

// fields reads a protobuf message by its wire format; numbers are eight bytes.
func fields(t *testing.T, b []byte) map[int][][]byte {
	t.Helper()
	out := map[int][][]byte{}
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		require.Positive(t, n)
		b = b[n:]
		var v []byte
		switch tag & 7 {
		case wireVarint:
			x, n := binary.Uvarint(b)
			require.Positive(t, n)
			v, b = binary.LittleEndian.AppendUint64(nil, x), b[n:]
		case wireFixed64:
			v, b = b[:8], b[8:]
		case wireFixed32:
			v, b = binary.LittleEndian.AppendUint64(nil, uint64(binary.LittleEndian.Uint32(b))), b[4:]
		case wireBytes:
			size, n := binary.Uvarint(b)
			require.Positive(t, n)
			v, b = b[n:n+int(size)], b[n+int(size):]
		default:
			t.Fatalf("wire type %d", tag&7)
		}
		out[int(tag>>3)] = append(out[int(tag>>3)], v)
	}
	return out
}

func number(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// values are attributes: which member of the union, and its value.
func values(t *testing.T, kvs [][]byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, kv := range kvs {
		f := fields(t, kv)
		out[string(f[1][0])] = value(t, f[2][0])
	}
	return out
}

func value(t *testing.T, b []byte) string {
	t.Helper()
	f := fields(t, b)
	require.Len(t, f, 1, "one member")
	for member := range maps.Keys(f) {
		switch member {
		case 1:
			return "1:" + string(f[1][0])
		case 5:
			var list []string
			for _, v := range fields(t, f[5][0])[1] {
				list = append(list, value(t, v))
			}
			return fmt.Sprint("5:", list)
		default:
			return fmt.Sprintf("%d:%d", member, number(f[member][0]))
		}
	}
	return ""
}

// roundTrip answers without a network, so that time is the bubble's.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What may pass is tried again after as long as the collector asked for, if there is time; what may not is not.
func TestRetries(t *testing.T) {
	answer := func(code int, after string) *http.Response {
		return &http.Response{StatusCode: code, Header: http.Header{"Retry-After": []string{after}}, Body: io.NopCloser(strings.NewReader("secret"))}
	}
	for name, c := range map[string]struct {
		answers []func() (*http.Response, error)
		tries   int
		took    time.Duration
		ok      bool
		refused bool
		after   time.Duration
	}{
		"throttled, then taken": {answers: []func() (*http.Response, error){
			func() (*http.Response, error) { return answer(429, "3"), nil }, func() (*http.Response, error) { return answer(200, ""), nil },
		}, tries: 2, took: 3 * time.Second, ok: true},
		"unreachable, then taken": {answers: []func() (*http.Response, error){
			func() (*http.Response, error) { return nil, &net.OpError{Op: "dial", Err: errors.New("refused")} },
			func() (*http.Response, error) { return answer(503, ""), nil },
			func() (*http.Response, error) { return answer(200, ""), nil },
		}, tries: 3, took: 300 * time.Millisecond, ok: true},
		"asks for more than there is": {answers: []func() (*http.Response, error){
			func() (*http.Response, error) { return answer(503, "60"), nil },
		}, tries: 1, after: time.Minute},
		"refused":        {answers: []func() (*http.Response, error){func() (*http.Response, error) { return answer(400, ""), nil }}, tries: 1, refused: true},
		"a server's bug": {answers: []func() (*http.Response, error){func() (*http.Response, error) { return answer(500, ""), nil }}, tries: 1, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					if _, err := io.ReadAll(r.Body); err != nil {
						return nil, err
					}
					tries++
					return c.answers[tries-1]()
				})}
				from := time.Now()
				x := New(Config{URL: "http://u:secret@collector/v1/traces?key=secret", Client: client}, clock.System(), nil)
				err := x.Export(context.Background(), sample(t))
				require.Equal(t, c.tries, tries)
				require.Equal(t, c.took, time.Since(from))
				if c.ok {
					require.NoError(t, err)
					return
				}
				require.Error(t, err)
				require.NotContains(t, err.Error(), "secret")
				require.Equal(t, c.refused, errors.Is(err, ErrRefused))
				var busy *Unavailable
				require.Equal(t, !c.refused, errors.As(err, &busy))
				if busy != nil {
					require.Equal(t, c.after, busy.After)
				}
			})
		})
	}
}

// A collector that does not answer costs its time and no more.
func TestHangingCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		from := time.Now()
		err := New(Config{URL: "http://collector", Timeout: 2 * time.Second, Client: client}, clock.System(), nil).Export(context.Background(), sample(t))
		var busy *Unavailable
		require.ErrorAs(t, err, &busy)
		require.Equal(t, 2*time.Second, time.Since(from))
	})
}

func TestFromEnv(t *testing.T) {
	const all, traces = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"
	for name, c := range map[string]struct {
		env  map[string]string
		want Config
		off  bool
		err  string
	}{
		"nothing":               {off: true},
		"for every signal":      {env: map[string]string{all + "ENDPOINT": "http://c:4318"}, want: Config{URL: "http://c:4318/v1/traces", Headers: map[string]string{}}},
		"with a path":           {env: map[string]string{all + "ENDPOINT": "https://c/otel/"}, want: Config{URL: "https://c/otel/v1/traces", Headers: map[string]string{}}},
		"for traces, as it is":  {env: map[string]string{all + "ENDPOINT": "http://x", traces + "ENDPOINT": "http://c/t"}, want: Config{URL: "http://c/t", Headers: map[string]string{}}},
		"everything":            {env: map[string]string{all + "ENDPOINT": "http://c", all + "HEADERS": "a=1, b=%20x%3D ", all + "PROTOCOL": "http/json", traces + "COMPRESSION": "gzip", all + "TIMEOUT": "1500"}, want: Config{URL: "http://c/v1/traces", Headers: map[string]string{"a": "1", "b": " x="}, JSON: true, Gzip: true, Timeout: 1500 * time.Millisecond}},
		"no scheme":             {env: map[string]string{all + "ENDPOINT": "c:4318"}, err: all + "ENDPOINT: want http://HOST"},
		"another scheme":        {env: map[string]string{traces + "ENDPOINT": "grpc://c"}, err: traces + "ENDPOINT: want http://HOST"},
		"grpc":                  {env: map[string]string{all + "ENDPOINT": "http://c", all + "PROTOCOL": "grpc"}, err: all + `PROTOCOL: got "grpc", want http/protobuf`},
		"headers":               {env: map[string]string{all + "ENDPOINT": "http://c", traces + "HEADERS": "secret"}, err: traces + "HEADERS: want NAME=VALUE"},
		"a header with a break": {env: map[string]string{all + "ENDPOINT": "http://c", traces + "HEADERS": "a=x%0d%0ay"}, err: traces + "HEADERS: want NAME=VALUE"},
		"compression":           {env: map[string]string{all + "ENDPOINT": "http://c", all + "COMPRESSION": "zip"}, err: `COMPRESSION: got "zip"`},
		"timeout":               {env: map[string]string{all + "ENDPOINT": "http://c", all + "TIMEOUT": "2s"}, err: `TIMEOUT: got "2s", want milliseconds`},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := FromEnv(func(name string) string { return c.env[name] })
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.NotContains(t, err.Error(), "secret")
				return
			}
			require.NoError(t, err)
			require.Equal(t, !c.off, ok)
			require.Equal(t, c.want, got)
		})
	}
}

// An answer is read so that its connection serves again.
func TestConnectionIsKept(t *testing.T) {
	opened := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		opened[r.RemoteAddr] = true
		_ = json.NewEncoder(w).Encode(map[string]any{"partialSuccess": map[string]any{}})
	}))
	defer s.Close()
	x := New(Config{URL: s.URL}, clock.System(), nil)
	for range 3 {
		require.NoError(t, x.Export(context.Background(), sample(t)))
	}
	require.Len(t, opened, 1)
}
