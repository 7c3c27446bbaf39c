package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
)

// call sends a call, if the tool is what the run is pinned to. The errors are those of the package comment.
func (s *mcpSession) call(ctx context.Context, t agent.ToolSpec, c tool.Call) (agent.ToolResultData, error) {
	at := t.MCP
	if at == nil {
		return agent.ToolResultData{}, fmt.Errorf("the definition of %s names no MCP server", t.Name)
	}
	i := slices.IndexFunc(s.servers, func(s agent.MCPServer) bool { return s.Name == at.Server })
	if i < 0 {
		return agent.ToolResultData{}, fmt.Errorf("the agent has no MCP server %s", at.Server)
	}
	params := &sdk.CallToolParams{Meta: sdk.Meta{"countersign/idempotency-key": c.Key}, Name: at.Tool}
	if c.Args != nil {
		params.Arguments = c.Args
	}
	if c.Memo != "" { // the call goes with the answers to what the server has asked
		var err error
		if params.InputResponses, params.RequestState, err = answers(c.Memo, c.Resume); err != nil {
			return agent.ToolResultData{}, err
		}
	}
	res, err := s.once(ctx, s.servers[i], *at, params)
	if errors.Is(err, errGone) {
		res, err = s.once(ctx, s.servers[i], *at, params)
	}
	return res, err
}

// errGone is a connection that was gone before the call was sent: a new one will do.
var errGone = errors.New("the connection had ended before the call was sent")

// once sends a call over the connection that there is.
func (s *mcpSession) once(
	ctx context.Context, server agent.MCPServer, at agent.MCPTool, p *sdk.CallToolParams,
) (agent.ToolResultData, error) {
	l, err := s.connected(ctx, server)
	if err != nil {
		return agent.ToolResultData{}, err
	}
	d, _ := l.listed.find(at.Tool)
	if d.digest != at.Digest || d.digest == "" {
		changed := &tool.ChangedError{Server: at.Server, Tool: at.Tool, Want: at.Digest, Got: d.digest}
		return agent.ToolResultData{}, changed
	}
	x, err := l.send(ctx, s.ctx, p)
	if err != nil {
		return agent.ToolResultData{}, err
	}
	return l.outcome(d, x)
}

// send sends a call and waits for its answer. A nil error is an answer.
func (l *link) send(ctx, session context.Context, p *sdk.CallToolParams) (exchange, error) {
	under, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, ends := range []context.Context{session, l.ctx} {
		stop := context.AfterFunc(ends, cancel)
		defer stop()
	}
	x := &exchange{short: func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`{"content":[]}`), nil }}
	_, err := l.client.CallTool(withExchange(under, x), p)
	got := l.tap.settled(x)
	switch {
	case got.answer != nil:
		return got, nil
	case got.refusal != nil:
		return got, l.failed(refused(got.refusal))
	case ctx.Err() != nil:
		return got, l.failed(ctx.Err())
	}
	return got, l.unanswered(session, got, err)
}

// unanswered returns the error of a call that got no answer.
func (l *link) unanswered(session context.Context, x exchange, err error) error {
	var refusal *jsonrpc.Error
	switch {
	// a server that was started again does not know the session, and did nothing
	case session.Err() == nil && (errors.Is(err, sdk.ErrSessionMissing) ||
		!x.sent && (l.ctx.Err() != nil || errors.Is(err, sdk.ErrConnectionClosed))):
		l.cut(errEnded)
		return l.failed(errGone)
	// In an answer of HTTP that says no. -32005 is the SDK's own code for requests that its transport gives up on,
	// whether they were sent or not.
	case errors.As(err, &refusal) && refusal.Code != -32005:
		return l.failed(refused(refusal))
	case x.status >= http.StatusMultipleChoices && x.status < http.StatusBadRequest: // a redirect that is not followed
		return l.failed(l.said(err))
	case x.status >= http.StatusBadRequest && x.status < http.StatusInternalServerError:
		return l.failed(fmt.Errorf("it refused the request: %d %s", x.status, http.StatusText(x.status)))
	case session.Err() != nil:
		err = context.Cause(session)
	case x.status != 0:
		err = fmt.Errorf("it answered %d %s", x.status, http.StatusText(x.status))
	case err == nil:
		err = errors.New("it answered nothing")
	}
	if x.sent {
		return &tool.LostError{Err: l.failed(l.said(err))}
	}
	return l.failed(l.said(err))
}

// failed names the server.
func (l *link) failed(err error) error {
	if !errors.As(err, new(*shownError)) {
		err = &shownError{text: agent.Bounded(l.secrets.Redact(visible(err.Error()))), err: err}
	}
	return fmt.Errorf("MCP server %s: %w", l.server.Name, err)
}

// refused returns the error of a server that says that it did not do something.
func refused(e *jsonrpc.Error) error {
	return fmt.Errorf("it answered with error %d: %s", e.Code, bounded(visible(e.Message), maxDescription))
}

// settled returns the state of an exchange and closes it: a later answer is ignored.
func (t *tap) settled(x *exchange) exchange {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, asked := range t.asked {
		if asked == x {
			t.asked[id] = nil
		}
	}
	return *x
}
