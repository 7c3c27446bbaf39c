package cli

import (
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/plan"
	"github.com/countersign/countersign/internal/run"
)

// plan tells how far a run has come with its plan.
func (pr *progress) plan(fact run.PlanEvent) {
	f := fact.Fact()
	steps, err := plan.Memory(f.Memory)
	if err != nil {
		pr.tell("plan", "%v", err)
	}
	switch {
	case f.Why != "":
		pr.tell("plan", "left to the loop: %s", f.Why)
	case f.Call != nil:
		pr.tools[f.Call.ID] = f.Call.Name
		if f.Call.Tool != "" {
			pr.tools[f.Call.ID] = f.Call.Tool
		}
		pr.tell("step", "%d: %s %s", f.Step, pr.call(f.Call.ID), cut(pr.input(f.Call.Name, f.Call.Input), width))
	}
	for _, s := range steps {
		switch {
		case f.Step == 0:
			pr.tell("plan", "%d: %s", s.Number, cut(mask.Text(s.Description), width))
		case f.Step == s.Number && s.Failed:
			pr.tell("step", "%d: no tool was called", f.Step)
		}
	}
}
