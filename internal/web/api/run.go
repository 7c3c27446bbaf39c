package api

import (
	"encoding/json"
	"time"

	"github.com/countersign/countersign/internal/run"
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
	// accepted inputs that are not applied yet; a waiting run with some is about to continue
	Inbox   int             `json:"inbox,omitempty"`
	Summary string          `json:"summary"`
	State   json.RawMessage `json:"state"`             // what the run's tools and plugins share, an object
	Subject string          `json:"subject,omitempty"` // claimed by the caller, not checked
	// authenticated: who started it and the run it continues or is called by
	StartedBy  []string  `json:"startedBy,omitempty"`
	Parent     string    `json:"parent,omitempty"`     // of a fork: the original run; of a delegated run: the calling run
	ParentCall string    `json:"parentCall,omitempty"` // that call
	Root       string    `json:"root,omitempty"`       // of a delegated run: the root, which shows its requests
	ParentSeq  *int64    `json:"parentSeq,omitempty"`  // of a fork: the last shared entry
	Continues  string    `json:"continues,omitempty"`  // the run whose conversation this run continues
	StartedAt  time.Time `json:"startedAt,omitzero"`
	UpdatedAt  time.Time `json:"updatedAt,omitzero"`
	EndedAt    time.Time `json:"endedAt,omitzero"`
	Seq        int64     `json:"seq"`

	Servers []run.ServerState `json:"servers,omitempty"` // MCP servers, once their tools are listed

}

// Resting reports whether the run is done, or waits with an empty inbox.
func (r Run) Resting() bool {
	return r.Status == run.RunDone || r.Status == run.RunWaiting && r.Inbox == 0
}

// Message is one message of a run.
type Message struct {
	Role      run.Role        `json:"role"`
	SeenCount int64           `json:"seenCount"`
	Content   json.RawMessage `json:"content"`           // one block
	Evicted   bool            `json:"evicted,omitempty"` // no longer in the conversation; only in a MessagePage
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
	Undoes     string          `json:"undoes,omitempty"` // the call that it undoes, of the continued run
	Whole      *run.Whole      `json:"whole,omitempty"`  // where the whole result is, if the conversation has a part
	Undo       *CallUndo       `json:"undo,omitempty"`   // what would undo it; nil = open, or no undo
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
	Seq       int64         `json:"seq"`                // of the newest entry when the run last changed its status
	Hash      string        `json:"hash"`               // of that entry

	Parent     string `json:"parent,omitempty"` // of a delegated run: the calling run and call
	ParentCall string `json:"parentCall,omitempty"`
	Root       string `json:"root,omitempty"` // the root run
}

// Accepted is the response to a start, input or cancellation.
type Accepted struct {
	ID     string        `json:"id"`
	Status run.RunStatus `json:"status"`
	// of decisions and answers; false = the run had ended or the call had its answer
	Applied *bool  `json:"applied,omitempty"`
	Already bool   `json:"already,omitempty"` // of answers to requests: all were repeated and nothing changed
	Links   *Links `json:"links,omitempty"`
}

// Links are the URLs of a run.
type Links struct {
	Self   string `json:"self"`
	Events string `json:"events"`
	Input  string `json:"input"`
	Cancel string `json:"cancel"`
}

// Replay is the result of folding a run's journal again.
type Replay struct {
	Run         string       `json:"run"`
	Entries     int          `json:"entries"`
	Status      string       `json:"status"`
	Differences []Difference `json:"differences"` // empty = no difference
}

// Difference is a value that differs from the journal.
type Difference struct {
	Path string `json:"path"`
	Got  string `json:"got"`
	Want string `json:"want"` // by the journal
}

func newAccepted(s run.AgentState) Accepted {
	self := "/v1/runs/" + s.Run
	return Accepted{ID: s.Run, Status: s.Status, Links: &Links{self, self + "/events", self + "/input", self + "/cancel"}}
}
