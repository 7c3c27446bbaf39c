package lambdafn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/runtime"
)

// delivery is a service's answer as the event rule hands it on: the tenant is the rule's constant, the answer the
// event's detail.
type delivery struct {
	Tenant string          `json:"tenant"`
	Answer json.RawMessage `json:"answer"`

	raw []byte // all of it
}

// eventAnswer is the detail of an answer. Exactly one of Result and Error is given; a null result is one.
type eventAnswer struct {
	Run    string          `json:"run"`
	Call   string          `json:"call"`
	Result json.RawMessage `json:"result"` // a string stands for its text, anything else for its JSON
	Error  *string         `json:"error"`
}

// readDelivery tells an answer from an event of the gateway, which never has these keys: what a caller sends stands in
// its body.
func readDelivery(payload []byte) (delivery, bool) {
	d := delivery{raw: payload}
	err := json.Unmarshal(payload, &d)
	return d, err == nil && d.Tenant != "" && d.Answer != nil
}

// answers takes services' answers that come as events.
type answers struct{ inputs *runtime.Inputs }

// byEvent is who answers where an event does: whoever may put one on the bus.
const byEvent = "service"

// accept puts an answer into the inbox of its run. An answer that counts for nothing is no error. An answer of the
// wrong form, or for a run that does not exist, is an error and ends in the dead-letter queue.
func (a answers) accept(ctx context.Context, d delivery) ([]byte, error) {
	got, err := readAnswer(d)
	if err != nil {
		return nil, err
	}
	err = a.inputs.Answer(ctx, got)
	if err != nil && !errors.Is(err, runtime.ErrUnasked) {
		return nil, classify(err)
	}
	return json.Marshal(map[string]bool{"applied": err == nil})
}

func readAnswer(d delivery) (runtime.Answer, error) {
	var said eventAnswer
	// no key of it is there twice, or in other letters
	if err := jsonx.DecodeKnown(d.raw, limits, &delivery{}); err != nil {
		return runtime.Answer{}, invalidf("read the answer: %w", err)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(d.Answer), []byte("{")) {
		return runtime.Answer{}, invalidf("read the answer: want {run, call, result or error}, got something of another form")
	}
	if err := jsonx.DecodeKnown(d.Answer, limits, &said); err != nil { // an event may say more than the answer
		return runtime.Answer{}, invalidf("read the answer: %w", err)
	}
	switch {
	case !agent.ValidTenant(d.Tenant):
		return runtime.Answer{}, invalidf("read the answer: tenant: want ^[a-z0-9][a-z0-9-]{0,39}$")
	case said.Run == "" || said.Call == "":
		return runtime.Answer{}, invalidf("read the answer: want the run and the call that it answers")
	case len(said.Run) > maxKey || len(said.Call) > maxKey || strings.Contains(said.Run+said.Call, "\x00"):
		return runtime.Answer{}, invalidf("read the answer: run and call: want their ids")
	case (said.Result == nil) == (said.Error == nil):
		return runtime.Answer{}, invalidf("read the answer: want exactly one of result and error")
	}
	got := runtime.Answer{Tenant: d.Tenant, Run: said.Run, Call: said.Call, By: byEvent}
	if said.Error != nil {
		got.Content, got.IsError = *said.Error, true
		return got, nil
	}
	// The model will read a string's text, or the JSON.
	value, err := jsonx.CompactJSON(said.Result, jsonx.JSONLimits{})
	if err != nil {
		return got, invalidf("read the answer: result: %w", err)
	}
	if !bytes.HasPrefix(value, []byte(`"`)) || json.Unmarshal(value, &got.Content) != nil {
		got.Content = string(value)
	}
	return got, nil
}
