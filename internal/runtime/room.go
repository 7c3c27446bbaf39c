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
func (st *Stepper) fit(ctx context.Context, def *agent.Definition, d *run.Draft, q *asking) error {
	if !counts(def) {
		return nil
	}
	var err error
	if q.known, err = st.bodies(ctx, &d.State, d.State.Messages.All(), nil); err != nil {
		return err
	}
	m := prompt.Measured{System: q.system, Bodies: q.known.sizes()}
	if st.Count != nil && prompt.Doubt(def, &d.State, q.action, m) {
		if m.Count, err = st.count(ctx, def, &d.State, *q); err != nil {
			return err
		}
	}
	facts, left := prompt.MakeRoom(def, &d.State, q.action, m)
	if q.left = left; len(facts) == 0 {
		return nil
	}
	if facts, err = st.summarised(ctx, def, &d.State, facts); err != nil {
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
func (st *Stepper) count(ctx context.Context, def *agent.Definition, s *run.AgentState, q asking) (int64, error) {
	req, _, err := st.built(ctx, def, s, q)
	if err != nil {
		return 0, err
	}
	n, err := st.Count.CountTokens(ctx, req)
	if err != nil {
		if st.Warn != nil {
			st.Warn(fmt.Sprintf("count the tokens of run %s", s.Run), err)
		}
		return 0, ctx.Err()
	}
	return n, nil
}

// built is the request with the bodies that blobs hold and with what plugins add to it alone, and its system text's digest where that is new.
func (st *Stepper) built(ctx context.Context, def *agent.Definition, s *run.AgentState, q asking) (agent.Request, string, error) {
	req, digest := prompt.BuildRequest(def, s, q.action, q.system)
	req, err := q.add.To(req)
	if err != nil {
		return req, "", err
	}
	req.Messages, err = st.withBodies(ctx, s, req.Messages, q.known)
	return req, digest, err
}

// summarised has the model write the summary of what leaves, where the definition says so. Where it fails or says nothing, the mechanical one
// stands; that it was asked counts all the same.
func (st *Stepper) summarised(ctx context.Context, def *agent.Definition, s *run.AgentState, facts []run.Event) ([]run.Event, error) {
	for i, fact := range facts {
		e, ok := fact.(run.Evicted)
		if !ok {
			continue
		}
		req, owed := prompt.SummaryRequest(def, s, e)
		if !owed {
			continue
		}
		reply, requests, err := st.Model.Ask(ctx, req)
		var failed *agent.ModelError
		if err != nil && !errors.As(err, &failed) {
			return nil, fmt.Errorf("ask the model for a summary: %w", err)
		}
		facts[i] = prompt.Summarised(def, e, reply, requests)
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
