package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/countersign/countersign/internal/agent"
)

// completion is a chunk of a stream or a whole reply; they differ in delta and message.
type completion struct {
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Object  string          `json:"object"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        piece  `json:"delta"`
	Message      piece  `json:"message"`
	FinishReason string `json:"finish_reason"`
}

// piece has reasoning under one of two names; some servers send both, with the same text.
type piece struct {
	Content          content          `json:"content"`
	Refusal          lenient[string]  `json:"refusal"`
	ReasoningContent lenient[string]  `json:"reasoning_content"`
	Reasoning        lenient[string]  `json:"reasoning"`
	Details          lenient[entries] `json:"reasoning_details"`
	Blocks           lenient[entries] `json:"thinking_blocks"`
	ToolCalls        []callPiece      `json:"tool_calls"`
}

// content is a text, or a list of parts of which some are thoughts.
type content struct{ text, thought string }

func (c *content) UnmarshalJSON(raw []byte) error {
	var parts []struct {
		Type     string          `json:"type"`
		Text     lenient[string] `json:"text"`
		Refusal  lenient[string] `json:"refusal"`
		Thinking content         `json:"thinking"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return json.Unmarshal(raw, &c.text)
	}
	for _, p := range parts {
		switch p.Type {
		case "text", "output_text":
			c.text += p.Text.is
		case "refusal":
			c.text += p.Refusal.is
		case "thinking":
			c.thought += p.Thinking.text + p.Text.is
		}
	}
	return nil
}

// lenient is a value of its type; anything else is the zero value.
type lenient[T any] struct{ is T }

func (l *lenient[T]) UnmarshalJSON(raw []byte) error {
	var v T
	if json.Unmarshal(raw, &v) == nil {
		l.is = v
	}
	return nil
}

// entries are reasoning with proofs of it.
type entries []map[string]json.RawMessage

// word is a text, or a number as some servers number calls.
type word string

func (w *word) UnmarshalJSON(raw []byte) error {
	*w = word(scalarText(raw))
	return nil
}

type callPiece struct {
	Index    *int `json:"index"`
	ID       word `json:"id"`
	Function struct {
		Name      string    `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
	Extra json.RawMessage `json:"extra_content"`
}

// arguments are JSON in a string, or from some servers the JSON itself.
type arguments string

func (a *arguments) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		s = string(raw)
	}
	*a = arguments(s)
	return nil
}

type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	Details    struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// readStream puts a streamed reply together. A stream is complete with a finish_reason or [DONE]; after a finish_reason
// only usage can follow, so that a connection lost then loses no reply.
func (a *assembly) readStream(ctx context.Context, body *bufio.Reader) error {
	events := eventReader{r: body}
	for {
		ev, err := events.next()
		switch {
		case err != nil && a.finish != "" && !isTooLarge(err):
			return nil
		case errors.Is(err, io.EOF):
			return a.interrupted(modelError(agent.ModelConnection, "stream ended before the reply did"))
		case isTooLarge(err):
			return ioFailure(ctx, err)
		case err != nil:
			return a.interrupted(ioFailure(ctx, err))
		}
		switch data := bytes.TrimSpace(ev.data); {
		case string(data) == "[DONE]":
			return nil
		case len(data) == 0 && ev.name != "error": // a heartbeat of some gateways
			continue
		}
		if ended, err := a.addEvent(ev); ended || err != nil {
			return err
		}
	}
}

// addEvent takes one event of a stream. An error in it is the reply's end.
func (a *assembly) addEvent(ev event) (ended bool, err error) {
	c, problem, err := parseCompletion(ev.data)
	switch {
	case ev.name == "error" || problem != nil:
		p := problemIn(ev.data)
		if a.recoverQuotedCall(p) {
			return true, nil
		}
		return false, a.interrupted(streamFailure(p))
	case err != nil:
		return false, a.interrupted(err)
	}
	return false, a.add(c)
}

// readDocument reads a reply that came in one piece.
func (a *assembly) readDocument(ctx context.Context, body io.Reader) error {
	data, err := io.ReadAll(body)
	if err != nil {
		return ioFailure(ctx, err)
	}
	c, problem, err := parseCompletion(data)
	switch {
	case err != nil:
		return err
	case problem != nil && a.recoverQuotedCall(*problem):
		return nil
	case problem != nil:
		return streamFailure(*problem)
	case len(c.Choices) == 0:
		return modelError(agent.ModelInvalid, "reply has no choice")
	}
	for i, ch := range c.Choices { // what is said is all that there is to come
		c.Choices[i].Delta = ch.Message
		for j := range ch.Message.ToolCalls {
			ch.Message.ToolCalls[j].Index = &j
		}
	}
	return a.add(c)
}

// parseCompletion parses a completion, or the problem that the server sent instead.
func parseCompletion(data []byte) (completion, *problem, error) {
	var c completion
	switch err := json.Unmarshal(data, &c); {
	case err != nil && bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) && !json.Valid(data): // an object that was cut
		return c, nil, modelError(agent.ModelConnection, "reply is damaged")
	case err != nil:
		return c, nil, modelError(agent.ModelInvalid, "reply is not the JSON of a completion")
	}
	if c.Object == "error" || (len(c.Error) > 0 && string(c.Error) != "null") {
		p := problemIn(data)
		return c, &p, nil
	}
	return c, nil, nil
}

// event is one server-sent event. Data lines are joined by a line feed.
type event struct {
	name string
	data []byte
}

// eventReader reads a text/event-stream (WHATWG HTML, section 9.2): lines end in CR, LF or CRLF, lines that start with
// a colon are comments, a blank line ends an event. Events without data are skipped.
type eventReader struct {
	r       *bufio.Reader
	line    []byte
	afterCR bool // the LF that may follow belongs to the line before
	started bool
}

// next is the next event. It returns the reader's error, io.EOF included, once there is none. An event whose lines are
// all there counts even if the blank line after it is missing; a line that was cut does not.
func (e *eventReader) next() (event, error) {
	var ev event
	seen := false
	for {
		line, err := e.readLine()
		switch {
		case err != nil && seen:
			return ev, nil
		case err != nil:
			return event{}, err
		case len(line) == 0 && seen:
			return ev, nil
		case len(line) == 0:
			ev = event{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			ev.name = string(value)
		case "data":
			if seen {
				ev.data = append(ev.data, '\n')
			}
			ev.data, seen = append(ev.data, value...), true
		}
	}
}

// readLine is the next line without its end. It is valid until the next call. A line without an end is the reader's
// error.
func (e *eventReader) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		b, err := e.r.ReadByte()
		if err != nil {
			return nil, err
		}
		afterCR := e.afterCR
		e.afterCR = b == '\r'
		switch {
		case b == '\n' && afterCR: // it belongs to the line before
		case b != '\n' && b != '\r':
			e.line = append(e.line, b)
		case e.started:
			return e.line, nil
		default:
			e.started = true
			return bytes.TrimPrefix(e.line, []byte("\uFEFF")), nil // the stream may begin with a byte order mark
		}
	}
}
