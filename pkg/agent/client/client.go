// Package client starts, watches and decides runs: those of a deployment or of `countersign dev` by HTTP, and those of an engine in the
// same program without.
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

// Client makes requests in the name of one person. A refusal is a *Problem; other errors wrap ErrUnreachable or are the context's. Every
// request may be sent again: nothing happens twice. Safe for concurrent use.
type Client = api.Client

// New makes a client of the HTTP API at base, such as https://api.example.com. httpClient adds the credentials; nil = http.DefaultClient.
func New(base string, httpClient *http.Client) *Client { return api.NewURLClient(base, httpClient) }

// ErrUnreachable says that no answer came: whether the request was carried out is not known.
var ErrUnreachable = api.ErrUnreachable

// Problem is a refusal, as RFC 9457 has it.
type Problem = api.Problem

// Requests and answers of the API; docs/openapi.yaml describes each.
type (
	Start        = api.Start    // a new run: the agent, and a message or an input
	Accepted     = api.Accepted // the run's id
	Run          = api.Run
	RunQuery     = api.RunQuery
	RunPage      = api.RunPage
	Message      = api.Message
	Call         = api.Call
	Waiting      = api.Waiting // a call that waits for somebody
	Event        = api.Event
	Input        = api.Input // messages, decisions and answers for a run
	Approval     = approval.Approval
	ApprovalPage = api.ApprovalPage
	Verdict      = api.Verdict // a decision about an approval
)

// Action is what a Verdict does.
type Action = approval.Action

// The actions.
const (
	Approve = approval.Approve
	Deny    = approval.Deny
	Edit    = approval.Edit // approve with other arguments
)
