package hook_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/run"
)

// looks are the methods that decide nothing; every other one of a phase's type is an effect.
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

// Every phase's type has the effects that the phase allows and no other, and nothing in it can be set from outside.
func TestPhasesOfferWhatTheyAllow(t *testing.T) {
	plugin := reflect.TypeFor[hook.Plugin]()
	require.Equal(t, len(run.Phases()), plugin.NumField())
	for i, phase := range run.Phases() {
		moment := plugin.Field(i).Type.In(1)
		var offers []string
		for i := range moment.NumMethod() {
			name := moment.Method(i).Name
			if !slices.Contains(looks, name) {
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
