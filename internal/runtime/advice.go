package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/store"
)

// The record of an agent's approvals under an advisory policy (seed 003, approval cache): PK T#tenant#ADVICE#agent, SK
// the tool's name as the model uses it, body an policy.ToolApproval. It decides nothing but what the model reads in a
// tool's description.

func adviceKey(tenant, agentName, tool string) store.Key {
	return store.Key{PK: "T#" + tenant + "#ADVICE#" + agentName, SK: tool}
}

// recordAdvice adds to the draft what is known about the approvals of the agent's tools. When an attempt begins it
// reads the agent's record; answers that the model has not seen go into the record, for other runs. A failed write of
// the record hurts no run.
func (a *attempt) recordAdvice(ctx context.Context) error {
	def, d := a.def, a.draft
	if !def.Advises() {
		return nil
	}
	if !d.State.Memory[policy.ApprovalsMemory].Fresh {
		known, err := a.readAdvice(ctx, d.State.Tenant, d.State.Agent, policy.Flaggable(def))
		if err != nil {
			return err
		}
		if err := d.Add(policy.RememberApprovals(&d.State, known)); err != nil {
			return err
		}
	}
	for _, c := range def.Unheard(&d.State) {
		answer := []byte(c.Result.Content)
		if c.Result.Blob != "" {
			var err error
			if answer, err = a.Blobs.Get(ctx, d.State.Tenant, c.Result.Blob); err != nil {
				return fmt.Errorf("read answer of call %s: %w", c.ID, err)
			}
		}
		said, ok := policy.ReadApprovals(answer)
		if !ok {
			continue
		}
		if err := a.writeAdvice(ctx, d.State.Tenant, d.State.Agent, said); err != nil {
			a.warn("keep approvals of agent "+d.State.Agent, err)
		}
		if err := d.Add(policy.RememberApprovals(&d.State, said)); err != nil {
			return err
		}
	}
	return nil
}

// readAdvice reads an agent's whole record and gives what it says of these tools. Nothing is read for no tools.
func (p Ports) readAdvice(
	ctx context.Context, tenant, agentName string, tools []string,
) ([]policy.ToolApproval, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	var known []policy.ToolApproval
	r := store.Range{PK: adviceKey(tenant, agentName, "").PK}
	for {
		page, err := p.Table.Query(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("read approvals of agent %s: %w", agentName, err)
		}
		for _, it := range page.Items {
			if !slices.Contains(tools, it.SK) {
				continue
			}
			var t policy.ToolApproval
			err := jsonx.ReadStored("word on a tool", it.Body, &t)
			if err == nil && t.Tool != it.SK {
				err = errors.New("tool: want that of the key")
			}
			if err != nil {
				return nil, fmt.Errorf("read approvals of agent %s: %w", agentName, store.Damaged(it.Key, "%w", err))
			}
			known = append(known, t)
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return known, nil
		}
	}
}

// writeAdvice writes what was said, all of it or nothing. The newest word counts.
func (p Ports) writeAdvice(ctx context.Context, tenant, agentName string, said []policy.ToolApproval) error {
	var ops []store.Op
	for _, t := range said[:min(len(said), store.MaxOps)] { // no agent has more tools
		body, err := jsonx.MarshalVerbatim(t)
		if err != nil {
			return err
		}
		ops = append(ops, store.Op{Kind: store.Put, Item: store.Item{Key: adviceKey(tenant, agentName, t.Tool), Body: body}})
	}
	if len(ops) == 0 {
		return nil
	}
	return p.Table.Write(ctx, ops...)
}
