package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/run"
)

// Step is one step of a plan. The zero value is not valid.
type Step struct {
	Number      int    `json:"number"` // from 1, rising: what other steps call it
	Description string `json:"description"`
	// Server is whose tools are likely to be needed: what stands before the first dot of their names; "" = not said.
	Server string          `json:"server,omitempty"`
	Hints  json.RawMessage `json:"hints,omitempty"` // arguments that the planner suggests, an object; nil = none
}

// StepState is a step and what has become of it. The run's memory of its plan is a list of them (run.Plan.Memory).
type StepState struct {
	Step
	Tries  int      `json:"tries,omitempty"`  // replies without a call to it
	Failed bool     `json:"failed,omitempty"` // no call came of it
	Call   run.Call `json:"-"`                // as it is now; the zero Call = it has none yet
	Done   bool     `json:"-"`                // it failed, or its call has ended
	Now    bool     `json:"-"`                // it is being carried out
}

// Memory are the steps that a fact of a plan brings; none where it brings none.
func Memory(raw json.RawMessage) (steps []StepState, err error) {
	if raw == nil {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &steps); err != nil {
		return nil, fmt.Errorf("read the memory of a plan: %w", err)
	}
	return steps, nil
}

// Steps are the steps of the run's plan with what has become of them.
func Steps(s *run.AgentState) ([]StepState, error) {
	steps, err := Memory(s.Plan.Memory)
	if err != nil {
		return nil, err
	}
	for i := range steps {
		st := &steps[i]
		st.Done = st.Failed
		if u := slices.IndexFunc(s.Plan.Uses, func(u run.PlanUse) bool { return u.Step == st.Number }); u >= 0 {
			c, ok := s.Call(s.Plan.Uses[u].ID)
			st.Call, st.Call.ID, st.Done = c, s.Plan.Uses[u].ID, ok && !c.Open()
		}
	}
	at := next(steps)
	switch {
	case s.Plan.Stage == run.PlanSteps && at == len(steps), s.Plan.Stage == run.PlanAgain && len(steps) == 0:
		return nil, errors.New("read the memory of a plan: the step that is next is missing")
	case !s.Plan.Working():
	case at > 0 && !steps[at-1].Done:
		steps[at-1].Now = true
	case at < len(steps):
		steps[at].Now = true
	}
	return steps, nil
}

// known are the steps of the run's plan, for a run whose memory Steps has read before.
func known(s *run.AgentState) []StepState {
	steps, _ := Steps(s)
	return steps
}

// remember is the steps as they are stored.
func remember(steps ...StepState) json.RawMessage {
	raw, err := run.MarshalVerbatim(steps)
	if err != nil { // hints are JSON (stepsPlan); a plan without its memory is an error of Steps
		return nil
	}
	return raw
}

// next is the place of the step that is to be carried out next; as many as there are steps once none is.
func next(steps []StepState) int {
	i := slices.IndexFunc(steps, func(s StepState) bool { return s.Call.ID == "" && !s.Failed })
	if i < 0 {
		return len(steps)
	}
	return i
}
