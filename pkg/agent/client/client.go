// Package client starts, watches and decides runs: those of a deployment or of `countersign dev` by HTTP, and those of
// an engine in the same program without.
//
//	c := client.New("https://api.example.com", authorized) // a deployment
//
//	e, err := client.Open("./state", registry, nil)         // this program
//	c := e.Client("user:ana,group:finance")
//
//	run, err := c.Start(ctx, client.Start{Agent: "refunds", Message: json.RawMessage(`"Order 17 arrived broken."`)})
package client

import (
	"net/http"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/web/api"
)

// Client makes requests in the name of one person. A refusal is a *Problem; other errors wrap ErrUnreachable or are the
// context's. Every request may be sent again: nothing happens twice. Safe for concurrent use.
type Client = api.Client

// New makes a client of the HTTP API at base, such as https://api.example.com. httpClient adds the credentials; nil =
// http.DefaultClient.
func New(base string, httpClient *http.Client) *Client { return api.NewURLClient(base, httpClient) }

// ErrUnreachable says that no answer came: whether the request was carried out is not known.
var ErrUnreachable = api.ErrUnreachable

// Problem is a refusal, as RFC 9457 has it.
type Problem = api.Problem

// Requests and answers of the API; docs/openapi.yaml describes each.
type (
	// Start is a new run: the agent, and a message or an input.
	Start = api.Start
	// Accepted is the run's id.
	Accepted = api.Accepted
	// Run is a run with its newest messages and calls.
	Run = api.Run
	// RunQuery is which runs are listed.
	RunQuery = api.RunQuery
	// Page is a page of a list.
	Page[T any] = api.Page[T]
	// RunHead is a run in a list.
	RunHead = api.RunHead
	// Message is a message of a run.
	Message = api.Message
	// Call is a tool call of a run.
	Call = api.Call
	// Waiting is a call that waits for somebody.
	Waiting = api.Waiting
	// Event is a fact of a run's journal.
	Event = api.Event
	// Input is messages, decisions and answers for a run.
	Input = api.Input
	// Approval is a request to people and what became of it.
	Approval = approval.Approval
	// Verdict is a decision about an approval.
	Verdict = api.Verdict
)

// Action is what a Verdict does.
type Action = approval.Action

// The actions.
const (
	Approve = approval.Approve
	Deny    = approval.Deny
	Edit    = approval.Edit // approve with other arguments
)
