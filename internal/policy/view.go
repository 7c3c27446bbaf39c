package policy

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/run"
)

// RunView is a run as people and the HTTP API see it (docs/openapi.yaml).
type RunView struct {
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
	Messages       []MessageView    `json:"messages,omitzero"` // the newest 200; nil = left out
	Queued         []MessageView    `json:"queued,omitempty"`  // users' messages that wait for the calls' results
	Calls          []CallView       `json:"calls,omitzero"`    // the newest 200; nil = left out
	Waiting        []WaitView       `json:"waiting"`
	// accepted inputs that are not applied yet; a waiting run with some is about to continue
	Inbox   int             `json:"inbox,omitempty"`
	Summary string          `json:"summary"`
	State   json.RawMessage `json:"state"`             // what the run's tools and plugins share, an object
	Subject string          `json:"subject,omitempty"` // claimed by the caller, not checked
	// authenticated ids of who started the run, its origin and the delegating run
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
func (r RunView) Resting() bool {
	return r.Status == run.RunDone || r.Status == run.RunWaiting && r.Inbox == 0
}

// MessageView is one message of a run.
type MessageView struct {
	Role      run.Role        `json:"role"`
	SeenCount int64           `json:"seenCount"`
	Content   json.RawMessage `json:"content"`           // one block
	Evicted   bool            `json:"evicted,omitempty"` // no longer in the conversation; never in a RunView
}

// CallView is one tool call of a run.
type CallView struct {
	ID         string          `json:"id"`
	Tool       string          `json:"tool"`
	Input      json.RawMessage `json:"input"`
	Status     run.CallStatus  `json:"status"`
	Executions int             `json:"executions"`
	Reason     run.CallReason  `json:"reason,omitempty"`
	Run        string          `json:"run,omitempty"`    // the delegated run that carries out the call
	Undoes     string          `json:"undoes,omitempty"` // the call that it undoes, of the continued run
	Whole      *run.Whole      `json:"whole,omitempty"`  // where the whole result is, if the conversation has a part
	Undo       *CallUndo       `json:"undo,omitempty"`   // what would undo it; nil = open, or no undo
}

// WaitView is a call that waits for somebody.
type WaitView struct {
	Call     string      `json:"call"`
	For      run.WaitFor `json:"for"`
	Approval string      `json:"approval,omitempty"`
	Run      string      `json:"run,omitempty"` // the delegated run that carries out the call
	Since    time.Time   `json:"since"`
	Expires  time.Time   `json:"expiresAt"`
	Ticket   *run.Ticket `json:"ticket,omitempty"` // for input: what people are asked, whole
}

// View returns the run as people see it: the newest 200 messages, each with its seenCount, and the newest 200 calls.
// The caller adds the inbox and the undos.
func View(s *run.AgentState) (v RunView, err error) {
	v = RunView{
		ID: s.Run, Agent: s.Agent, Version: s.Version, Status: s.Status, Reason: s.Reason, Error: s.Error,
		Inferences: s.Inferences, ModelCalls: s.ModelCalls, Interactions: s.Interactions, ExecutionUnits: s.ExecutionUnits,
		Usage: s.Usage, Cost: s.Cost, Calls: ViewCalls(newestOf(s.Calls())), Waiting: []WaitView{},
		Summary: SummaryShown(s), State: s.SharedState(), Subject: s.Subject, StartedBy: s.By,
		StartedAt: s.StartedAt, UpdatedAt: s.UpdatedAt, EndedAt: s.EndedAt, Seq: s.Seq(), Servers: s.Servers,
	}
	if s.Status == run.RunDone {
		v.Detail = s.EndingDetail
	}
	switch from := s.From; {
	case from == nil:
	case from.Kind == run.OriginFork:
		v.Parent, v.ParentSeq = from.Run, &from.Seq
	default:
		v.Continues = from.Run
	}
	if p := s.Parent; p != nil {
		v.Parent, v.ParentCall, v.Root = p.Run, p.Call, p.Root
	}
	for _, c := range s.Waits() {
		w := WaitView{Call: c.ID, For: c.Wait.For, Approval: c.Wait.Approval, Run: c.Child, Since: c.Wait.Since,
			Expires: c.Wait.Expires}
		if t, ok := TicketOf(c); ok && w.For == run.ForInput {
			w.Ticket = &t
		}
		v.Waiting = append(v.Waiting, w)
	}
	for _, r := range s.OpenRequests() { // a request about tools belongs to no call, so the first blocked one is shown
		v.Waiting = append(v.Waiting, WaitView{Call: r.First(), For: run.ForApproval, Approval: r.Approval, Since: r.Since,
			Expires: r.Expires})
	}
	queued := []SeenMessage{}
	for _, q := range s.Queued {
		if !q.Permission {
			queued = append(queued, SeenMessage{Message: run.Message{Role: run.RoleUser, Block: q.Block}})
		}
	}
	if v.Queued, err = ViewMessages(queued); err != nil {
		return v, err
	}
	if v.Messages, err = ViewMessages(WithSeenCounts(newestOf(s.Messages.All()), s.Inferences)); err == nil {
		v.Output, err = OutputView(s)
	}
	return v, err
}

// OutputView returns the output as people see it: the value, or, if the definition says so, the conversation beside it
// (seed 003, response construction). The conversation is not stored a second time.
func OutputView(s *run.AgentState) (json.RawMessage, error) {
	if !s.History || s.Output == nil {
		return s.Output, nil
	}
	messages, err := ViewMessages(WithSeenCounts(s.Messages.All(), s.Inferences))
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Messages []MessageView   `json:"messages"`
		Output   json.RawMessage `json:"output"`
	}{messages, s.Output})
}

// newestOf returns the newest elements, as many as a view shows.
func newestOf[T any](list []T) []T { return list[max(0, len(list)-200):] }

// SeenMessage is a message of a conversation as people see it, with its seenCount. An evicted message keeps the count
// that it had.
type SeenMessage struct {
	run.Message
	SeenCount int64
	Evicted   bool
}

// WithSeenCounts returns the messages of a run with their seenCount after this many inferences.
func WithSeenCounts(messages []run.Message, inferences int64) []SeenMessage {
	return run.Map(messages, func(m run.Message) SeenMessage {
		return SeenMessage{Message: m, SeenCount: m.Seen(inferences)}
	})
}

// ViewMessages converts messages to the form that people see.
func ViewMessages(said []SeenMessage) ([]MessageView, error) {
	views := make([]MessageView, len(said))
	for i, m := range said {
		content, err := run.MarshalBlock(m.Block)
		if err != nil {
			return nil, err
		}
		views[i] = MessageView{Role: m.Role, SeenCount: m.SeenCount, Content: content, Evicted: m.Evicted}
	}
	return views, nil
}

// ViewCalls converts calls to the form that people see, without their undos.
func ViewCalls(calls []run.Call) []CallView {
	views := make([]CallView, len(calls))
	for i, c := range calls {
		views[i] = CallView{ID: c.ID, Tool: c.Tool, Input: c.Input, Status: c.Status, Executions: c.Executions,
			Reason: c.Reason, Run: c.Child, Undoes: c.Undoes}
		if c.Result != nil {
			views[i].Whole = c.Result.Whole
		}
	}
	return views
}

// TicketOf returns the question of the tool or plugin that last suspended c for input, with defaults filled in. It is
// false if there is none.
func TicketOf(c run.Call) (run.Ticket, bool) {
	if c.Ticket == nil {
		return run.Ticket{}, false
	}
	t := *c.Ticket
	t.Memo = "" // the tool's alone
	t.ID = cmp.Or(t.ID, c.ID)
	t.Action = cmp.Or(t.Action, "tool:"+c.Tool)
	t.Mode = cmp.Or(t.Mode, run.TicketReplay)
	if t.Parameters == nil {
		t.Parameters = c.Input
	}
	t.Pending.ID, t.Pending.Name = cmp.Or(t.Pending.ID, c.ID), cmp.Or(t.Pending.Name, c.Tool)
	if t.Pending.Arguments == nil {
		t.Pending.Arguments = c.Input
	}
	return t, true
}

// SuspensionIDs returns the ids by which people may name a suspended call in a decision (seed 001): the suspension's,
// and the pending call's, which permission plugins of the seed prefix with fc_.
func SuspensionIDs(c run.Call) (ticket, pending string) {
	if t, ok := TicketOf(c); ok {
		return t.ID, t.Pending.ID
	}
	return "", "fc_" + c.ID
}

// FindSuspended finds the suspended call that a decision's target names (seed 001): by the call's id, else by the
// request's, the suspension's or the pending call's. If two suspensions have one id, the first counts.
func FindSuspended(s *run.AgentState, target string) (run.Call, bool) {
	for kind := range 4 {
		for _, c := range s.Waits() {
			ticket, pending := SuspensionIDs(c)
			if target != "" && [...]string{c.ID, c.Wait.Approval, ticket, pending}[kind] == target {
				return c, true
			}
		}
	}
	return run.Call{}, false
}

// SummaryShown returns what is left of evicted messages, as people see it: the notes, and the names of files.
func SummaryShown(s *run.AgentState) string {
	if len(s.Files) == 0 {
		return s.Summary
	}
	return s.Summary + "\nFiles: " + strings.Join(s.Files, ", ")
}
