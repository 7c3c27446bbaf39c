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
// the model-facing name of the tool, body a policy.ToolApproval. It only affects the descriptions of tools that the
// model reads.

func adviceKey(tenant, agentName, tool string) store.Key {
	return store.Key{PK: "T#" + tenant + "#ADVICE#" + agentName, SK: tool}
}

// recordAdvice adds to the draft what is known about approvals of the agent's tools. When an attempt begins, it reads
// the agent's record. Answers that the model has not seen are written to the record, for other runs. A failed write
// affects no run.
func (a *attempt) recordAdvice(ctx context.Context) error {
	def, d := a.def, a.draft
	if !def.FlagsTools() {
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
	for _, c := range def.UnseenApprovals(&d.State) {
		answer := []byte(c.Result.Content)
		if c.Result.Blob != "" {
			var err error
			if answer, err = a.Blobs.Get(ctx, d.State.Tenant, c.Result.Blob); err != nil {
				return fmt.Errorf("read answer of call %s: %w", c.ID, err)
			}
		}
		approvals, ok := policy.ReadApprovals(answer)
		if !ok {
			continue
		}
		if c.Result.Source.Run == "" { // a fork's answer is the other run's to record, and may be older than the record
			if err := a.writeAdvice(ctx, d.State.Tenant, d.State.Agent, approvals); err != nil {
				a.warn("keep approvals of agent "+d.State.Agent, err)
			}
		}
		if err := d.Add(policy.RememberApprovals(&d.State, approvals)); err != nil {
			return err
		}
	}
	return nil
}

// readAdvice reads an agent's whole record and returns what it contains about these tools. Without tools it reads
// nothing.
func (p Ports) readAdvice(
	ctx context.Context, tenant, agentName string, tools []string,
) ([]policy.ToolApproval, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	var known []policy.ToolApproval
	items, err := store.ReadAll(ctx, p.Table, store.Range{PK: adviceKey(tenant, agentName, "").PK})
	if err != nil {
		return nil, fmt.Errorf("read approvals of agent %s: %w", agentName, err)
	}
	for _, it := range items {
		if !slices.Contains(tools, it.SK) {
			continue
		}
		var t policy.ToolApproval
		err := jsonx.ReadStored("approval of a tool", it.Body, &t)
		if err == nil && t.Tool != it.SK {
			err = errors.New("tool: want that of the key")
		}
		if err != nil {
			return nil, fmt.Errorf("read approvals of agent %s: %w", agentName, store.Damaged(it.Key, "%w", err))
		}
		known = append(known, t)
	}
	return known, nil
}

// writeAdvice writes all approvals or none. The newest approval of a tool replaces earlier ones.
func (p Ports) writeAdvice(ctx context.Context, tenant, agentName string, approvals []policy.ToolApproval) error {
	var ops []store.Op
	for _, t := range approvals[:min(len(approvals), store.MaxOps)] { // no agent has more tools
		body, err := jsonx.MarshalVerbatim(t)
		if err != nil {
			return err
		}
		ops = append(ops, store.Op{Kind: store.Put, Item: store.Item{Key: adviceKey(tenant, agentName, t.Tool), Body: body}})
	}
	return p.Table.Write(ctx, ops...)
}
