package run

import (
	"encoding/json"
	"time"
)

// runJSON is a run as people and the HTTP API see it (docs/openapi.yaml).
type runJSON struct {
	ID             string          `json:"id"`
	Agent          string          `json:"agent"`
	Version        string          `json:"version"`
	Status         RunStatus       `json:"status"`
	Reason         Reason          `json:"reason,omitempty"`
	Detail         string          `json:"detail,omitempty"`
	Error          *RunError       `json:"error,omitempty"`
	Output         json.RawMessage `json:"output"`
	Inferences     int64           `json:"inferences"`
	ModelCalls     int64           `json:"modelCalls"`
	Interactions   Interactions    `json:"interactions"`
	ExecutionUnits int64           `json:"executionUnits"`
	Usage          Usage           `json:"usage"`
	Cost           USD             `json:"cost,omitempty"`
	Messages       []MessageJSON   `json:"messages"`
	Calls          []callJSON      `json:"calls"`
	Waiting        []waitingJSON   `json:"waiting"`
	Summary        string          `json:"summary"`
	State          json.RawMessage `json:"state"`               // what the run's tools and plugins share
	Subject        string          `json:"subject,omitempty"`   // as the API's caller says: nobody checked it
	StartedBy      []string        `json:"startedBy,omitempty"` // authenticated
	// the run that this one branched off, or is carried out for
	Parent     string        `json:"parent,omitempty"`
	ParentCall string        `json:"parentCall,omitempty"`
	Root       string        `json:"root,omitempty"` // of a delegated run: the one that nobody delegated
	ParentSeq  *int64        `json:"parentSeq,omitempty"`
	Continues  string        `json:"continues,omitempty"`
	StartedAt  *time.Time    `json:"startedAt,omitempty"`
	UpdatedAt  *time.Time    `json:"updatedAt,omitempty"`
	EndedAt    *time.Time    `json:"endedAt,omitempty"`
	Seq        int64         `json:"seq"`
	Servers    []ServerState `json:"servers,omitempty"` // MCP servers, once their tools are listed
}

// MessageJSON is a message in the JSON of a run.
type MessageJSON struct {
	Role      Role            `json:"role"`
	SeenCount int64           `json:"seenCount"`
	Content   json.RawMessage `json:"content"`
	// it has left the conversation; only where those are asked for, too
	Evicted bool `json:"evicted,omitempty"`
}

type callJSON struct {
	ID         string          `json:"id"`
	Tool       string          `json:"tool"`
	Input      json.RawMessage `json:"input"`
	Status     CallStatus      `json:"status"`
	Executions int             `json:"executions"`
	Reason     CallReason      `json:"reason,omitempty"`
	Run        string          `json:"run,omitempty"`    // that the call is
	Undoes     string          `json:"undoes,omitempty"` // the call that it takes back, of the run that this one continues
	Whole      *Whole          `json:"whole,omitempty"`  // where all of a result is of which the conversation holds a part
}

type waitingJSON struct {
	Call     string    `json:"call"`
	For      WaitFor   `json:"for"`
	Approval string    `json:"approval,omitempty"`
	Run      string    `json:"run,omitempty"` // that carries the call out, of another agent
	Since    time.Time `json:"since"`
	Expires  time.Time `json:"expiresAt"`
	Ticket   *Ticket   `json:"ticket,omitempty"` // for input: what people are asked, whole
}

// listed is how many messages and calls, the newest, a run's JSON holds.
const listed = 200

// MarshalJSON writes the run of the HTTP API: the newest 200 messages, each with its real seenCount, and the newest 200
// calls.
func (s AgentState) MarshalJSON() ([]byte, error) {
	j := runJSON{
		ID: s.Run, Agent: s.Agent, Version: s.Version, Status: s.Status, Reason: s.Reason, Error: s.Error,
		Inferences: s.Inferences, ModelCalls: s.ModelCalls, Interactions: s.Interactions, ExecutionUnits: s.ExecutionUnits,
		Usage: s.Usage, Cost: s.Cost,
		Calls: callsJSON(Newest(s.Calls())), Waiting: []waitingJSON{},
		Summary: s.SummaryShown(), State: s.SharedState(), Subject: s.Subject, StartedBy: s.By,
		StartedAt: timeJSON(s.StartedAt), UpdatedAt: timeJSON(s.UpdatedAt), EndedAt: timeJSON(s.EndedAt), Seq: s.Seq(),
		Servers: s.Servers,
	}
	if s.Status == RunDone {
		j.Detail = s.EndingDetail
	}
	switch from := s.From; {
	case from == nil:
	case from.Kind == OriginFork:
		j.Parent, j.ParentSeq = from.Run, &from.Seq
	default:
		j.Continues = from.Run
	}
	if p := s.Parent; p != nil {
		j.Parent, j.ParentCall, j.Root = p.Run, p.Call, p.Root
	}
	for _, c := range s.Waits() {
		w := waitingJSON{Call: c.ID, For: c.Wait.For, Approval: c.Wait.Approval, Run: c.Child, Since: c.Wait.Since,
			Expires: c.Wait.Expires}
		if t, ok := c.Asked(); ok && w.For == ForInput {
			w.Ticket = &t
		}
		j.Waiting = append(j.Waiting, w)
	}
	for _, r := range s.OpenRequests() { // it belongs to no call; the first that it blocked stands for it
		j.Waiting = append(j.Waiting, waitingJSON{Call: r.First(), For: ForApproval, Approval: r.Approval, Since: r.Since,
			Expires: r.Expires})
	}
	var err error
	if j.Messages, err = MessagesJSON(Newest(s.Messages.All()), s.Inferences); err != nil {
		return nil, err
	}
	if j.Output, err = s.OutputJSON(); err != nil {
		return nil, err
	}
	return json.Marshal(j)
}

// OutputJSON is the output as people see it: the value, or, where the definition says so, the conversation beside it
// (seed 003, response construction). The conversation is in the journal already and not stored a second time.
func (s *AgentState) OutputJSON() (json.RawMessage, error) {
	if !s.History || s.Output == nil {
		return s.Output, nil
	}
	messages, err := MessagesJSON(s.Messages.All(), s.Inferences)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Messages []MessageJSON   `json:"messages"`
		Output   json.RawMessage `json:"output"`
	}{messages, s.Output})
}

// MarshalMessages writes messages as a run's JSON does, all of them.
func MarshalMessages(messages []Message, inferences int64) ([]byte, error) {
	out, err := MessagesJSON(messages, inferences)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// Newest cuts a list to what a run's JSON shows.
func Newest[T any](list []T) []T { return list[max(0, len(list)-listed):] }

// MessagesJSON are messages as the JSON of a run has them, with the number of inferences that have seen each.
func MessagesJSON(messages []Message, inferences int64) ([]MessageJSON, error) {
	out := make([]MessageJSON, len(messages))
	for i, m := range messages {
		content, err := MarshalBlock(m.Block)
		if err != nil {
			return nil, err
		}
		out[i] = MessageJSON{Role: m.Role, SeenCount: m.Seen(inferences), Content: content}
	}
	return out, nil
}

func callsJSON(calls []Call) []callJSON {
	out := make([]callJSON, len(calls))
	for i, c := range calls {
		out[i] = callJSON{c.ID, c.Tool, c.Input, c.Status, c.Executions, c.Reason, c.Child, c.Undoes, nil}
		if c.Result != nil {
			out[i].Whole = c.Result.Whole
		}
	}
	return out
}

func timeJSON(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
