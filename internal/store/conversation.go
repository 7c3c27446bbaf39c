package store

import (
	"context"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Conversation is every message of the run s, which was read whole: those that have left its conversation, from the
// journals that hold them, and those that are live, oldest first. Without the former it reads nothing.
func (j *Journal) Conversation(ctx context.Context, tenant string, s *run.AgentState) ([]run.Spoken, error) {
	if s.EvictedMessages == 0 {
		return s.Spoken(), nil
	}
	left, _, err := j.departed(ctx, tenant, s.Run, s.Seq())
	return append(left, s.Spoken()...), err
}

// departed are the messages that had left a run's conversation after its entry seq, those of before the run included,
// and the run then.
func (j *Journal) departed(ctx context.Context, tenant, runID string, seq int64) (left []run.Spoken, s run.AgentState, err error) {
	entries, err := j.entries(ctx, tenant, runID, 0, seq)
	if err != nil || len(entries) == 0 {
		return nil, s, err
	}
	if from := policy.OriginOf(entries[0]); from != nil {
		var past run.AgentState
		if left, past, err = j.departed(ctx, tenant, from.Run, from.Seq); err != nil {
			return nil, s, err
		}
		s = run.Seed(past)
	}
	for _, e := range entries {
		var gone []run.Spoken
		if gone, s, err = policy.Departed(s, e); err != nil {
			return nil, s, err
		}
		left = append(left, gone...)
	}
	return left, s, nil
}
