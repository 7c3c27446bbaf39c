package api

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Run is a run as the API shows it (docs/openapi.yaml).
type Run struct {
	ID             string           `json:"id"`
	Agent          string           `json:"agent"`
	Version        string           `json:"version"`
	Status         run.RunStatus    `json:"status"`
	Reason         run.Reason       `json:"reason,omitempty"`
	Detail         string           `json:"detail,omitempty"` // of a stopped run: what stopped it
	Error          *run.RunError    `json:"error,omitempty"`
	Output         json.RawMessage  `json:"output"`
	Inferences     int64            `json:"inferences"`
	ModelCalls     int64            `json:"modelCalls"`
	Interactions   run.Interactions `json:"interactions"`
	ExecutionUnits int64            `json:"executionUnits"`
	Usage          run.Usage        `json:"usage"`
	Cost           run.USD          `json:"cost,omitempty"`    // of the replies, where prices are known
	Messages       []Message        `json:"messages,omitzero"` // the newest 200; nil = left out
	Calls          []Call           `json:"calls,omitzero"`    // the newest 200; nil = left out
	Waiting        []Waiting        `json:"waiting"`
	Inbox          int              `json:"inbox,omitempty"` // inputs accepted and not applied yet: a waiting run that has some is about to go on
	Summary        string           `json:"summary"`
	State          json.RawMessage  `json:"state"`                // what the run's tools and plugins share, an object
	Subject        string           `json:"subject,omitempty"`    // as the API's caller says: nobody checked it
	StartedBy      []string         `json:"startedBy,omitempty"`  // authenticated: who started it, and who the run that it goes on with or is called by
	Parent         string           `json:"parent,omitempty"`     // of a fork: the run it branched off; of a delegated run: the one whose call it carries out
	ParentCall     string           `json:"parentCall,omitempty"` // that call
	Root           string           `json:"root,omitempty"`       // of a delegated run: the one that nobody delegated, where people see what it asks
	ParentSeq      *int64           `json:"parentSeq,omitempty"`  // and that one's entry behind which the two part
	Continues      string           `json:"continues,omitempty"`  // the run whose conversation this one goes on with
	StartedAt      time.Time        `json:"startedAt,omitzero"`
	UpdatedAt      time.Time        `json:"updatedAt,omitzero"`
	EndedAt        time.Time        `json:"endedAt,omitzero"`
	Seq            int64            `json:"seq"`

	Servers []run.ServerState `json:"servers,omitempty"` // MCP servers, once their tools are listed

}

// Resting reports whether the run is done, or waits and nothing has arrived for it.
func (r Run) Resting() bool {
	return r.Status == run.RunDone || r.Status == run.RunWaiting && r.Inbox == 0
}

// Message is one message of a run.
type Message struct {
	Role      run.Role        `json:"role"`
	SeenCount int64           `json:"seenCount"`
	Content   json.RawMessage `json:"content"`           // one block
	Evicted   bool            `json:"evicted,omitempty"` // it has left the conversation, and its seenCount stands still; only in a MessagePage
}

// Call is one tool call of a run.
type Call struct {
	ID         string          `json:"id"`
	Tool       string          `json:"tool"`
	Input      json.RawMessage `json:"input"`
	Status     run.CallStatus  `json:"status"`
	Executions int             `json:"executions"`
	Reason     run.CallReason  `json:"reason,omitempty"`
	Run        string          `json:"run,omitempty"`    // of a call that another agent carries out
	Undoes     string          `json:"undoes,omitempty"` // the call that it takes back, of the run that this one continues
	Whole      *run.Whole      `json:"whole,omitempty"`  // where all of a result is of which the conversation holds a part
	Undo       *CallUndo       `json:"undo,omitempty"`   // what would take it back; nil = it is open, or its tool has no undo
}

// Waiting is a call that waits for somebody.
type Waiting struct {
	Call     string      `json:"call"`
	For      run.WaitFor `json:"for"`
	Approval string      `json:"approval,omitempty"`
	Run      string      `json:"run,omitempty"` // of a call that another agent carries out
	Since    time.Time   `json:"since"`
	Expires  time.Time   `json:"expiresAt"`
	Ticket   *run.Ticket `json:"ticket,omitempty"` // for input: what people are asked, whole
}

// RunHead is a run in a list.
type RunHead struct {
	ID        string        `json:"id"`
	Agent     string        `json:"agent"`
	Status    run.RunStatus `json:"status"`
	Reason    run.Reason    `json:"reason,omitempty"`
	StartedAt time.Time     `json:"startedAt"`
	UpdatedAt time.Time     `json:"updatedAt"`
	ExpiresAt time.Time     `json:"expiresAt,omitzero"` // while waiting: when the first wait expires
	Seq       int64         `json:"seq"`                // of the newest entry when the run last parked, woke or ended
	Hash      string        `json:"hash"`               // of that entry

	Parent     string `json:"parent,omitempty"` // of a delegated run: the run and the call it is carried out for
	ParentCall string `json:"parentCall,omitempty"`
	Root       string `json:"root,omitempty"` // and the run that nobody delegated
}

// RunPage is a page of runs, those that wait first, then the running, then the done, each newest first.
type RunPage struct {
	Runs   []RunHead `json:"runs"`
	Cursor string    `json:"cursor,omitempty"` // where the next page begins; "" = there is none
}

// MessagePage is a page of all of a run's messages, those that were evicted included, oldest first.
type MessagePage struct {
	Messages []Message `json:"messages"`
	Cursor   string    `json:"cursor,omitempty"`
}

// CallPage is a page of a run's calls, in the order the model made them.
type CallPage struct {
	Calls  []Call `json:"calls"`
	Cursor string `json:"cursor,omitempty"`
}

// ApprovalPage is a page of approvals of one status, oldest first.
type ApprovalPage struct {
	Approvals []approval.Approval `json:"approvals"`
	Cursor    string              `json:"cursor,omitempty"`
}

// Accepted is the answer to what starts, feeds or ends a run.
type Accepted struct {
	ID      string        `json:"id"`
	Status  run.RunStatus `json:"status"`
	Applied *bool         `json:"applied,omitempty"` // of decisions and answers: false = the run had ended, or the call its answer
	Already bool          `json:"already,omitempty"` // of answers to requests: all of them were given before, and nothing was changed
	Links   *Links        `json:"links,omitempty"`
}

// Links says where a run is looked at and acted on.
type Links struct {
	Self   string `json:"self"`
	Events string `json:"events"`
	Input  string `json:"input"`
	Cancel string `json:"cancel"`
}

// Replay is what folding a run's journal again found.
type Replay struct {
	Run         string       `json:"run"`
	Entries     int          `json:"entries"`
	Status      string       `json:"status"`
	Differences []Difference `json:"differences"` // empty = the record agrees with itself
}

// Difference is one value that is not what the journal says.
type Difference struct {
	Path string `json:"path"`
	Got  string `json:"got"`
	Want string `json:"want"` // by the journal
}

func newAccepted(s run.AgentState) Accepted {
	self := "/v1/runs/" + s.Run
	return Accepted{ID: s.Run, Status: s.Status, Links: &Links{self, self + "/events", self + "/input", self + "/cancel"}}
}

// newRun is the run of the API. What a run looks like in JSON is the core's to say; this adds what only its inbox knows.
func newRun(l store.Loaded) (Run, error) {
	raw, err := json.Marshal(l.State)
	if err != nil {
		return Run{}, fmt.Errorf("show run %s: %w", l.State.Run, err)
	}
	r := Run{Inbox: len(l.Inbox)}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Run{}, fmt.Errorf("show run %s: %w", l.State.Run, err)
	}
	return r, nil
}

func newCall(c run.Call) Call {
	shown := Call{c.ID, c.Tool, c.Input, c.Status, c.Executions, c.Reason, c.Child, c.Undoes, nil, nil}
	if c.Result != nil {
		shown.Whole = c.Result.Whole
	}
	return shown
}

func newHead(h store.Head) RunHead {
	shown := RunHead{ID: h.Run, Agent: h.Agent, Status: h.Status, Reason: h.Reason, StartedAt: h.StartedAt, UpdatedAt: h.UpdatedAt, ExpiresAt: h.Expires, Seq: h.Seq, Hash: h.Hash}
	if p := h.Parent; p != nil {
		shown.Parent, shown.ParentCall, shown.Root = p.Run, p.Call, p.Root
	}
	return shown
}
