package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Outgoing is an event for somebody outside: a service that is asked, or whoever is to hear that a run has ended. Its JSON is what they
// get.
type Outgoing struct {
	// ID is the same however often the event is sent: a receiver that has seen it drops it.
	ID             string          `json:"id"`
	Type           string          `json:"type"` // of a service: its tool's event, by default the tool's original name
	Tenant         string          `json:"tenant"`
	Run            string          `json:"run"`
	Agent          string          `json:"agent"`
	Call           string          `json:"call,omitempty"`            // of a service: what the answer names
	Subject        string          `json:"subject"`                   // of the run; its id where it was started without one
	ParentSubject  string          `json:"parentSubject$$,omitempty"` // whom what a service starts is to answer to: the run; of a run's end, who started the run
	AccessControl  string          `json:"accessControl,omitempty"`
	Domain         string          `json:"domain,omitempty"`
	ExecutionUnits int64           `json:"executionUnits"`        // of the run so far
	Traceparent    string          `json:"traceparent,omitempty"` // W3C: the run's own span; "" = the run is not traced
	Tracestate     string          `json:"tracestate,omitempty"`
	Callback       *Callback       `json:"callback,omitempty"` // of a service, where the answer goes; nil = by an event or by the API
	Data           json.RawMessage `json:"data"`
}

// traced is e in the trace of the run.
func (s *AgentState) traced(e Outgoing) Outgoing {
	if s.Trace != nil {
		e.Traceparent, e.Tracestate = s.Trace.Traceparent, s.Trace.Tracestate
	}
	return e
}

// The types of the events that say that a run has ended: of every run that did not fail, and of one that did.
const (
	TypeRunCompleted = "Countersign Run Completed"
	TypeRunFailed    = "Countersign Run Failed"
)

// AnswerExpiry is how long a service has to answer whose tool has no timeout of its own.
const AnswerExpiry = 24 * time.Hour

// maxAnnounced bounds an output in the event that announces it, in bytes; whoever wants a longer one reads the run.
const maxAnnounced = 128 << 10

// subject is what the run goes by among those it talks to.
func (s *AgentState) subject() string { return cmp.Or(s.Subject, s.Run) }

// ServiceEvent is the event that asks the service of a call of t: the arguments, and in them whom to answer to.
func ServiceEvent(s *AgentState, t ToolSpec, c Call) (Outgoing, error) {
	data, err := withParent(c.Input, s.subject())
	if err != nil {
		return Outgoing{}, fmt.Errorf("ask service %s for call %s: %w", t.Name, c.ID, err)
	}
	return s.traced(Outgoing{
		ID: s.Run + "/" + c.ID, Type: cmp.Or(t.Event, t.Name), Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Call: c.ID,
		Subject: s.subject(), ParentSubject: s.subject(), AccessControl: s.AccessControl, Domain: t.Domain, ExecutionUnits: s.ExecutionUnits, Data: data,
	}), nil
}

// callbackGrace is how much longer the address of an answer holds than the answer's own time: a call may be out late, and then waits from
// then on.
const callbackGrace = 24 * time.Hour

// CallbackExpires is until when the address holds where a call of t is answered. It is the same however often the call is sent out, so that
// what goes out is.
func CallbackExpires(t ToolSpec, c Call) time.Time {
	return c.AskedAt.UTC().Add(cmp.Or(t.Timeout, AnswerExpiry) + callbackGrace).Truncate(time.Second)
}

// EmittedAs is the suspension of a service's call whose event went out now.
func EmittedAs(t ToolSpec, c Call, now time.Time) CallSuspended {
	expiry := AnswerExpiry
	if t.Kind == KindAgent {
		expiry = DelegateExpiry
	}
	return CallSuspended{Call: c.ID, For: ForAnswer, Expires: now.UTC().Add(cmp.Or(t.Timeout, expiry)).Truncate(time.Millisecond)}
}

// withParent puts the correlation key at the end of an object, in the place of one that is there.
func withParent(raw json.RawMessage, subject string) (json.RawMessage, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("the arguments are no object")
	}
	bare, err := withoutParent(raw)
	if err != nil {
		return nil, err
	}
	name, err := MarshalVerbatim(parentSubject)
	if err != nil {
		return nil, err
	}
	value, err := MarshalVerbatim(subject)
	if err != nil {
		return nil, err
	}
	out := bytes.TrimSuffix(bytes.Clone(bare), []byte("}"))
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(append(append(append(out, name...), ':'), value...), '}'), nil
}

// ending is what the event of a run's end says.
type ending struct {
	Reason  Reason          `json:"reason"`
	Output  json.RawMessage `json:"output,omitempty"`
	Omitted bool            `json:"outputOmitted,omitempty"` // it is too long for an event: read the run
	Error   *RunError       `json:"error,omitempty"`
}

// Announcement is the event that tells whoever started the run that it has ended: one whose input names a parent's subject, or that was
// started with a subject, or whose tool routes it to a domain. Nobody else hears of any other run; the run that a delegated one is carried
// out for hears of it by itself.
func Announcement(s *AgentState) (e Outgoing, owed bool, err error) {
	parent, domain := s.parent(), ""
	if p := s.Parent; p != nil {
		domain = p.Domain
	}
	if s.Status != RunDone || parent == "" && s.Subject == "" && domain == "" {
		return Outgoing{}, false, nil
	}
	if s.Parent != nil {
		parent = cmp.Or(s.Subject, s.Parent.Run)
	}
	said := ending{Reason: s.Reason, Error: s.Error}
	if said.Output, err = s.outputJSON(); err != nil {
		return Outgoing{}, false, err
	}
	if len(said.Output) > maxAnnounced {
		said.Output, said.Omitted = nil, true
	}
	data, err := MarshalVerbatim(said)
	if err != nil {
		return Outgoing{}, false, err
	}
	kind := TypeRunCompleted
	if s.Reason == ReasonError {
		kind = TypeRunFailed
	}
	return s.traced(Outgoing{
		ID: s.Run + "#end", Type: kind, Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Subject: s.subject(), ParentSubject: parent,
		AccessControl: s.AccessControl, Domain: domain, ExecutionUnits: s.ExecutionUnits, Data: data,
	}), true, nil
}

// parent is the subject of whoever started the run and waits for it, by its input; "" = nobody does.
func (s *AgentState) parent() string {
	var in map[string]json.RawMessage
	if s.From != nil || json.Unmarshal(s.Input, &in) != nil { // a fork or continuation is not what they asked for
		return ""
	}
	var subject string
	if json.Unmarshal(in[parentSubject], &subject) != nil {
		return ""
	}
	return subject
}

// checkArguments checks a call's arguments. Where the definition says so, those of an exhausted inference's services are not checked
// (semantics 6.1).
func checkArguments(d *Definition, s *AgentState, t ToolSpec, c Call, valid Validator) error {
	unchecked := t.AnsweredLater() && d.Limits.Validators == ValidatorsNotExhausted && s.Interactions.Current > s.Interactions.Max
	if unchecked && len(c.Input) > 0 && c.Input[0] == '{' { // an event carries an object, whatever is in it
		return nil
	}
	return ValidArguments(valid, t, c.Input)
}
