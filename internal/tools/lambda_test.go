package tools

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/tool"
)

const region = "eu-central-1"

var signer = aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET", SessionToken: "SESSION"}

// serving serves functions, and gives the client of them.
func serving(t *testing.T, f *standins.Functions) *Functions {
	t.Helper()
	f.Credentials, f.Region, f.Clock = signer, region, clock.System()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return client(srv.URL)
}

// client sends again without a pause to speak of. That the SDK may try often (AWS_MAX_ATTEMPTS) changes nothing.
func client(at string) *Functions {
	c := NewFunctions(aws.Config{
		Region: region, Credentials: credentials.StaticCredentialsProvider{Value: signer}, BaseEndpoint: &at,
		RetryMaxAttempts: 7,
	})
	c.pause = retry.NewExponentialJitterBackoff(time.Microsecond)
	return c
}

// gives is a function with one result.
func gives(text string) standins.Function {
	return func(context.Context, json.RawMessage) (any, *standins.FunctionError) {
		return json.RawMessage(text), nil
	}
}

var stock = agent.ToolSpec{Name: "stock.take", Kind: agent.KindLambda, Effect: run.EffectNonIdempotent, Lambda: &agent.LambdaTool{Function: "stock"}}

var take = tool.Call{Tenant: "acme", Run: "r1", ID: "c1", Name: "stock.take", Key: "r1/c1", Args: json.RawMessage(`{"n":1.0}`), State: json.RawMessage(`{}`)}

// lambdaCall makes the call of a tool of these functions.
func lambdaCall(t *testing.T, c *Functions, spec agent.ToolSpec, in tool.Call) (agent.ToolResultData, error) {
	t.Helper()
	s := Lambda{Functions: c}.Open("default", &agent.Definition{})
	defer s.Close()
	require.Equal(t, spec, s.Tool(spec).Spec())
	return s.Tool(spec).Call(t.Context(), in)
}

// Names, versions and ARNs are signed and sent as they are; the payload is what the function gets.
func TestInvoke(t *testing.T) {
	for _, name := range []string{"stock", "stock:live", "000000000000:function:stock", "arn:aws:lambda:eu-central-1:000000000000:function:stock:$LATEST"} {
		f := &standins.Functions{Named: map[string]standins.Function{name: gives(`"ok"`)}}
		c := serving(t, f)
		spec := stock
		spec.Lambda = &agent.LambdaTool{Function: name}
		in := take // it sees the state it shares, and what people answered when it asked
		in.State, in.Resume = json.RawMessage(`{"cart":[1.0]}`), json.RawMessage(`false`)
		got, err := lambdaCall(t, c, spec, in)
		require.NoError(t, err)
		require.Equal(t, agent.ToolResultData{Content: "ok"}, got)
		require.Equal(t, []standins.Invoked{{
			Function: name, Payload: json.RawMessage(`{"tool":"stock.take","args":{"n":1.0},"key":"r1/c1","tenant":"acme",` +
				`"run":"r1","call":"c1","state":{"cart":[1.0]},"resume":false}`),
		}}, f.Asked())
	}
}

// A result of our form is read; any other is the function's text, digit for digit.
func TestResults(t *testing.T) {
	bad := func(why string) agent.ToolResultData {
		return agent.ToolResultData{Content: "the function ran, but its result cannot be read: " + why, IsError: true}
	}
	for given, want := range map[string]agent.ToolResultData{
		`"plain"`:                          {Content: "plain"},
		`null`:                             {},
		`1.50`:                             {Content: "1.50"},
		`false`:                            {Content: "false"},
		`[1,{"a":"b"}]`:                    {Content: `[1,{"a":"b"}]`},
		`{}`:                               {Content: `{}`},
		`{"n":1.0}`:                        {Content: `{"n":1.0}`},
		`{"text":"a","statusCode":1}`:      {Content: `{"text":"a","statusCode":1}`},
		`{"text":"a"}`:                     {Content: "a"},
		`{"text":5}`:                       {Content: "5"},
		`{"json":{"n":1.0}}`:               {Content: `{"n":1.0}`},
		`{"json":"s"}`:                     {Content: `s`},
		`{"error":"out of stock"}`:         {Content: "out of stock", IsError: true},
		`{"error":{"code":1}}`:             {Content: `{"code":1}`, IsError: true},
		`{"text":"a","error":"b"}`:         bad("got 2 of text, json, error and suspend, want one"),
		`{"suspend":{"message":"Which?"}}`: {Suspend: &run.Ticket{Message: "Which?"}},
		`{"suspend":"now"}`:                bad("suspend: want an object of that form"),
		`{"media":{"mediaType":"image/png","data":"AA=="}}`: {Media: []run.Media{{MediaType: "image/png", Data: "AA=="}}},
		`{"text":"a","media":[{"mediaType":"image/png","data":"AA=="},{"mediaType":"a/b","data":"BB=="}]}`: {
			Content: "a", Media: []run.Media{{MediaType: "image/png", Data: "AA=="}, {MediaType: "a/b", Data: "BB=="}},
		},
		`{"media":{"mediaType":"image/png","blob":"sha256"}}`: bad("media: want mediaType and data, in base64"),
		`{"media":[]}`: {Media: []run.Media{}},
		`{"text":"a","patch":[{"path":"/n","value":1.0},{"path":"/x"}]}`: {
			Content: "a", Patch: []run.Patch{{Path: "/n", Value: json.RawMessage(`1.0`)}, {Path: "/x"}},
		},
		`{"patch":{"path":"/n"}}`: bad("patch: want an object of that form"),
	} {
		got, err := lambdaCall(t, serving(t, &standins.Functions{Named: map[string]standins.Function{"stock": gives(given)}}), stock, take)
		require.NoError(t, err, given)
		require.Equal(t, want, got, given)
	}
}

// A function that says it failed is a failed call in its own words, bounded and without its stack; one that ended
// without a word may have done what it was asked.
func TestFunctionErrors(t *testing.T) {
	for _, c := range []struct {
		said standins.FunctionError
		want string
		lost bool
	}{
		{standins.FunctionError{Type: "ValueError", Message: "no such item", Trace: []string{"at /var/task/secret.py"}}, "the function failed: ValueError: no such item", false},
		{standins.FunctionError{Message: "no\x1b[31m\nsuch item"}, "the function failed: no [31m such item", false},
		{standins.FunctionError{}, "the function failed: it gave no reason", false},
		{standins.FunctionError{Type: "E", Message: strings.Repeat("é", 1001)}, "the function failed: E: " + strings.Repeat("é", 1000) + " […]", false},
		{standins.FunctionError{Type: "E", Message: "Task timed out after a while, said the shop"}, "the function failed: E: Task timed out after a while, said the shop", false},
		{standins.FunctionError{Message: "2026-11-22T00:00:00.000Z r Task timed out after 3.00 seconds"}, "2026-11-22T00:00:00.000Z r Task timed out after 3.00 seconds", true},
		{standins.FunctionError{Type: "Sandbox.Timedout", Message: "RequestId: r Error: Task timed out after 3.00 seconds"}, "Sandbox.Timedout: RequestId: r Error: Task timed out after 3.00 seconds", true},
		{standins.FunctionError{Type: "Runtime.ExitError", Message: "signal: killed"}, "Runtime.ExitError: signal: killed", true},
		{standins.FunctionError{Type: "Function.ResponseSizeTooLarge", Message: "7000000 bytes"}, "Function.ResponseSizeTooLarge: 7000000 bytes", true},
		{standins.FunctionError{Type: "Runtime.MarshalError", Message: "no JSON"}, "Runtime.MarshalError: no JSON", true},
	} {
		got, err := lambdaCall(t, serving(t, &standins.Functions{Named: map[string]standins.Function{
			"stock": func(context.Context, json.RawMessage) (any, *standins.FunctionError) { return nil, &c.said },
		}}), stock, take)
		if c.lost {
			require.ErrorAs(t, err, new(*tool.LostError), c.want)
			require.EqualError(t, err, "the answer was lost: the function ended without one: "+c.want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, agent.ToolResultData{Content: c.want, IsError: true}, got)
	}
}

// How often a call is sent depends on what Lambda says of it and on the tool's effect.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   string
		idem   int // attempts where the function may be entered twice
		once   int // and where it may not
	}{
		{429, "TooManyRequestsException", "refused", 4, 4},
		{502, "EC2ThrottledException", "refused", 4, 4},
		{409, "ResourceConflictException", "refused", 4, 4},
		{403, "ExpiredTokenException", "refused", 4, 4},
		{404, "ResourceNotFoundException", "undeliverable", 1, 1},
		{403, "AccessDeniedException", "undeliverable", 1, 1},
		{502, "KMSAccessDeniedException", "undeliverable", 1, 1},
		{500, "ServiceException", "lost", 4, 1},
		{503, "<script>", "lost", 4, 1},
	} {
		for _, effect := range []run.Effect{run.EffectIdempotent, run.EffectNonIdempotent} {
			var n atomic.Int64
			f := &standins.Functions{Named: map[string]standins.Function{"stock": gives(`1`)}, Refuse: func(int) (int, string) { n.Add(1); return c.status, c.code }}
			spec := stock
			spec.Effect = effect
			_, err := lambdaCall(t, serving(t, f), spec, take)
			want := map[run.Effect]int{run.EffectIdempotent: c.idem, run.EffectNonIdempotent: c.once}[effect]
			require.EqualValues(t, want, n.Load(), "%s, %s", c.code, effect)
			require.Equal(t, c.want == "lost", errors.As(err, new(*tool.LostError)), "%v", err)
			require.Equal(t, c.want == "undeliverable", errors.Is(err, runtime.ErrUndeliverable), "%v", err)
			require.ErrorContains(t, err, "invoke function stock: ")
			require.NotContains(t, err.Error(), "s3cret")
			require.NotContains(t, err.Error(), "<")
		}
	}
}

// A connection that breaks after the function ran leaves open whether it did: it is entered once more only where that
// does no harm.
func TestLostAnswer(t *testing.T) {
	for effect, want := range map[run.Effect]int{run.EffectNonIdempotent: 1, run.EffectRead: 2} {
		var ran atomic.Int64
		f := &standins.Functions{Named: map[string]standins.Function{"stock": func(context.Context, json.RawMessage) (any, *standins.FunctionError) {
			if ran.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
			return "again", nil
		}}}
		spec := stock
		spec.Effect = effect
		got, err := lambdaCall(t, serving(t, f), spec, take)
		require.EqualValues(t, want, ran.Load())
		if effect == run.EffectRead {
			require.NoError(t, err)
			require.Equal(t, "again", got.Content)
			continue
		}
		require.ErrorAs(t, err, new(*tool.LostError))
		require.EqualError(t, err, "invoke function stock: the answer was lost: the connection broke")
	}
}

// Nobody listens: nothing was sent.
func TestUnreached(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	_, err := lambdaCall(t, client(srv.URL), stock, take)
	require.EqualError(t, err, "invoke function stock: AWS Lambda cannot be reached")
}

// Without credentials nothing is sent, and nobody takes the answer for lost.
func TestUnsigned(t *testing.T) {
	f := &standins.Functions{Named: map[string]standins.Function{"stock": gives(`1`)}}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	none := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("no credentials")
	})
	c := NewFunctions(aws.Config{Region: region, Credentials: none, BaseEndpoint: &srv.URL})
	_, err := lambdaCall(t, c, stock, take)
	require.ErrorContains(t, err, "no credentials")
	require.NotErrorAs(t, err, new(*tool.LostError))
	require.Empty(t, f.Asked())
}

// Limits are checked before anything is sent, and what comes back is bounded.
func TestLimits(t *testing.T) {
	f := &standins.Functions{Named: map[string]standins.Function{"stock": gives(`"` + strings.Repeat("x", 6_291_556) + `"`)}}
	c := serving(t, f)
	for limit, async := range map[int]bool{6_291_556: false, 1 << 20: true} {
		payload := []byte(`"` + strings.Repeat("x", limit-2) + `"`)
		_, err := c.Invoke(t.Context(), runtime.Invoke{Function: "stock", Payload: append(payload, ' '), Async: async})
		require.ErrorIs(t, err, runtime.ErrUndeliverable)
		require.Empty(t, f.Asked())
		_, err = c.Invoke(t.Context(), runtime.Invoke{Function: "nobody", Payload: payload, Async: async})
		require.ErrorContains(t, err, "ResourceNotFoundException")
	}
	_, err := lambdaCall(t, c, stock, take)
	require.ErrorAs(t, err, new(*tool.LostError), "the function ran")
	require.ErrorContains(t, err, "the result has more than 6291556 bytes")
}

// Nothing goes out for a session that is closed, and what is under way ends with it.
func TestClose(t *testing.T) {
	entered := make(chan struct{})
	f := &standins.Functions{Named: map[string]standins.Function{"stock": func(ctx context.Context, _ json.RawMessage) (any, *standins.FunctionError) {
		close(entered)
		<-ctx.Done()
		return nil, nil
	}}}
	s := Lambda{Functions: serving(t, f)}.Open("default", &agent.Definition{})
	ended := make(chan error)
	go func() {
		_, err := s.Tool(stock).Call(context.Background(), take)
		ended <- err
	}()
	<-entered
	s.Close()
	require.ErrorAs(t, <-ended, new(*tool.LostError))
	_, err := s.Tool(stock).Call(t.Context(), take)
	require.EqualError(t, err, "the invocation that made the call has ended")
	require.Len(t, f.Asked(), 1)
}

// An event is taken and run later; a redirect is no answer.
func TestAsync(t *testing.T) {
	ran := make(chan string, 3)
	f := &standins.Functions{Named: map[string]standins.Function{"stock": func(_ context.Context, p json.RawMessage) (any, *standins.FunctionError) {
		ran <- string(p)
		return nil, nil
	}}}
	out, err := serving(t, f).Invoke(t.Context(), runtime.Invoke{Function: "stock", Payload: []byte(`{"a":1}`), Async: true})
	require.NoError(t, err)
	require.Zero(t, out)
	require.JSONEq(t, `{"a":1}`, <-ran)
	require.True(t, f.Asked()[0].Async)

	elsewhere := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusTemporaryRedirect))
	t.Cleanup(elsewhere.Close)
	c := client(elsewhere.URL)
	_, err = c.Invoke(t.Context(), runtime.Invoke{Function: "stock", Payload: []byte(`{}`), Async: true})
	require.EqualError(t, err, "invoke function stock: it cannot be delivered: refused with status 307")
}
