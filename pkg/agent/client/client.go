// Package client starts, watches and decides runs: those of a deployment or of `countersign dev` by HTTP, and those of
// an engine in the same program without.
//
//	c := client.New("https://api.example.com", authorized) // a deployment
//
//	e, err := client.Open("./state", registry, nil)         // this program
//	c := e.Client("user:ana,group:finance")
//
//	message := json.RawMessage(`"Order 17 arrived broken."`)
//	run, err := c.Start(ctx, client.Start{Agent: "refunds", Key: "order-17", Message: message})
//
// Most types here are names of internal ones. `go doc` has their fields and methods under those names:
//
//	go doc github.com/countersign/countersign/internal/web Client     # also Start, Run, Event, Input, Problem, …
//	go doc github.com/countersign/countersign/internal/approval Approval
package client

import (
	"net/http"

	core "github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/web"
)

// Client makes requests in the name of one person. A refusal is a *Problem; other errors wrap ErrUnreachable or are the
// context's. After one, a request may be sent again and nothing happens twice, if Start, Fork and Input with messages
// have a key of the caller's: without one, each is another run or message. Safe for concurrent use.
//
// Start begins a run, and Follow, Run, Messages, Calls and Events watch it. Approvals and FindApprovals list what waits
// for people, Approval reads one request and Decide decides it. Input sends messages and answers, of services and about
// a call whose outcome is unknown (Kind outcome), which Decide refuses. Cancel ends a run, Fork and Undo begin runs of
// it, Runs lists all. Grants and Revoke are about standing grants. Upload takes a file for a message's media, Delete
// removes a run that has ended. Close closes idle connections.
type Client = web.Client

// New makes a client of the HTTP API at base, such as https://api.example.com. httpClient adds the credentials; nil =
// http.DefaultClient.
func New(base string, httpClient *http.Client) *Client { return web.NewURLClient(base, httpClient) }

// ErrUnreachable says that no answer came: whether the request was carried out is not known.
var ErrUnreachable = web.ErrUnreachable

// Problem is a refusal, as RFC 9457 has it.
type Problem = web.Problem

// Requests and answers of the API; docs/openapi.yaml describes each.
type (
	// Start is a new run: the agent, and a message or an input.
	Start = web.Start
	// Accepted is the run's id.
	Accepted = web.Accepted
	// Run is a run with its newest messages and calls.
	Run = web.Run
	// RunQuery is which runs are listed.
	RunQuery = web.RunQuery
	// Page is a page of a list.
	Page[T any] = web.Page[T]
	// RunHead is a run in a list.
	RunHead = web.RunHead
	// Message is a message of a run.
	Message = web.Message
	// Call is a tool call of a run.
	Call = web.Call
	// Waiting is a call that waits for somebody.
	Waiting = web.Waiting
	// Event is a fact of a run's journal.
	Event = web.Event
	// Input is messages, decisions and answers for a run.
	Input = web.Input
	// Approval is a request to people and what became of it.
	Approval = approval.Approval
	// ApprovalQuery is which requests are listed.
	ApprovalQuery = approval.Query
	// Verdict is a decision about an approval: Action, and with it Digest, the one of the Approval that was shown, so
	// that nothing else is approved; Note; Args of Edit; Result, the answer to a tool's question.
	Verdict = web.Verdict
	// GrantBounds is how far a standing grant of a Verdict goes.
	GrantBounds = core.GrantBounds
	// Answer is a service's answer to its call, or settles an unknown outcome.
	Answer = web.Answer
	// Decision resumes or cancels a call that waits.
	Decision = web.Decision
	// Fork is where a run branches off another one.
	Fork = web.Fork
	// Blob is a file to upload: its type, size and SHA-256.
	Blob = web.Blob
	// ForkModel is the model of a Fork; only where the runs are in this program or in `countersign dev`.
	ForkModel = web.ForkModel
)

// Action is what a Verdict does.
type Action = approval.Action

// The actions.
const (
	Approve = approval.Approve
	Deny    = approval.Deny
	Edit    = approval.Edit // approve with other arguments
)
