package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
)

// canCarryOut refuses a decision about a call whose tool this process does not have: nobody here could carry it out.
// A definition that cannot be read says nothing about tools; the step that follows the decision reports it. It is
// approval.Desk's Able.
func (m *Machine) canCarryOut(ctx context.Context, a approval.Approval) error {
	l, err := m.Ports.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return err
	}
	def, err := m.Definitions(ctx, a.Tenant, l.State.Definition)
	if err != nil {
		return nil
	}
	for _, name := range a.Tools {
		if missing := m.missing(def, name); missing != "" {
			return fmt.Errorf("approval %s of run %s is left pending: tool %s: %w", a.ID, a.Run, missing, approval.ErrNotLinked)
		}
	}
	return nil
}

// Lacks says which open call keeps this process from carrying a run on, as it does not have the call's tool: an
// approval.ErrNotLinked. Nil = none does. A call that waits for people keeps nobody.
func (m *Machine) Lacks(ctx context.Context, tenant, run string) error {
	l, err := m.Ports.Journal.Load(ctx, tenant, run)
	if err != nil {
		return err
	}
	def, err := m.Definitions(ctx, tenant, l.State.Definition)
	if err != nil {
		return err
	}
	for _, c := range l.State.Calls() {
		if c.Status.Terminal() || c.Status == agent.StatusSuspended {
			continue
		}
		if missing := m.missing(def, c.Tool); missing != "" {
			return fmt.Errorf("run %s is left as it is: tool %s of call %s: %w", run, missing, c.ID, approval.ErrNotLinked)
		}
	}
	return nil
}

// missing is the code that a call of a tool needs and this process does not have: the tool, or the one that its
// precondition reads; "" = it has all of it.
func (m *Machine) missing(def *agent.Definition, name string) string {
	i := slices.IndexFunc(def.Tools, func(t agent.ToolSpec) bool { return t.Name == name })
	if i < 0 { // a server's, or one that the product brings
		return ""
	}
	t := def.Tools[i]
	if _, linked := m.Ports.Tools.Lookup(name); t.Kind == agent.KindInternal && !linked {
		return name
	}
	if t.Precondition != nil {
		return m.missing(def, t.Precondition.Tool)
	}
	return ""
}

// linkedOnly leaves executions as they are whose next round of calls needs code that this process does not have.
func (m *Machine) linkedOnly(next Invoker) Invoker {
	return func(ctx context.Context, function string, payload []byte) ([]byte, error) {
		if function != toolFunction {
			return next(ctx, function, payload)
		}
		var of struct {
			State struct{ Tenant, Run string } `json:"state"`
		}
		if err := json.Unmarshal(payload, &of); err != nil {
			return nil, fmt.Errorf("invoke %s: %w", function, err)
		}
		if err := m.Lacks(ctx, of.State.Tenant, of.State.Run); errors.Is(err, approval.ErrNotLinked) {
			return nil, fmt.Errorf("%w: %w", asl.ErrLeave, err)
		}
		return next(ctx, function, payload)
	}
}
