package hook_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/run"
)

// effects are the methods with which a plugin decides something; every other method of a phase's type only looks.
var effects = []string{
	"AddMessage", "AddReminder", "AddSession", "AddSystem", "Allow", "Block", "End", "Exclude", "IncludeOnly", "Patch", "SetResult", "Stop", "Suspend", "Transform",
}

// looks are those others.
var looks = []string{"Agent", "Call", "Failure", "Granted", "Resumed", "Run", "Tool", "Value"}

// allowed is the table of docs/presets.md, section 10: what a plugin may do in each phase.
var allowed = map[run.Phase][]string{
	run.PhaseRunStart:        {"Patch"},
	run.PhaseStepStart:       {"Patch"},
	run.PhaseBeforeInference: {"AddSession", "AddSystem", "End", "Exclude", "IncludeOnly", "Patch", "Stop", "Transform"},
	run.PhaseAfterInference:  {"End", "Patch", "Stop"},
	run.PhaseStepEnd:         {"Patch"},
	run.PhaseBeforeTool:      {"Allow", "Block", "Patch", "SetResult", "Suspend"},
	run.PhaseAfterTool:       {"AddMessage", "AddReminder", "Patch"},
	run.PhaseRunEnd:          {"Patch"},
}

// fields are the functions of a Plugin by phase.
var fields = map[run.Phase]string{
	run.PhaseRunStart: "RunStart", run.PhaseStepStart: "StepStart", run.PhaseBeforeInference: "BeforeInference", run.PhaseAfterInference: "AfterInference",
	run.PhaseStepEnd: "StepEnd", run.PhaseBeforeTool: "BeforeTool", run.PhaseAfterTool: "AfterTool", run.PhaseRunEnd: "RunEnd",
}

// Every phase's type has the effects that the phase allows and no other, and nothing in it can be set from outside.
func TestPhasesOfferWhatTheyAllow(t *testing.T) {
	plugin := reflect.TypeFor[hook.Plugin]()
	require.Equal(t, len(run.Phases()), plugin.NumField())
	for _, phase := range run.Phases() {
		f, ok := plugin.FieldByName(fields[phase])
		require.True(t, ok, phase)
		moment := f.Type.In(1)
		var offers []string
		for i := range moment.NumMethod() {
			name := moment.Method(i).Name
			if !slices.Contains(looks, name) {
				require.Contains(t, effects, name, "is %s an effect?", name)
				offers = append(offers, name)
			}
		}
		require.Equal(t, allowed[phase], offers, "%s", phase)
		for i := range moment.Elem().NumField() {
			field := moment.Elem().Field(i)
			require.True(t, !field.IsExported() || field.Anonymous, "%s.%s", moment, field.Name)
		}
	}
}
