package scenario

import (
	"context"
	"encoding/json"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// undoAction asks for a call of a run that has ended to be taken back; the run that does is the one that is played from then on. A call that
// that one does not make itself is one of the run before it.
func (s *simulation) undoAction(l line) action {
	of := s.run
	if c, ok := s.loadCall(l.call); s.continues != "" && ok && c.Undoes == "" {
		of = s.continues
	}
	return func(ctx context.Context) error {
		run, _, err := s.machine.Starter.Undo(ctx, runtime.Undo{Tenant: tenant, Run: of, Call: l.call, By: l.by.ID})
		if err == nil {
			s.continues, s.run, s.forkAt = of, run.Run, -1 // it continues that one from its end
		}
		return err
	}
}

// addUndos adds to a run's calls in JSON what would take them back, as the API shows it.
func (sr *scriptedRun) addUndos(ctx context.Context, state *run.AgentState, calls json.RawMessage) (json.RawMessage, error) {
	var shown []map[string]any
	if err := json.Unmarshal(calls, &shown); err != nil {
		return nil, err
	}
	var ids []string
	for _, call := range shown {
		id, _ := call["id"].(string) // the core's own JSON
		ids = append(ids, id)
	}
	ports := runtime.Ports{Journal: sr.sim.journal, Blobs: sr.sim.blobs}
	undos, err := ports.Undos(ctx, state, &sr.scenario.agent, ids)
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
