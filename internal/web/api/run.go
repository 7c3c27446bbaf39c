package api

import (
	"time"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

type (
	// Run is a run as the API shows it (docs/openapi.yaml).
	Run = policy.RunView
	// Message is one message of a run.
	Message = policy.MessageView
	// Call is one tool call of a run.
	Call = policy.CallView
	// Waiting is a call that waits for somebody.
	Waiting = policy.WaitView
)

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
