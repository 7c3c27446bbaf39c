package agent

import "encoding/json"

// FunctionCall is what a function is invoked with for a call of a tool of kind lambda. Its JSON is what the function gets.
type FunctionCall struct {
	Tool   string          `json:"tool"` // original name
	Args   json.RawMessage `json:"args"` // as the gate let them through
	Key    string          `json:"key"`  // equal on every attempt: whoever has seen it has done it
	Tenant string          `json:"tenant"`
	Run    string          `json:"run"`
	Call   string          `json:"call"`
	State  json.RawMessage `json:"state,omitempty"`  // what the run's tools share; nil where that is empty
	Resume json.RawMessage `json:"resume,omitempty"` // what people answered when the function last asked for input in this call; nil = it did not

	Callback *Callback `json:"callback,omitempty"` // of a function that answers later: how

	// W3C: the call's span, or the run's own if the function answers later; "" = the run is not traced.
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`
}

// Callback is where the answer to a call that is answered later goes.
type Callback struct {
	// URL takes the answer. Whoever has it may answer this call, and nothing else. "" = this deployment takes answers by events and by its
	// API alone.
	URL      string   `json:"url,omitempty"`
	AnswerTo AnswerTo `json:"answerTo"`
}

// AnswerTo names a call to whoever answers it.
type AnswerTo struct {
	Run  string `json:"run"`
	Call string `json:"call"`
}

// Payload is the call as a function gets it, arguments byte for byte.
func (f FunctionCall) Payload() ([]byte, error) {
	if string(f.State) == string(emptyState) {
		f.State = nil
	}
	return MarshalVerbatim(f)
}

// FunctionRequest is what a function that answers later is invoked with for a call of t in the state s, to be
// answered there.
func FunctionRequest(s *AgentState, t ToolSpec, c Call, to Callback) FunctionCall {
	f := FunctionCall{
		Tool: t.Name, Args: c.Input, Key: s.Run + "/" + c.ID, Tenant: s.Tenant, Run: s.Run, Call: c.ID, State: s.SharedState(),
		Callback: &to,
	}
	if s.Trace != nil {
		f.Traceparent, f.Tracestate = s.Trace.Traceparent, s.Trace.Tracestate
	}
	return f
}
