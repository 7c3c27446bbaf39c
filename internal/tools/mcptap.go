package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// tap stands between the SDK and the wire. It keeps the bytes of answers, of which the SDK would round numbers and drop
// what it does not know, and holds the server to the bounds before the SDK takes anything in. Messages that answer
// nothing end here.
type tap struct {
	link      *link
	transport sdk.Transport
	sdk.Connection

	mu       sync.Mutex
	asked    map[jsonrpc.ID]*exchange // every request ever sent; nil = it needs no answer any more
	idle     int                      // bytes of messages that answered nothing
	protocol string                   // what initialize agreed on; "" = nothing yet, or a protocol that has no such thing
}

// exchange is one request and what became of it, for whoever put it into the request's context. Its fields are the
// tap's until the SDK has returned from the request.
type exchange struct {
	sent    bool            // it may have reached the server
	status  int             // of HTTP, where it says no; 0 = none
	answer  json.RawMessage // the result; nil = none came
	refusal *jsonrpc.Error  // the server's answer that it was not done; nil = none came
	wanted  string          // what the server asked for meanwhile and did not get; "" = nothing
	// what the SDK is to see of the result; nil = all of it
	short func(result json.RawMessage) (json.RawMessage, error)
}

type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// errEnded is the end of a connection, by the server or after an error that says more.
var errEnded = errors.New("it ended the connection")

func (t *tap) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := t.transport.Connect(ctx)
	t.Connection = c
	return t, err
}

// Write sends a message. A program's input that does not take one whole in time is of no use any more; over HTTP each
// message is a request of its own, which takes as long as its answer.
func (t *tap) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		x := exchangeOf(ctx)
		if x == nil {
			// Of the answers with which a connection begins the SDK is to know which protocol is spoken. Whatever else
			// a server says of itself there (its name, what it can, how it wants to be used) is read by nobody.
			x = &exchange{}
			switch r.Method {
			case "initialize":
				x.short = t.initialized
			case "server/discover":
				x.short = discovered
			}
		}
		t.mu.Lock()
		t.asked[r.ID] = x
		x.sent = true // for all that is known; the one who carries it may know better
		t.mu.Unlock()
	} else {
		ctx = withExchange(ctx, nil) // what becomes of a call's cancellation says nothing of the call
	}
	if t.link.program != nil {
		stop := context.AfterFunc(ctx, func() { t.link.end(errors.New("it did not read what it was sent")) })
		defer stop()
	}
	return t.Connection.Write(ctx, m)
}

// Read gives the SDK the next message that is any of its business. An error breaks the connection.
func (t *tap) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := t.Connection.Read(ctx)
		if err != nil {
			return nil, t.breaks(unread(err))
		}
		switch m := m.(type) {
		case *jsonrpc.Response:
			pass, err := t.answered(m)
			if err != nil {
				return nil, t.breaks(err)
			}
			if pass != nil {
				return pass, nil
			}
		case *jsonrpc.Request:
			if err := t.handleRequest(m); err != nil {
				return nil, t.breaks(err)
			}
			if m.IsCall() {
				return m, nil // the SDK answers pings, and refuses everything else
			}
		}
	}
}

// unread returns the error that ends reading. It does not pass on the SDK's error for an unreadable message: that error
// quotes the message, and can have the type of a server's refusal, which no server sent.
func unread(err error) error {
	switch {
	case errors.As(err, new(*jsonrpc.Error)), errors.As(err, new(*json.SyntaxError)),
		errors.As(err, new(*json.UnmarshalTypeError)), strings.Contains(err.Error(), "invalid message version tag"):
		return errors.New("it wrote something that is no message of the protocol")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errEnded
	}
	return err
}

func (t *tap) breaks(err error) error {
	t.link.cut(err)
	return err
}

// answered takes an answer in; nil = it comes too late for anybody.
func (t *tap) answered(r *jsonrpc.Response) (*jsonrpc.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, asked := t.asked[r.ID]
	switch {
	case !asked:
		return nil, errors.New("it answered a request that nobody made")
	case x == nil:
		return nil, t.counts(len(r.Result))
	}
	t.asked[r.ID] = nil
	if refusal, ok := errors.AsType[*jsonrpc.Error](r.Error); ok {
		if r.Result != nil && string(r.Result) != "null" { // whether it was done is anybody's guess
			return nil, errors.New("it answered with a result and an error at once")
		}
		x.refusal = refusal
		return r, nil
	}
	if r.Error != nil {
		return r, nil // the transport's word that there will be no answer
	}
	x.answer = r.Result
	if x.short == nil {
		return r, nil
	}
	short, err := x.short(r.Result)
	return &jsonrpc.Response{ID: r.ID, Result: short, Extra: r.Extra}, err
}

// handleRequest drops notifications and refuses requests of the server, and tells the calls under way of refused
// requests.
func (t *tap) handleRequest(r *jsonrpc.Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.IsCall() && r.Method != "ping" {
		for _, x := range t.asked {
			if x != nil {
				x.wanted = r.Method
			}
		}
	}
	return t.counts(len(r.Params))
}

func (t *tap) counts(size int) error {
	if t.idle += minMessage + size; t.idle > maxIdle {
		return fmt.Errorf("it sent more than %d bytes that nobody asked for", maxIdle)
	}
	return nil
}

// initialized returns the answer of older protocols. The SDK checks whether it speaks the version.
func (t *tap) initialized(result json.RawMessage) (json.RawMessage, error) {
	var version string
	all, err := members(result, "protocolVersion")
	if err == nil {
		err = member(all, "protocolVersion", &version, "a text")
	}
	if err == nil && (version == "" || len(version) > maxVersion) {
		err = fmt.Errorf("want a text of 1 to %d bytes for the key protocolVersion", maxVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("its answer to initialize cannot be read: %w", err)
	}
	t.protocol = version
	return json.Marshal(map[string]any{"protocolVersion": version, "capabilities": map[string]any{},
		"serverInfo": map[string]any{"name": "", "version": ""}})
}

// discovered returns the answer of newer protocols. A server whose answer has no versions does not know them, and the
// SDK then asks in the old way.
func discovered(result json.RawMessage) (json.RawMessage, error) {
	versions := []string{}
	all, err := members(result, "supportedVersions")
	if err == nil {
		err = member(all, "supportedVersions", &versions, "a list of texts")
	}
	if err != nil && !errors.Is(err, errNoObject) {
		return nil, fmt.Errorf("its answer to server/discover cannot be read: %w", err)
	}
	return json.Marshal(map[string]any{"resultType": "complete", "supportedVersions": versions,
		"capabilities": map[string]any{}})
}
