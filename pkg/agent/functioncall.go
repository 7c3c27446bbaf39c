package agent

import "encoding/json"

// functionCall is what a function is invoked with for a call. Its JSON is what the function gets.
type functionCall struct {
	Tool   string          `json:"tool"` // original name
	Args   json.RawMessage `json:"args"`
	Key    string          `json:"key"` // equal on every attempt: whoever has seen it has done it
	Tenant string          `json:"tenant"`
	Run    string          `json:"run"`
	Call   string          `json:"call"`
	State  json.RawMessage `json:"state,omitempty"` // what the run's tools share; left out where it is empty

	Callback *Callback `json:"callback,omitempty"` // of a function that answers later: where to
}

// Callback is where the answer to a call that is answered later goes.
type Callback struct {
	URL      string   `json:"url,omitempty"` // whoever has it may answer this call, and nothing else; "" = this deployment takes answers by events and its API alone
	AnswerTo AnswerTo `json:"answerTo"`
}

// AnswerTo names a call to its answerer.
type AnswerTo struct {
	Run  string `json:"run"`
	Call string `json:"call"`
}

// FunctionRequest is the payload that a function is invoked with for a call of t, in the state s.
func FunctionRequest(s *AgentState, t ToolSpec, c Call) ([]byte, error) {
	in := functionCall{Tool: t.Name, Args: c.Input, Key: s.Run + "/" + c.ID, Tenant: s.Tenant, Run: s.Run, Call: c.ID}
	if state := s.SharedState(); string(state) != "{}" {
		in.State = state
	}
	if t.AnsweredLater() {
		in.Callback = &Callback{AnswerTo: AnswerTo{Run: s.Run, Call: c.ID}}
	}
	return MarshalVerbatim(in)
}
