package scenario

import (
	"context"
	"encoding/json"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// undo asks for a call of a run that has ended to be taken back; the run that does is the one that is played from then on. A call that
// that one does not make itself is one of the run before it.
func (s *stage) undo(l line) action {
	of := s.run
	if c, ok := s.called(l.call); s.first != "" && ok && c.Undoes == "" {
		of = s.first
	}
	return func(ctx context.Context) error {
		run, _, err := s.machine.Starter.Undo(ctx, runtime.Undo{Tenant: tenant, Run: of, Call: l.call, By: l.by.ID})
		if err == nil {
			s.first, s.run, s.at = of, run.Run, -1 // it continues that one from its end
		}
		return err
	}
}

// withUndos adds to a run's calls in JSON what would take them back, as the API shows it.
func (p *part) withUndos(ctx context.Context, state *run.AgentState, calls json.RawMessage) (json.RawMessage, error) {
	var shown []map[string]any
	if err := json.Unmarshal(calls, &shown); err != nil {
		return nil, err
	}
	var ids []string
	for _, call := range shown {
		id, _ := call["id"].(string) // the core's own JSON
		ids = append(ids, id)
	}
	ports := runtime.Ports{Journal: p.stage.record, Blobs: p.stage.blobs}
	undos, err := ports.Undos(ctx, state, &p.scenario.agent, ids)
	if err != nil || len(undos) == 0 { // numbers keep their digits
		return calls, err
	}
	for i, id := range ids {
		if u := undos[id]; u != nil {
			shown[i]["undo"] = u
		}
	}
	return run.MarshalVerbatim(shown)
}
