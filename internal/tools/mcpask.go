package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// memo is what is needed to answer a server that has asked: kept with the ticket, and read by nobody else.
type memo struct {
	Asked []asked `json:"asked"`
	State string  `json:"state,omitempty"`
}

// asked is one question of a server, by its own name for it.
type asked struct {
	ID  string `json:"id"`
	URL bool   `json:"url,omitempty"` // people were sent somewhere, and say that they have been there
}

// question is one question as people read it.
type question struct {
	asked
	message string
	answer  json.RawMessage // JSON Schema
}

// asks returns a result that needs input first as a suspension: with such a result the server says that it did nothing.
func (l *link) asks(r callResult) agent.ToolResultData {
	t, err := ticket(r)
	if err != nil {
		return agent.ToolResultData{IsError: true,
			Content: l.secrets.Redact("The server needs input and did nothing: " + err.Error())}
	}
	t.Message = l.secrets.Redact(t.Message)
	for _, kept := range []string{t.Memo, string(t.ResponseSchema)} { // word for word, in the journal
		if l.secrets.Redact(kept) != kept {
			return agent.ToolResultData{IsError: true, Content: "The server needs input and did nothing: what it asks, or the " +
				"state that it wants back, holds a secret"}
		}
	}
	return agent.ToolResultData{Suspend: t}
}

func ticket(r callResult) (*run.Ticket, error) {
	switch {
	case r.unasked != nil:
		return nil, fmt.Errorf("what it asks cannot be read: %w", r.unasked)
	case len(r.InputRequests) == 0:
		return nil, errors.New("it is busy and asks to try again later")
	case len(r.InputRequests) > maxAsked:
		return nil, fmt.Errorf("it asks %d questions at once, want at most %d", len(r.InputRequests), maxAsked)
	case len(r.RequestState) > maxState:
		return nil, fmt.Errorf("its requestState has %d bytes, want at most %d", len(r.RequestState), maxState)
	}
	var all []question
	m := memo{State: r.RequestState}
	for _, id := range jsonx.SortedKeys(r.InputRequests) {
		q, err := readQuestion(id, r.InputRequests[id])
		if err != nil {
			return nil, err
		}
		all, m.Asked = append(all, q), append(m.Asked, q.asked)
	}
	kept, err := jsonx.MarshalVerbatim(m)
	if err != nil {
		return nil, err
	}
	t := &run.Ticket{Mode: run.TicketReplay, Memo: string(kept), Message: all[0].message, ResponseSchema: all[0].answer}
	if len(all) == 1 {
		return t, nil
	}
	// Several questions are asked at once: the answer has a key for each.
	texts, properties, required := []string{}, map[string]json.RawMessage{}, []string{}
	for _, q := range all {
		if bytes.Contains(q.answer, []byte(`"$`)) {
			return nil, fmt.Errorf("the requestedSchema of question %s has references, and cannot stand beside others", q.ID)
		}
		properties[q.ID] = q.answer
		texts, required = append(texts, q.ID+": "+q.message), append(required, q.ID)
	}
	t.Message = strings.Join(texts, "\n")
	t.ResponseSchema, err = jsonx.MarshalVerbatim(map[string]any{"type": "object", "properties": properties,
		"required": required, "additionalProperties": false})
	return t, err
}

// readQuestion reads an input request. Only people are asked anything: a model and folders are not to be had.
func readQuestion(id string, raw json.RawMessage) (question, error) {
	var in struct {
		Method string `json:"method"`
		Params struct {
			Mode            string          `json:"mode"`
			Message         string          `json:"message"`
			RequestedSchema json.RawMessage `json:"requestedSchema"`
			URL             string          `json:"url"`
		} `json:"params"`
	}
	q := question{asked: asked{ID: id}}
	switch {
	case id == "" || len(id) > 128 || visible(id) != id:
		return q, errors.New("a question has no name that can be shown, of 1 to 128 bytes")
	case json.Unmarshal(raw, &in) != nil:
		return q, errors.New("a question cannot be read")
	case in.Method != "elicitation/create":
		return q, fmt.Errorf("it asks for %.60q, and only people are asked (elicitation/create)", visible(in.Method))
	}
	q.message = visible(in.Params.Message)
	if in.Params.Mode == "url" || in.Params.Mode == "" && in.Params.URL != "" {
		// The question is answered on a page of the server's. Nothing opens it: people do, who see where it leads.
		page := in.Params.URL
		at, err := url.Parse(page)
		if err != nil || at.Scheme != "https" || at.Host == "" || at.User != nil ||
			visible(page) != page || len(page) > 2000 {
			return q, fmt.Errorf("question %s leads to a page that cannot be shown, want an https URL without credentials", q.ID)
		}
		q.URL = true
		q.message += fmt.Sprintf("\nOpen this page of %s, and answer true once it is done:\n%s", at.Host, page)
		q.answer = json.RawMessage(`{"const":true}`)
		return q, nil
	}
	q.answer = json.RawMessage(`{"type":"object"}`)
	if s := in.Params.RequestedSchema; s != nil && string(s) != "null" {
		var err error
		if q.answer, err = argumentSchema(s); err != nil {
			return q, fmt.Errorf("the requestedSchema of question %s cannot be used: %w", id, err)
		}
	}
	return q, nil
}

// answers returns people's answers by the server's own names, and the state that the server wants back.
func answers(kept string, resume json.RawMessage) (sdk.InputResponseMap, string, error) {
	var m memo
	if err := json.Unmarshal([]byte(kept), &m); err != nil || len(m.Asked) == 0 {
		return nil, "", errors.New("what the server had asked is not known any more; the call was not made")
	}
	by := map[string]json.RawMessage{m.Asked[0].ID: resume}
	if len(m.Asked) > 1 {
		by = nil
		if err := json.Unmarshal(resume, &by); err != nil {
			return nil, "", errors.New("the answer is no object with a key for each question; the call was not made")
		}
	}
	out := sdk.InputResponseMap{}
	for _, q := range m.Asked {
		r := &sdk.ElicitResult{Action: "accept"}
		if !q.URL {
			v, err := jsonx.DecodeNumbers(by[q.ID]) // digits stay as they are
			if r.Content, _ = v.(map[string]any); err != nil || r.Content == nil {
				return nil, "", fmt.Errorf("the answer to question %s is no object; the call was not made", q.ID)
			}
		}
		out[q.ID] = r
	}
	return out, m.State, nil
}
