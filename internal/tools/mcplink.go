package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
)

// link is one connection to a server. Once ready is closed it is either refused or usable, and its fields up to listed
// do not change.
type link struct {
	config  MCP
	server  agent.MCPServer
	secrets *tool.Disclosure
	ready   chan struct{}

	err    error // why there is no connection; nil = there is one
	client *sdk.ClientSession
	tap    *tap
	listed listing

	ctx     context.Context // of everything that goes over the wire; its cause is why the connection broke
	cut     context.CancelCauseFunc
	hangUp  func()  // ends what is underneath at once; nil = there is nothing
	program Program // nil = the server is none
}

// connect makes the connection and lists the server's tools. It ends with the session.
func (l *link) connect(session context.Context) {
	defer close(l.ready)
	within := cmp.Or(l.server.Timeout, 20*time.Second) // to connect and to list
	ctx, cancel := l.config.Clock.WithTimeout(session, within)
	defer cancel()
	late := func() error {
		if session.Err() != nil {
			return context.Cause(session)
		}
		return fmt.Errorf("it did not answer within %s: %w", within, context.DeadlineExceeded)
	}
	stop := context.AfterFunc(ctx, func() { l.end(late()) })
	err := l.dial(ctx)
	stop()
	switch {
	case ctx.Err() != nil:
		l.err = late()
	case err != nil:
		l.err = l.said(err)
	default:
		return
	}
	l.end(l.err)
	if session.Err() != nil || l.program == nil {
		return
	}
	if words := telling(l.secrets.Redact(visible(l.program.LastWords()))); words != "" {
		text := l.err.Error() + "; the program said: " + bounded(words, 400)
		l.err = &shownError{text: agent.Bounded(text), err: l.err}
	}
}

// telling returns the most informative line of a text: the last one that mentions an error, else the last one; "" =
// there is none.
func telling(text string) string {
	var last, spoke string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if last = line; strings.Contains(strings.ToLower(line), "error") {
			spoke = line
		}
	}
	return cmp.Or(spoke, last)
}

func (l *link) dial(ctx context.Context) error {
	transport, err := l.transport(ctx)
	if err != nil {
		return err
	}
	l.tap = &tap{link: l, transport: transport, asked: map[jsonrpc.ID]*exchange{}}
	client := sdk.NewClient(&sdk.Implementation{Name: "countersign", Version: "1"}, &sdk.ClientOptions{
		Logger:         slog.New(slog.DiscardHandler),              // what the SDK logs is the server's text
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true}, // people answer, and not at once
		Capabilities: &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{
			Form: &sdk.FormElicitationCapabilities{}, URL: &sdk.URLElicitationCapabilities{},
		}},
	})
	// Servers of older protocols are promised nothing: they would have to be answered while the call is under way, and
	// people are not that quick.
	client.AddSendingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if p, ok := req.GetParams().(*sdk.InitializeParams); ok {
				p.Capabilities = &sdk.ClientCapabilities{}
			}
			return next(ctx, method, req)
		}
	})
	if l.client, err = client.Connect(ctx, l.tap, nil); err != nil {
		return err
	}
	l.listed, err = l.list(ctx)
	return err
}

// transport returns the transport for messages: HTTP, or a program.
func (l *link) transport(ctx context.Context) (sdk.Transport, error) {
	if len(l.server.Command) == 0 {
		return l.overHTTP(ctx)
	}
	if l.config.Start == nil {
		return nil, errors.New("its command is a program on this machine, and none can be started here")
	}
	env, err := l.expanded(ctx, "env", l.server.Env)
	if err != nil {
		return nil, err
	}
	program, err := l.config.Start(l.server.Command, l.server.Dir, env)
	if err != nil {
		return nil, err
	}
	l.program, l.hangUp = program, program.End // it is ended, whatever it says
	return program, nil
}

func (l *link) expanded(ctx context.Context, key string, templates map[string]string) (map[string]string, error) {
	out := make(map[string]string, len(templates))
	for name, template := range templates {
		text, err := l.secrets.Expand(ctx, template)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", key, name, err)
		}
		out[name] = text
	}
	return out, nil
}

// said returns an error in the form that may be shown: the reason for which the connection was cut, if there is one; no
// addresses, no secrets.
func (l *link) said(err error) error {
	cause := context.Cause(l.ctx)
	if ended := errors.Is(cause, errEnded); cause != nil &&
		(!ended || errors.Is(err, context.Canceled) || len(l.server.Command) > 0) {
		err = cause // the end of an answer over HTTP says less than what came before it
	}
	text := tool.BareURLError(err).Error()
	// The SDK, too, quotes the bytes at which it gave up, and cuts them anywhere: of a secret that a server sends back,
	// one half could stand there, which nothing takes out. (Of programs: see unread.)
	for _, begins := range []string{"failed to decode response", "failed to decode event"} {
		if before, _, quotes := strings.Cut(text, begins); quotes {
			text = before + begins + ": it is no message of the protocol"
		}
	}
	return &shownError{text: agent.Bounded(l.secrets.Redact(visible(text))), err: err}
}

type shownError struct {
	text string
	err  error
}

func (e *shownError) Error() string { return e.text }
func (e *shownError) Unwrap() error { return e.err }

// close ends the session within its time limit, and then whatever is left of it.
func (l *link) close() {
	<-l.ready
	ctx, cancel := l.config.Clock.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.end(errClosed) })
	defer stop()
	if l.client != nil {
		_ = l.client.Close() // what it says of a connection that ends is of no use
	}
	l.end(errClosed)
}

// end ends whatever is under way, for a reason; the first one counts.
func (l *link) end(why error) {
	l.cut(why)
	if l.hangUp != nil {
		l.hangUp()
	}
}
