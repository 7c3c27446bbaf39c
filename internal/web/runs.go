package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
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

// Start is the body of POST /v1/runs. Exactly one of Message and Input is given.
type Start struct {
	Agent string `json:"agent,omitempty"`
	// instead of a registered agent; only where the backend is Local
	Definition    *agent.Definition `json:"definition,omitempty"`
	Input         json.RawMessage   `json:"input,omitempty"`
	Message       json.RawMessage   `json:"message,omitempty"`   // a string, or a list of blocks
	Key           string            `json:"key,omitempty"`       // idempotency key; or the header Idempotency-Key
	Continues     string            `json:"continues,omitempty"` // a finished run whose conversation goes on
	Subject       string            `json:"subject,omitempty"`
	AccessControl string            `json:"accessControl,omitempty"`
}

// keyHeader is the header for the idempotency key of a start or an input.
const keyHeader = "Idempotency-Key"

// maxKey is the longest idempotency key, in bytes.
const maxKey = 256

// maxLabel is the longest subject or accessControl of a run, in bytes. Each event contains them.
const maxLabel = 1024

// checkText refuses a text that is too long or that the store cannot have in a key.
func checkText(key, value string, most int) error {
	if len(value) > most {
		return invalidProblem("%s: got %d bytes, want at most %d", key, len(value), most)
	}
	if !utf8.ValidString(value) || strings.Contains(value, "\x00") {
		return invalidProblem("%s: want UTF-8 without NUL", key)
	}
	return nil
}

func (s *apiServer) startRun(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	b, err := readBody[Start](w, r, false)
	if err != nil {
		return 0, nil, err
	}
	if b.Continues != "" {
		if err := checkRunID("continues:", b.Continues); err != nil {
			return 0, nil, err
		}
	}
	key, err := idempotencyKey(r, b.Key)
	if err := errors.Join(checkText("subject", b.Subject, maxLabel),
		checkText("accessControl", b.AccessControl, maxLabel), err); err != nil {
		return 0, nil, err
	}
	def, err := s.findDefinition(b)
	if err == nil {
		err = s.checkDelegates(def)
	}
	if err != nil {
		return 0, nil, err
	}
	start := runtime.Start{Tenant: c.Tenant, Agent: def, Key: key, Input: b.Input, Continues: b.Continues,
		Subject: b.Subject, AccessControl: b.AccessControl, By: []string{c.Principal.ID}}
	if unlessNull(b.Message) != nil {
		if start.Message, err = ReadMessage("message", b.Message); err != nil {
			return 0, nil, err
		}
	}
	run, err := s.Starter.Start(r.Context(), start)
	return s.acceptRun(w, r, key, run, err)
}

// acceptRun answers with a run and its address. A run that is written but whose execution did not start is accepted
// without a key: a retry would create another run; the sweep or `resume` starts this one. With a key it returns the
// error, and a retry starts the run.
func (s *apiServer) acceptRun(
	w http.ResponseWriter, r *http.Request, key string, run run.AgentState, err error,
) (int, any, error) {
	if err != nil {
		if key != "" || !errors.Is(err, runtime.ErrUnstarted) {
			return 0, nil, err
		}
		s.Log.Warn("run accepted, its execution is not started yet", "route", r.Method+" "+r.Pattern, "error", err)
	}
	w.Header().Set("Location", "/v1/runs/"+run.Run)
	return http.StatusAccepted, newAccepted(run), nil
}

// idempotencyKey returns the key of the body or the header.
func idempotencyKey(r *http.Request, inBody string) (string, error) {
	inHeader := r.Header.Get(keyHeader)
	if inBody != "" && inHeader != "" && inBody != inHeader {
		return "", invalidProblem("key: the body and the header %s differ", keyHeader)
	}
	key := cmp.Or(inBody, inHeader)
	return key, checkText("key", key, maxKey)
}

// checkDelegates refuses, on a laptop, an agent that calls an unknown agent. Its run would stall at that call.
func (s *apiServer) checkDelegates(def *agent.Definition) error {
	for _, t := range def.Tools {
		if !s.Local || t.Kind != agent.KindAgent {
			continue
		}
		if _, ok := s.Agents.Agent(t.Agent.Agent); !ok {
			return s.unknownAgent(t.Agent.Agent, "tool "+t.Name+" of agent "+def.Name+": ")
		}
	}
	return nil
}

// unknownAgent returns the problem of a start that needs an agent which is not there, or cannot run here.
func (s *apiServer) unknownAgent(name, by string) error {
	p := problem(UnknownAgent, "start run: %sunknown agent %.64q; known: %s", by, name, joinNames(s.Agents.Agents()))
	if a, ok := s.Agents.(unfitAgents); ok && a.Unfit(name) != "" {
		p = problem(UnknownAgent, "start run: %s%s", by, a.Unfit(name))
	}
	p.Known = s.Agents.Agents()
	return p
}

// unfitAgents are Agents that leave out registered agents which cannot run here. Unfit returns the reason; "" = not
// left out.
type unfitAgents interface{ Unfit(name string) string }

// findDefinition returns the registered agent, or the definition in the body.
func (s *apiServer) findDefinition(b Start) (*agent.Definition, error) {
	if b.Definition == nil {
		if d, ok := s.Agents.Agent(b.Agent); ok {
			return d, nil
		}
		return nil, s.unknownAgent(b.Agent, "")
	}
	if !s.Local {
		return nil, problem(NotAllowed, "definition: only taken where the caller owns the machine")
	}
	if b.Agent != "" && b.Agent != b.Definition.Name {
		return nil, invalidProblem("agent: got %.64q, want %.64q, the definition's name, or nothing", b.Agent,
			b.Definition.Name)
	}
	if err := b.Definition.Check(); err != nil {
		return nil, invalidProblem("definition: %v", err)
	}
	for _, t := range b.Definition.Tools {
		if t.Kind == agent.KindInternal && !s.Tool(t.Name) {
			return nil, invalidProblem("definition: tool %s has no code here", t.Name)
		}
	}
	return b.Definition, nil
}

func (s *apiServer) listRuns(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q := r.URL.Query()
	status := run.RunStatus(q.Get("status"))
	if q.Has("status") && !status.Valid() {
		return 0, nil, invalidProblem("status: got %.64q, want running, waiting or done", status)
	}
	of, err := readAgent(q)
	if err != nil {
		return 0, nil, err
	}
	since, err := s.earliestStart(r, c, q, "root", time.Time{})
	if err != nil {
		return 0, nil, err
	}
	return readPage(r, func(limit int, cursor string) (shown []RunHead, next string, err error) {
		heads, next, err := s.Journal.ListSince(r.Context(), c.Tenant, status, since, limit, cursor)
		for _, h := range heads {
			head := RunHead{
				ID: h.Run, Agent: h.Agent, Status: h.Status, Reason: h.Reason, StartedAt: h.StartedAt, UpdatedAt: h.UpdatedAt,
				ExpiresAt: h.Expires, Seq: h.Seq, Hash: h.Hash,
			}
			if p := h.Parent; p != nil {
				head.Parent, head.ParentCall, head.Root = p.Run, p.Call, p.Root
			}
			if (of == "" || h.Agent == of) && (!q.Has("root") || head.Root == q.Get("root")) {
				shown = append(shown, head)
			}
		}
		return shown, next, err
	})
}

func (s *apiServer) loadRun(r *http.Request, c Caller) (store.Loaded, error) {
	return s.Journal.Load(r.Context(), c.Tenant, r.PathValue("id"))
}

func (s *apiServer) showRun(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	messages, err := zeroOrOne(r.URL.Query(), "messages", "1")
	if err != nil {
		return 0, nil, err
	}
	l, err := s.loadRun(r, c)
	if err != nil {
		return 0, nil, err
	}
	run, err := policy.View(&l.State)
	if err != nil {
		return 0, nil, fmt.Errorf("show run %s: %w", l.State.Run, err)
	}
	run.Inbox = len(l.Inbox)
	if messages == "0" {
		run.Messages, run.Calls, run.Queued = nil, nil, nil
	}
	s.addUndos(r.Context(), &l.State, run.Calls)
	return http.StatusOK, run, nil
}

func (s *apiServer) listMessages(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	l, err := s.loadRun(r, c)
	if err != nil {
		return 0, nil, err
	}
	all, err := s.Journal.Conversation(r.Context(), c.Tenant, &l.State)
	if err != nil {
		return 0, nil, err
	}
	read := fetchFrom(all)
	return readPage(r, func(limit int, cursor string) (shown []Message, next string, err error) {
		part, next, err := read(limit, cursor)
		if err != nil {
			return nil, "", err
		}
		if shown, err = policy.ViewMessages(part); err != nil {
			return nil, "", fmt.Errorf("show messages of run %s: %w", l.State.Run, err)
		}
		return shown, next, nil
	})
}

func (s *apiServer) listCalls(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	l, err := s.loadRun(r, c)
	if err != nil {
		return 0, nil, err
	}
	read := fetchFrom(l.State.Calls())
	return readPage(r, func(limit int, cursor string) ([]Call, string, error) {
		part, next, err := read(limit, cursor)
		shown := policy.ViewCalls(part)
		s.addUndos(r.Context(), &l.State, shown)
		return shown, next, err
	})
}

func (s *apiServer) replayRun(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if s.Replay == nil {
		return 0, nil, problem(NotSupported, "replay: not supported yet")
	}
	found, err := s.Replay(r.Context(), c.Tenant, r.PathValue("id"))
	return http.StatusOK, found, err
}

// Note is the body of POST /v1/runs/{id}/cancel; it may be left out.
type Note struct {
	Note string `json:"note,omitempty"` // the reason, shown to a run that continues this one
}

func (s *apiServer) cancelRun(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	b, err := readBody[Note](w, r, true)
	if err != nil {
		return 0, nil, err
	}
	l, err := s.loadRun(r, c)
	if err != nil {
		return 0, nil, err
	}
	run, err := s.Canceller.Cancel(r.Context(), c.Tenant, l.State.Run, c.Principal.ID, b.Note)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusAccepted, newAccepted(run), nil
}

// Fork is the body of POST /v1/runs/{id}/fork.
type Fork struct {
	At    *int64     `json:"at"`              // the last entry that both runs share
	Key   string     `json:"key,omitempty"`   // idempotency key; or the header Idempotency-Key
	Model *ForkModel `json:"model,omitempty"` // only where the backend is Local
}

// ForkModel names the model that stands in for the run's, its fallbacks, its plan's and those of delegated runs. The
// other settings of the run's model stay.
type ForkModel struct {
	Provider string `json:"provider"`
	ID       string `json:"id,omitempty"`
	BaseURL  string `json:"baseURL,omitempty"`
	File     string `json:"file,omitempty"`
}

func (s *apiServer) forkRun(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	b, err := readBody[Fork](w, r, false)
	if err != nil {
		return 0, nil, err
	}
	switch {
	case b.At == nil:
		return 0, nil, invalidProblem("at: got nothing, want an entry's sequence")
	case b.Model != nil && !s.Local: // a model may name a file or an address of this machine
		return 0, nil, problem(NotAllowed, "model: only taken where the caller owns the machine")
	}
	key, err := idempotencyKey(r, b.Key)
	if err != nil {
		return 0, nil, err
	}
	f := runtime.Fork{Tenant: c.Tenant, Run: r.PathValue("id"), At: *b.At, Key: key, By: c.Principal.ID}
	if m := b.Model; m != nil {
		f.Model = &agent.ModelSpec{Provider: m.Provider, ID: m.ID, BaseURL: m.BaseURL, File: m.File}
	}
	run, err := s.Starter.Fork(r.Context(), f)
	return s.acceptRun(w, r, key, run, err)
}

// Fork starts a run from another run's state after one of its entries, once for its key.
func (c *Client) Fork(ctx context.Context, run string, f Fork) (Accepted, error) {
	return post[Accepted](ctx, c, runPath(run, "/fork"), f, "")
}

// Undone is the response to POST /v1/runs/{id}/calls/{call}/undo: the run that undoes the call.
type Undone struct {
	ID      string         `json:"id"`
	Status  run.RunStatus  `json:"status"`
	Links   *Links         `json:"links"`
	Reason  run.Reason     `json:"reason,omitempty"` // of that run
	Error   *run.RunError  `json:"error,omitempty"`
	Call    string         `json:"call"` // that it makes
	Tool    string         `json:"tool"`
	State   run.CallStatus `json:"callStatus"`
	Already bool           `json:"already"` // somebody had asked for it before
}

func (s *apiServer) undoCall(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := readBody[struct{}](w, r, true); err != nil { // refuse unknown content
		return 0, nil, err
	}
	by := runtime.Undo{Tenant: c.Tenant, Run: r.PathValue("id"), Call: r.PathValue("call"), By: c.Principal.ID}
	run, again, err := s.Starter.Undo(r.Context(), by)
	if err != nil { // a retry returns the same run
		return 0, nil, err
	}
	call, _ := run.Undoing() // always set in a run of Undo
	w.Header().Set("Location", "/v1/runs/"+run.Run)
	status := http.StatusAccepted
	if again {
		status = http.StatusOK
	}
	return status, Undone{
		ID: run.Run, Status: run.Status, Links: newAccepted(run).Links, Reason: run.Reason, Error: run.Error,
		Call: call.ID, Tool: call.Tool, State: call.Status, Already: again,
	}, nil
}

// addUndos adds to calls what would undo them. An error is logged only.
func (s *apiServer) addUndos(ctx context.Context, run *run.AgentState, shown []Call) {
	if len(shown) == 0 {
		return
	}
	ids := make([]string, len(shown))
	for i, c := range shown {
		ids[i] = c.ID
	}
	var undos map[string]*policy.CallUndo
	def, err := s.Definitions(ctx, run.Tenant, run.Definition)
	if err == nil {
		undos, err = s.Starter.Undos(ctx, run, def, ids)
	}
	if err != nil {
		s.Log.Warn("the undo of a run's calls is not shown", "run", run.Run, "error", err)
	}
	for i := range shown {
		shown[i].Undo = undos[shown[i].ID]
	}
}

// Undo starts the run that undoes a call of a finished run. Repeated calls return the same run.
func (c *Client) Undo(ctx context.Context, run, call string) (Undone, error) {
	return post[Undone](ctx, c, runPath(run, "/calls/"+url.PathEscape(call)+"/undo"), struct{}{}, "")
}

// deleters may delete runs.
var deleters = []string{"group:operators"}

// deleteRun deletes a run that has ended, with all that belongs to it. It may be repeated.
func (s *apiServer) deleteRun(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if !policy.MayDecide(deleters, c.Principal) {
		return 0, nil, problem(NotAllowed, "delete a run as %s: want a member of %s", c.Principal.ID, deleters[0])
	}
	out, err := s.Deleter.Delete(r.Context(), c.Tenant, r.PathValue("id"), c.Principal.ID)
	if err == nil { // the head tells a deletion from a journal that was taken out
		s.Log.Info("run deleted", "tenant", c.Tenant, "run", out.Run, "head", out.Hash, "by", c.Principal.ID)
	}
	return http.StatusOK, out, err
}

func (s *apiServer) listDeletions(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	return readPage(r, func(limit int, cursor string) ([]store.Deletion, string, error) {
		return s.Journal.Deletions(r.Context(), c.Tenant, false, limit, cursor)
	})
}

// Delete deletes a run that has ended. It may be repeated.
func (c *Client) Delete(ctx context.Context, run string) (runtime.Deleted, error) {
	return send[runtime.Deleted](ctx, c, clientRequest{method: http.MethodDelete, path: runPath(run, "")})
}

// Deletions lists a page of deleted runs, the newest deletion first.
func (c *Client) Deletions(ctx context.Context, cursor string, limit int) (Page[store.Deletion], error) {
	return get[Page[store.Deletion]](ctx, c, "/v1/deletions", values("cursor", cursor, "limit", number(limit)))
}

func (s *apiServer) listRepairs(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	return readPage(r, func(limit int, cursor string) ([]runtime.Repaired, string, error) {
		return runtime.ListRepaired(r.Context(), s.Table, c.Tenant, limit, cursor)
	})
}

// Repairs lists a page of repairs, newest first.
func (c *Client) Repairs(ctx context.Context, cursor string, limit int) (Page[runtime.Repaired], error) {
	return get[Page[runtime.Repaired]](ctx, c, "/v1/repairs", values("cursor", cursor, "limit", number(limit)))
}
