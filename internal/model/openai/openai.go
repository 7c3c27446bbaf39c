// Package openai asks any server that speaks the OpenAI chat completions protocol: Ollama, vLLM, llama.cpp, OpenAI
// itself. It is a thin client: no retries (package modelretry), no fallbacks, no state beside a connection pool.
//
// What it guarantees. Every tool_use it sends meets exactly one result. A reply cut short is an error, never a shorter
// reply; what was received is the error's Partial, and whether that is a reply is for others to say. Reasoning that a
// server tells is kept in front of what it says, and goes back to that model under the name it came by, as what a
// server wants back with a call does. A turn that a service refuses without reasoning gets what stands for it. No error
// text holds the key, anything of the request, or anything a server wrote but names: of the error and of the parameter
// that it is about. The key goes to the configured host and to no other.
//
// Where the request's Model.Repair is on, an error of the server's that quotes the call it could not read (Ollama,
// llama.cpp) is that call, if what is quoted can only be one call of one tool on offer.
package openai

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/modelretry"
)

// MaxResponse is how many bytes of a response are read, after decompression; a longer one is ModelInvalid.
const MaxResponse = 16 << 20

// maxRefusal is how much of a refusal's body is looked at for its error code.
const maxRefusal = 64 << 10

// server is one server, and how it is asked.
type server struct {
	base, key string
	client    *http.Client
	onDelta   agent.OnDelta
}

func (m *server) generate(ctx context.Context, r agent.Request) (_ agent.Reply, err error) {
	defer func() { modelretry.NameModel(m.redacted(err), r.Model.ID) }()
	if err := ctx.Err(); err != nil {
		return agent.Reply{}, ioFailure(ctx, err)
	}
	own := r
	own.Model.BaseURL = m.base
	body, err := encodeRequest(own)
	if err != nil {
		return agent.Reply{}, err
	}
	req, err := m.post(ctx, "/chat/completions", body)
	if err != nil {
		return agent.Reply{}, err
	}
	whole, giveUp := context.WithCancel(ctx)
	defer giveUp()
	resp, err := m.client.Do(req.WithContext(whole)) //nolint:bodyclose // drainBody closes it
	if err != nil {
		return agent.Reply{}, ioFailure(ctx, err)
	}
	defer drainBody(resp.Body, giveUp)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return parseRefusal(ctx, r, resp)
	}
	return m.read(ctx, r, resp)
}

// redacted takes the key out of the message of a *agent.ModelError.
func (m *server) redacted(err error) error {
	if failure, ok := errors.AsType[*agent.ModelError](err); ok && m.key != "" {
		failure.Message = strings.ReplaceAll(failure.Message, m.key, "…")
	}
	return err
}

// drainBody reads the rest of a response so that its connection can be reused, but not one that never ends.
func drainBody(body io.ReadCloser, giveUp func()) {
	late, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer stop()
	defer context.AfterFunc(late, giveUp)()
	_, _ = io.CopyN(io.Discard, body, maxRefusal) // nothing depends on how a response ends that was read or given up
	_ = body.Close()
}

// post makes a request to a path below the base URL.
func (m *server) post(ctx context.Context, below string, body []byte) (*http.Request, error) {
	path, query, versioned := strings.Cut(m.base, "?")
	path += below
	if versioned {
		path += "?" + query
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, modelError(agent.ModelInvalid, "request cannot be made")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/json")
	req.Header.Set("User-Agent", "countersign")
	switch {
	case m.key == "":
	case classicAzure(m.base):
		req.Header.Set("Api-Key", m.key)
	default:
		req.Header.Set("Authorization", "Bearer "+m.key)
	}
	return req, nil
}

// read takes the reply as a stream or as one JSON document, whichever the server chose to send.
func (m *server) read(ctx context.Context, r agent.Request, resp *http.Response) (agent.Reply, error) {
	body := bufio.NewReader(http.MaxBytesReader(nil, resp.Body, MaxResponse))
	kind, err := bodyKind(resp.Header.Get("Content-Type"), body)
	if err != nil {
		return agent.Reply{}, ioFailure(ctx, err)
	}
	a := &assembly{asked: r, model: r.Model.ID, onDelta: func(d agent.Delta) {
		if m.onDelta != nil {
			m.onDelta(r, d)
		}
	}}
	switch kind {
	case "text/event-stream":
		err = a.readStream(ctx, body)
	case "application/json":
		err = a.readDocument(ctx, body)
	default:
		err = modelError(agent.ModelInvalid, "reply is neither JSON nor an event stream")
	}
	if class := givenUp[a.finish]; err == nil && class != "" {
		err = a.interrupted(modelError(class, "server gave up its reply, finish_reason "+a.finish))
	}
	if err != nil {
		return agent.Reply{}, err
	}
	return a.reply(), nil
}

// bodyKind is the body's media type as its beginning tells it, else as the header does: some gateways call a stream
// JSON, or send an error as a document that they call a stream. Blanks before it are keep-alives and skipped.
func bodyKind(header string, body *bufio.Reader) (string, error) {
	start := byte('\n')
	for strings.IndexByte(" \t\r\n", start) >= 0 {
		var err error
		if start, err = body.ReadByte(); errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read reply: %w", io.ErrUnexpectedEOF)
		} else if err != nil {
			return "", err
		}
	}
	_ = body.UnreadByte() // a byte was read
	switch start {
	case '{':
		return "application/json", nil
	case 'd', 'e', 'i', 'r', ':': // data, event, id, retry, a comment
		return "text/event-stream", nil
	}
	kind, _, err := mime.ParseMediaType(header)
	if err != nil {
		return "", nil //nolint:nilerr // a header that says nothing of use
	}
	return kind, nil
}
