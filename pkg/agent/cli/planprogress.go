package cli

import (
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/plan"
	"github.com/countersign/countersign/internal/run"
)

// printPlan tells how far a run has come with its plan.
func (pr *progress) printPlan(fact run.PlanEvent) {
	f := fact.Fact()
	steps, err := plan.Memory(f.Memory)
	if err != nil {
		pr.print("plan", "%v", err)
	}
	switch {
	case f.Why != "":
		pr.print("plan", "left to the loop: %s", f.Why)
	case f.Call != nil:
		pr.tools[f.Call.ID] = f.Call.Name
		if f.Call.Tool != "" {
			pr.tools[f.Call.ID] = f.Call.Tool
		}
		pr.print("step", "%d: %s %s", f.Step, pr.callLabel(f.Call.ID), truncate(pr.maskInput(f.Call.Name, f.Call.Input), maxTextWidth))
	}
	for _, s := range steps {
		switch {
		case f.Step == 0:
			pr.print("plan", "%d: %s", s.Number, truncate(mask.Text(s.Description), maxTextWidth))
		case f.Step == s.Number && s.Failed:
			pr.print("step", "%d: no tool was called", f.Step)
		}
	}
}
