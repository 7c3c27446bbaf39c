package bedrock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
)

// textOf is a piece of text, "" = of something else.
func textOf(d agent.Delta) string {
	if d.Kind != agent.DeltaText {
		return ""
	}
	return d.Text
}

// A stream that ends before both messageStop and metadata came is no reply, wherever between two frames or within one
// it ends, is damaged or reports an error.
func TestTruncatedStreams(t *testing.T) {
	frames := blocks(standins.Reasoning("sig", "canary", "thoughts"), standins.Redacted([]byte("ab"), []byte("cd")),
		standins.Text("a"), standins.ToolUse("a", "get", `{"x"`, `: <1}`)).Frames()
	for n := range frames {
		broken := func(code, message string) standins.Stream {
			return standins.Stream{Frames: append(frames[:n:n], standins.Exception(code, message))}
		}
		shown := ""
		m, _ := against(t, Model{OnDelta: func(_ agent.Request, d agent.Delta) { shown += textOf(d) }},
			standins.Stream{Frames: frames[:n]}, standins.Stream{Frames: frames[:n+1], Cut: 1},
			standins.Stream{Frames: frames[:n+1], Flip: 3}, broken("modelStreamErrorException", "canary"),
			broken("throttlingException", "canary"), broken("validationException", "prompt is too long"),
			standins.Stream{Frames: frames})
		for _, class := range []agent.ModelErrorClass{agent.ModelConnection, agent.ModelConnection, agent.ModelConnection,
			agent.ModelServer, agent.ModelThrottled, agent.ModelContextOverflow} {
			reply, err := m.Generate(context.Background(), request())
			requireClass(t, class, err)
			require.Equal(t, agent.Reply{}, reply)
		}
		require.NotContains(t, shown, "canary", "reasoning is not shown as text")
		_, err := m.Generate(context.Background(), request())
		require.NoError(t, err)
	}
}

func TestMidStreamExceptions(t *testing.T) {
	tests := []struct {
		frame   standins.Frame
		class   agent.ModelErrorClass
		message string
	}{
		{standins.Exception("throttlingException", "canary"), agent.ModelThrottled, "service reported an error in its reply, ThrottlingException"},
		{standins.Exception("internalServerException", "canary"), agent.ModelServer, "service reported an error in its reply, InternalServerException"},
		{standins.Exception("modelStreamErrorException", "canary"), agent.ModelServer, "service reported an error in its reply, ModelStreamErrorException"},
		{standins.Exception("serviceUnavailableException", "canary"), agent.ModelUnavailable, "service reported an error in its reply, ServiceUnavailableException"},
		{standins.Exception("validationException", "canary"), agent.ModelInvalid, "service reported an error in its reply, ValidationException"},
		{standins.Exception("validationException", "Input is too long for requested model."), agent.ModelContextOverflow, "service reported an error in its reply, ValidationException"},
		{standins.Exception("modelTimeoutException", "canary"), agent.ModelTimeout, "service reported an error in its reply, ModelTimeoutException"},
		{standins.Exception("canaryException", "canary"), agent.ModelServer, "service reported an error in its reply"},
		{standins.Problem("canary"), agent.ModelServer, "service reported an error in its reply"},
		{standins.Problem("InternalServerException"), agent.ModelServer, "service reported an error in its reply, InternalServerException"},
	}
	for _, tt := range tests {
		t.Run(tt.frame.Type, func(t *testing.T) {
			frames := blocks(standins.Text("a")).Frames()
			shown := ""
			m, server := against(t, Model{OnDelta: func(_ agent.Request, d agent.Delta) { shown += textOf(d) }},
				standins.Stream{Frames: append(frames[:3:3], tt.frame)}, standins.Stream{Frames: append(frames, tt.frame)})
			_, err := m.Generate(context.Background(), request())
			requireClass(t, tt.class, err)
			require.Equal(t, tt.message, failureOf(t, err).Message)
			require.Equal(t, "a", shown)
			require.Len(t, server.Requests(), 1)

			reply, err := m.Generate(context.Background(), request())
			require.NoError(t, err, "a complete reply stays one")
			require.Equal(t, "a", reply.Text)
		})
	}
}

func TestStreamsThatMakeNoSense(t *testing.T) {
	start := func(i int, id string) standins.Frame {
		return standins.Event("contentBlockStart", map[string]any{"contentBlockIndex": i, "start": map[string]any{"toolUse": map[string]string{"toolUseId": id, "name": "get"}}})
	}
	input := standins.Event("contentBlockDelta", map[string]any{"contentBlockIndex": 0, "delta": map[string]any{"toolUse": map[string]string{"input": "{}"}}})
	end := blocks().Frames()[1:]
	tests := []struct {
		name   string
		frames []standins.Frame
		class  agent.ModelErrorClass
	}{
		{"input of no call", append([]standins.Frame{input}, end...), agent.ModelInvalid},
		{"a block that starts twice", append([]standins.Frame{start(0, "a"), start(0, "b")}, end...), agent.ModelInvalid},
		{"one id, two calls", append([]standins.Frame{start(0, "a"), input, start(1, "a")}, end...), agent.ModelInvalid},
		{"an event that is no JSON", append([]standins.Frame{{Kind: "event", Type: "contentBlockStart", Payload: json.RawMessage(`canary`)}}, end...), agent.ModelConnection},
		{"an event without a kind", append([]standins.Frame{{Kind: "canary", Type: "x"}}, end...), agent.ModelConnection},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requireFailure(t, standins.Stream{Frames: tt.frames}, tt.class, "")
		})
	}
}

func TestUnknownEvents(t *testing.T) {
	frames := []standins.Frame{standins.Event("hologram", 1)}
	for _, f := range blocks(standins.Text("a"), standins.ToolUse("a", "get", "{}")).Frames() {
		frames = append(frames, f, standins.Event("hologram", map[string]int{"contentBlockIndex": 1}))
	}
	reply, err := generated(t, standins.Stream{Frames: frames})
	require.NoError(t, err)
	require.Equal(t, agent.Reply{Model: "m", Text: "a", StopReason: "tool_use", Calls: []agent.ReplyCall{call("a", "get", "{}")}}, reply)
}

func TestBigStream(t *testing.T) {
	pieces := make([]string, 4000)
	for i := range pieces {
		pieces[i] = fmt.Sprintf("%d%s ", i, strings.Repeat("é", 100))
	}
	input := `{"x":"` + strings.Repeat("y", 1<<20) + `"}`
	use := standins.ToolUse("a", "get", input[:1<<19], input[1<<19:])
	reply, err := generated(t, blocks(standins.Text(pieces...), use))
	require.NoError(t, err)
	require.Equal(t, strings.Join(pieces, ""), reply.Text)
	require.Equal(t, []agent.ReplyCall{call("a", "get", input)}, reply.Calls)

	large := standins.Text(strings.Repeat("x", 8<<20), strings.Repeat("x", 8<<20), "x")
	requireFailure(t, blocks(large), agent.ModelInvalid, "reply is larger than 16 MiB")
}

func TestContextEnds(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	whole := blocks(standins.Text("a", "b")).Frames()
	for n, name := range map[int]string{0: "before anything", 2: "in the text", len(whole) - 1: "before the metadata"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			sent := make(chan string)
			go func() { <-sent; cancel() }()
			m, _ := against(t, Model{}, standins.Stream{Frames: whole[:n], Hold: sent})
			_, err := m.Generate(ctx, request())
			require.ErrorIs(t, err, context.Canceled)
			requireNoCanary(t, err)
			require.NotErrorAs(t, err, new(*agent.ModelError))
			_, err = m.Generate(ctx, request())
			require.ErrorIs(t, err, context.Canceled)
		})
	}
	goleak.VerifyNone(t, ignored)
}

// What goes wrong behind a complete reply does not matter.
func TestEndOfACompleteReply(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := newAssembly("m", func(agent.Delta) {})
	require.NoError(t, a.addEvent(&types.ConverseStreamOutputMemberMessageStop{}))
	require.Error(t, a.end(ctx, ctx.Err()))
	require.Error(t, a.end(ctx, nil))
	require.NoError(t, a.addEvent(&types.ConverseStreamOutputMemberMetadata{}))
	require.NoError(t, a.end(ctx, ctx.Err()))
	require.NoError(t, a.end(context.Background(), &types.InternalServerException{}))
}

// expiring is a context whose deadline passes when a test says so.
type expiring struct {
	context.Context
	done chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.done }

func (e expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestDeadline(t *testing.T) {
	ctx := expiring{context.Background(), make(chan struct{})}
	sent := make(chan string)
	go func() { <-sent; close(ctx.done) }()
	m, server := against(t, Model{}, standins.Stream{Hold: sent})
	for range 2 {
		_, err := m.Generate(ctx, request())
		requireClass(t, agent.ModelTimeout, err)
		require.Equal(t, "deadline passed", failureOf(t, err).Message)
	}
	require.Len(t, server.Requests(), 1)
}

func TestNoServer(t *testing.T) {
	m, server := against(t, Model{})
	server.Close()
	_, err := m.Generate(context.Background(), request())
	requireClass(t, agent.ModelConnection, err)
	require.Equal(t, "connection refused", failureOf(t, err).Message)
}

type noCredentials struct{}

func (noCredentials) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{}, errors.New("canary: profile not found")
}

func TestNoCredentials(t *testing.T) {
	server := standins.NewBedrock()
	defer server.Close()
	c := server.Config()
	c.Credentials = noCredentials{}
	_, err := Model{Client: NewClient(c)}.Generate(context.Background(), request())
	requireClass(t, agent.ModelAuth, err)
	require.Empty(t, server.Requests())

	c = server.Config()
	c.Region, c.BaseEndpoint = "", nil
	_, err = Model{Client: NewClient(c)}.Generate(context.Background(), request())
	requireClass(t, agent.ModelAuth, err)
}

// What was received before a stream broke off comes with the error: text, calls and reasoning whose blocks have ended.
func TestInterruptedStreams(t *testing.T) {
	reply := blocks(standins.Reasoning("sign", "hm"), standins.Text("I ", "see."), standins.ToolUse("a", "get", `{"x"`, `:1}`), standins.ToolUse("b", "get"))
	frames := reply.Frames()
	said := func(text string, calls ...agent.ReplyCall) *agent.Reply {
		return &agent.Reply{
			Model: "m", Text: text, Calls: calls, StopReason: policy.StopInterrupted,
			Reasoning: []run.RepliedReasoning{{Reasoning: signed("m", "hm", "sign")}},
		}
	}
	whole, bare := call("a", "get", `{"x":1}`), call("b", "get", `{}`)
	seen := map[string]bool{}
	for n := 1; n < len(frames); n++ {
		m, _ := against(t, Model{}, standins.Stream{Frames: frames[:n]},
			standins.Stream{Frames: append(frames[:n:n], standins.Exception("modelStreamErrorException", "canary"))})
		for _, class := range []agent.ModelErrorClass{agent.ModelConnection, agent.ModelServer} {
			_, err := m.Generate(context.Background(), request())
			requireClass(t, class, err)
			kept := failureOf(t, err).Partial
			switch {
			case kept == nil:
				seen["nothing"] = true
			case len(kept.Calls) == 2:
				require.Equal(t, said("I see.", whole, bare), kept)
				seen["both calls"] = true
			case len(kept.Calls) == 1:
				require.Equal(t, said("I see.", whole), kept)
				seen["a call"] = true
			case kept.Text == "I see.":
				require.Equal(t, said("I see."), kept)
				seen["the text"] = true
			default:
				require.Equal(t, said("I "), kept)
				seen["a text"] = true
			}
		}
	}
	require.Len(t, seen, 5, "%v", seen)
}

// Reasoning that was cut has no proof that is worth anything: it is not kept.
func TestInterruptedReasoning(t *testing.T) {
	frames := blocks(standins.Text("a"), standins.Reasoning("sign", "hm")).Frames()
	for n := 4; n < len(frames)-3; n++ { // within the reasoning
		m, _ := against(t, Model{}, standins.Stream{Frames: frames[:n]})
		_, err := m.Generate(context.Background(), request())
		require.Equal(t, &agent.Reply{Model: "m", Text: "a", StopReason: policy.StopInterrupted}, failureOf(t, err).Partial, n)
	}
}

// Whoever listens hears text, reasoning and calls as they come.
func TestDeltas(t *testing.T) {
	var heard []agent.Delta
	server := standins.Block{Start: []byte(`{"toolUse":{"toolUseId":"s","name":"search","type":"server_tool_use"}}`), Deltas: nil}
	m, _ := against(t, Model{OnDelta: func(_ agent.Request, d agent.Delta) { heard = append(heard, d) }},
		blocks(standins.Reasoning("sign", "h", "m"), standins.Text("Hel", "lo"), server, standins.ToolUse("a", "get", `{"x"`, `:1}`), standins.ToolUse("b", "put")))
	_, err := m.Generate(context.Background(), request())
	require.NoError(t, err)
	require.Equal(t, []agent.Delta{
		{Kind: agent.DeltaReasoning, Text: "h"}, {Kind: agent.DeltaReasoning, Text: "m"}, {Kind: agent.DeltaText, Text: "Hel"}, {Kind: agent.DeltaText, Text: "lo"},
		{Kind: agent.DeltaCall, Call: "a", Name: "get"}, {Kind: agent.DeltaCall, Call: "a", Name: "get", Text: `{"x"`}, {Kind: agent.DeltaCall, Call: "a", Name: "get", Text: ":1}"},
		{Kind: agent.DeltaCall, Call: "b", Name: "put", Place: 1},
	}, heard)
}
