package local

import (
	"context"
	"fmt"

	"github.com/countersign/countersign/internal/approval"
)

// canCarryOut refuses a decision about a call whose tool this process does not have: nobody here could carry it out. A
// definition that cannot be read says nothing about tools; the step that follows the decision reports it. It is
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
		if missing := m.Ports.Missing(def, name); missing != "" {
			return fmt.Errorf("approval %s of run %s is left pending: tool %s: %w", a.ID, a.Run, missing, approval.ErrNotLinked)
		}
	}
	return nil
}
