package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// bodies are the bodies of live results that are in blobs, by digest: what a request is measured by and holds.
type bodies map[string][]byte

// requestPlan is what a request is made of besides the run.
type requestPlan struct {
	action policy.Action
	system string // the system text, without the summary
	add    hook.Additions
	known  bodies
	left   prompt.Budget
}

// fitRequest makes room for the request by events in the draft, which are committed with the reply. It sets q.action to
// what is owed then, and q.left to the rest of the window. If the request fails, the caller restores the draft.
func (a *attempt) fitRequest(ctx context.Context, q *requestPlan) error {
	def, d := a.def, a.draft
	if def.Context.Window <= 0 && def.Context.Prune <= 0 { // nobody counts
		return nil
	}
	var err error
	if q.known, err = a.bodies(ctx, &d.State, d.State.Messages.All(), nil); err != nil {
		return err
	}
	m := prompt.Measured{System: q.system, Bodies: map[string]int{}}
	for digest, body := range q.known {
		m.Bodies[digest] = len(body)
	}
	if a.Count != nil && prompt.NeedsCount(def, &d.State, q.action, m) {
		req, _, err := a.buildRequest(ctx, q)
		if err != nil {
			return err
		}
		if m.Count, err = a.Count.CountTokens(ctx, req); err != nil { // then the estimate stands
			a.warn("count the tokens of run "+a.inv.Run, err)
			m.Count = 0
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	facts, left := prompt.MakeRoom(def, &d.State, q.action, m)
	if q.left = left; len(facts) == 0 {
		return nil
	}
	// Where the definition says so, the model writes the summary of what leaves. If that fails, the mechanical summary
	// stands; the request is counted all the same.
	for i, fact := range facts {
		e, ok := fact.(run.Evicted)
		if !ok {
			continue
		}
		req, owed := prompt.SummaryRequest(def, &d.State, e)
		if !owed {
			continue
		}
		reply, requests, err := a.Model.Ask(ctx, req)
		var failed *agent.ModelError
		if err != nil && !errors.As(err, &failed) {
			return fmt.Errorf("ask the model for a summary: %w", err)
		}
		facts[i] = prompt.Summarised(def, e, reply, requests)
	}
	if err := d.Add(facts...); err != nil {
		return err
	}
	offered := q.action.Offered
	q.action = policy.Next(def, &d.State)
	q.action.Offered = offered
	return nil
}

// buildRequest is the request with the bodies from blobs and what plugins add to it, and the digest of its system text
// where that is new.
func (a *attempt) buildRequest(ctx context.Context, q *requestPlan) (agent.Request, string, error) {
	s := &a.draft.State
	req, digest := prompt.BuildRequest(a.def, s, q.action, q.system)
	req, err := q.add.To(req)
	if err != nil {
		return req, "", err
	}
	known, err := a.bodies(ctx, s, req.Messages, q.known)
	if err != nil || len(known) == 0 {
		return req, digest, err
	}
	req.Messages = slices.Clone(req.Messages)
	for i, m := range req.Messages {
		if r, ok := m.Block.(run.ToolResult); ok && r.Blob != "" {
			r.Content, r.Blob = string(known[r.Blob]), ""
			req.Messages[i].Block = r
		}
	}
	return req, digest, nil
}

// bodies are those of the messages' results that blobs hold, with what is known of them.
func (p Ports) bodies(ctx context.Context, s *run.AgentState, messages []run.Message, known bodies) (bodies, error) {
	if s.BlobMessages == 0 {
		return known, nil
	}
	for _, m := range messages {
		r, ok := m.Block.(run.ToolResult)
		if !ok || r.Blob == "" {
			continue
		}
		if _, have := known[r.Blob]; have {
			continue
		}
		body, err := p.Blobs.Get(ctx, s.Tenant, r.Blob)
		if err != nil {
			return nil, fmt.Errorf("read result of call %s: %w", r.ID, err)
		}
		if known == nil {
			known = bodies{}
		}
		known[r.Blob] = body
	}
	return known, nil
}
