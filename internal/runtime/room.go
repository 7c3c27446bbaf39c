package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// bodies are the bodies of live results that are in blobs, by digest: what a request is measured by and holds.
type bodies map[string][]byte

func (b bodies) sizes() map[string]int {
	if len(b) == 0 {
		return nil
	}
	sizes := make(map[string]int, len(b))
	for digest, body := range b {
		sizes[digest] = len(body)
	}
	return sizes
}

// counts reports whether anybody counts what a request holds.
func counts(def *agent.Definition) bool { return def.Context.Window > 0 || def.Context.Prune > 0 }

// asking is what a request is made of beside the run.
type asking struct {
	action run.Action
	system string // the system text, without the summary
	add    hook.Additions
	known  bodies
	left   prompt.Budget
}

// fit makes room for the request, as facts in the draft: they are committed with what comes of it. Then q.action is what is owed, and q.left
// what the window has left. Where the request fails, d is to be what it was.
func (a *attempt) fit(ctx context.Context, q *asking) error {
	def, d := a.def, a.draft
	if !counts(def) {
		return nil
	}
	var err error
	if q.known, err = a.bodies(ctx, &d.State, d.State.Messages.All(), nil); err != nil {
		return err
	}
	m := prompt.Measured{System: q.system, Bodies: q.known.sizes()}
	if a.Count != nil && prompt.Doubt(def, &d.State, q.action, m) {
		if m.Count, err = a.count(ctx, q); err != nil {
			return err
		}
	}
	facts, left := prompt.MakeRoom(def, &d.State, q.action, m)
	if q.left = left; len(facts) == 0 {
		return nil
	}
	if facts, err = a.summarised(ctx, facts); err != nil {
		return err
	}
	if err := d.Add(facts...); err != nil {
		return err
	}
	offered := q.action.Offered
	q.action = policy.Next(def, &d.State)
	q.action.Offered = offered
	return nil
}

// count is a provider's own count of the request, 0 where it cannot be had: then the estimate stands.
func (a *attempt) count(ctx context.Context, q *asking) (int64, error) {
	req, _, err := a.built(ctx, q)
	if err != nil {
		return 0, err
	}
	n, err := a.Count.CountTokens(ctx, req)
	if err != nil {
		a.warn("count the tokens of run "+a.inv.Run, err)
		return 0, ctx.Err()
	}
	return n, nil
}

// built is the request with the bodies that blobs hold and with what plugins add to it alone, and its system text's digest where that is new.
func (a *attempt) built(ctx context.Context, q *asking) (agent.Request, string, error) {
	s := &a.draft.State
	req, digest := prompt.BuildRequest(a.def, s, q.action, q.system)
	req, err := q.add.To(req)
	if err != nil {
		return req, "", err
	}
	req.Messages, err = a.withBodies(ctx, s, req.Messages, q.known)
	return req, digest, err
}

// summarised has the model write the summary of what leaves, where the definition says so. Where it fails or says nothing, the mechanical one
// stands; that it was asked counts all the same.
func (a *attempt) summarised(ctx context.Context, facts []run.Event) ([]run.Event, error) {
	for i, fact := range facts {
		e, ok := fact.(run.Evicted)
		if !ok {
			continue
		}
		req, owed := prompt.SummaryRequest(a.def, &a.draft.State, e)
		if !owed {
			continue
		}
		reply, requests, err := a.Model.Ask(ctx, req)
		var failed *agent.ModelError
		if err != nil && !errors.As(err, &failed) {
			return nil, fmt.Errorf("ask the model for a summary: %w", err)
		}
		facts[i] = prompt.Summarised(a.def, e, reply, requests)
	}
	return facts, nil
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

// withBodies are the messages of a request to s's model with the bodies that blobs hold, as far as they are not known.
func (p Ports) withBodies(ctx context.Context, s *run.AgentState, messages []run.Message, known bodies) ([]run.Message, error) {
	known, err := p.bodies(ctx, s, messages, known)
	if err != nil || len(known) == 0 {
		return messages, err
	}
	out := append([]run.Message(nil), messages...)
	for i, m := range out {
		if r, ok := m.Block.(run.ToolResult); ok && r.Blob != "" {
			r.Content, r.Blob = string(known[r.Blob]), ""
			out[i].Block = r
		}
	}
	return out, nil
}
