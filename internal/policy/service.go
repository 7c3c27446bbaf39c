package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// FunctionCall is the JSON that a function gets for a call of a tool of kind lambda.
type FunctionCall struct {
	Tool   string          `json:"tool"` // original name
	Args   json.RawMessage `json:"args"` // as the gate let them through
	Key    string          `json:"key"`  // equal on every attempt: a function that has seen it has made the call
	Tenant string          `json:"tenant"`
	Run    string          `json:"run"`
	Call   string          `json:"call"`
	State  json.RawMessage `json:"state,omitempty"` // the run's shared state; nil = it is empty
	// what people answered when the function last asked for input in this call; nil = it did not
	Resume json.RawMessage `json:"resume,omitempty"`

	Callback *Callback `json:"callback,omitempty"` // where a function that answers later sends its answer

	// W3C: the call's span, or the run's own if the function answers later; "" = the run is not traced.
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`
}

// Callback says where the answer to a call that is answered later goes.
type Callback struct {
	// URL takes the answer. Anybody who has it may answer this call, and nothing else. "" = this deployment takes answers
	// only by events and by its API.
	URL      string   `json:"url,omitempty"`
	AnswerTo AnswerTo `json:"answerTo"`
}

// AnswerTo identifies a call in its answer.
type AnswerTo struct {
	Run  string `json:"run"`
	Call string `json:"call"`
}

// Payload returns the JSON that the function gets, with the arguments byte for byte.
func (f FunctionCall) Payload() ([]byte, error) {
	if string(f.State) == string(run.EmptyState) {
		f.State = nil
	}
	return jsonx.MarshalVerbatim(f)
}

// FunctionRequest returns the request to a function that answers a call of t later.
func FunctionRequest(s *run.AgentState, t agent.ToolSpec, c run.Call, to Callback) FunctionCall {
	trace := cmp.Or(s.Trace, &run.Trace{})
	return FunctionCall{
		Tool: t.Name, Args: c.Input, Key: s.Run + "/" + c.ID, Tenant: s.Tenant, Run: s.Run, Call: c.ID,
		State: s.SharedState(), Callback: &to, Traceparent: trace.Traceparent, Tracestate: trace.Tracestate,
	}
}

// Outgoing is an event for a service, for the starter of a run that has ended, or about a run or a request
// (docs/events.md). Receivers get its JSON.
type Outgoing struct {
	// ID is the same however often the event is sent: a receiver that has seen it drops it.
	ID     string `json:"id"`
	Type   string `json:"type"` // for a service: its tool's event, by default the tool's original name
	Tenant string `json:"tenant"`
	Run    string `json:"run"`
	Agent  string `json:"agent"`
	Call   string `json:"call,omitempty"` // for a service: the call that its answer has to name
	// of the run; its id if it was started without one
	Subject string `json:"subject"`
	// the subject that waits for an answer: for a service the run's own, at a run's end that of its starter
	ParentSubject  string `json:"parentSubject$$,omitempty"`
	AccessControl  string `json:"accessControl,omitempty"`
	Domain         string `json:"domain,omitempty"`
	ExecutionUnits int64  `json:"executionUnits"`        // of the run so far
	Traceparent    string `json:"traceparent,omitempty"` // W3C: the run's own span; "" = the run is not traced
	Tracestate     string `json:"tracestate,omitempty"`
	// for a service: where the answer goes; nil = by an event or by the API
	Callback *Callback       `json:"callback,omitempty"`
	Data     json.RawMessage `json:"data"`
	Journal  *JournalHead    `json:"journal,omitempty"` // at a run's end; else nil
}

// JournalHead is a run's last entry. If the journal has another one, it was changed afterwards.
type JournalHead struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// outgoing returns an event of the run with all fields that do not depend on its kind. Its subject is the one that the
// run uses with services.
func outgoing(s *run.AgentState, id, kind, domain string, data json.RawMessage) Outgoing {
	trace := cmp.Or(s.Trace, &run.Trace{})
	return Outgoing{
		ID: id, Type: kind, Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Subject: cmp.Or(s.Subject, s.Run),
		AccessControl: s.AccessControl, Domain: domain, ExecutionUnits: s.ExecutionUnits,
		Traceparent: trace.Traceparent, Tracestate: trace.Tracestate, Data: data,
	}
}

// The types of the events that say that a run has ended: of every run that did not fail, and of one that did.
const (
	TypeRunCompleted = "Countersign Run Completed"
	TypeRunFailed    = "Countersign Run Failed"
)

// answerExpiry is how long a service has to answer if its tool has no timeout.
const answerExpiry = 24 * time.Hour

// maxAnnounced is the maximum size of an output in the event that announces it, in bytes. Receivers read longer ones
// from the run.
const maxAnnounced = 128 << 10

// ServiceEvent returns the event that asks the service of a call of t. Its data are the arguments and the subject to
// answer to.
func ServiceEvent(s *run.AgentState, t agent.ToolSpec, c run.Call) (e Outgoing, err error) {
	e = outgoing(s, s.Run+"/"+c.ID, cmp.Or(t.Event, t.Name), t.Domain, nil)
	e.Call, e.ParentSubject = c.ID, e.Subject
	if e.Data, err = withParent(c.Input, e.Subject); err != nil {
		return Outgoing{}, fmt.Errorf("ask service %s for call %s: %w", t.Name, c.ID, err)
	}
	return e, nil
}

// callbackGrace is how much longer an answer's address is valid than its timeout: a call may be sent late, and its wait
// begins then.
const callbackGrace = 24 * time.Hour

// CallbackExpires returns when the callback address of a call of t expires. It is the same each time the call is sent,
// so that the events are equal.
func CallbackExpires(t agent.ToolSpec, c run.Call) time.Time {
	return c.AskedAt.UTC().Add(cmp.Or(t.Timeout, answerExpiry) + callbackGrace).Truncate(time.Second)
}

// AwaitAnswer returns the suspension of a call that was sent now and is answered later.
func AwaitAnswer(t agent.ToolSpec, c run.Call, now time.Time) run.CallSuspended {
	expiry := answerExpiry
	if t.Kind == agent.KindAgent {
		expiry = delegateExpiry
	}
	return run.CallSuspended{Call: c.ID, For: run.ForAnswer,
		Expires: now.UTC().Add(cmp.Or(t.Timeout, expiry)).Truncate(time.Millisecond)}
}

// withParent sets the correlation key of an object, as its last key.
func withParent(raw json.RawMessage, subject string) (json.RawMessage, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("the arguments are no object")
	}
	bare, err := agent.WithoutParent(raw)
	if err != nil {
		return nil, err
	}
	parent, err := jsonx.MarshalVerbatim(map[string]string{agent.ParentSubject: subject})
	if err != nil {
		return nil, err
	}
	out := bytes.TrimSuffix(bytes.Clone(bare), []byte("}"))
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(out, parent[1:]...), nil
}

// Announcement returns the event that tells the starter of a run that it has ended. owed is true if the input names a
// parent's subject, the run has a subject, or its tool routes it to a domain. A delegating run is told separately.
func Announcement(s *run.AgentState) (e Outgoing, owed bool, err error) {
	parent, domain := parentSubject(s), cmp.Or(s.Parent, &run.Parent{}).Domain
	if s.Status != run.RunDone || parent == "" && s.Subject == "" && domain == "" {
		return Outgoing{}, false, nil
	}
	if s.Parent != nil {
		parent = cmp.Or(s.Subject, s.Parent.Run)
	}
	said := struct {
		Reason  run.Reason      `json:"reason"`
		Output  json.RawMessage `json:"output,omitempty"`
		Omitted bool            `json:"outputOmitted,omitempty"` // it is too long for an event: read the run
		Error   *run.RunError   `json:"error,omitempty"`
	}{Reason: s.Reason, Error: s.Error}
	if said.Output, err = OutputView(s); err != nil {
		return Outgoing{}, false, err
	}
	if len(said.Output) > maxAnnounced {
		said.Output, said.Omitted = nil, true
	}
	data, err := jsonx.MarshalVerbatim(said)
	if err != nil {
		return Outgoing{}, false, err
	}
	kind := TypeRunCompleted
	if s.Reason == run.ReasonError {
		kind = TypeRunFailed
	}
	e = outgoing(s, s.Run+"#end", kind, domain, data)
	e.ParentSubject, e.Journal = parent, &JournalHead{Seq: s.Seq(), Hash: s.Hash()}
	return e, true, nil
}

// parentSubject returns the subject of the starter that waits for the run, from its input; "" = nobody waits.
func parentSubject(s *run.AgentState) string {
	var in map[string]json.RawMessage
	if s.From != nil || json.Unmarshal(s.Input, &in) != nil { // the starter did not ask for a fork or continuation
		return ""
	}
	subject, _ := jsonx.JSONString(in[agent.ParentSubject])
	return subject
}
