package hook_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
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

// A plugin with an effect that its phase does not allow does not compile.
func TestForbiddenEffectsDoNotCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles")
	}
	calls := map[string]string{
		"AddMessage": `AddMessage("")`, "AddReminder": `AddReminder("")`, "AddSession": `AddSession("")`, "AddSystem": `AddSystem("")`, "Allow": `Allow()`, "Block": `Block("")`,
		"End": `End()`, "Exclude": `Exclude("")`, "IncludeOnly": `IncludeOnly("")`, "Patch": `Patch("", 1)`, "SetResult": `SetResult(agent.ToolResultData{})`,
		"Stop": `Stop("")`, "Suspend": `Suspend(run.Ticket{})`, "Transform": `Transform(nil)`,
	}
	require.Len(t, calls, len(effects))
	var source strings.Builder
	source.WriteString("package forbidden\n\nimport (\n\t\"context\"\n\t\"github.com/countersign/countersign/internal/agent\"\n" +
		"\t\"github.com/countersign/countersign/internal/hook\"\n\t\"github.com/countersign/countersign/internal/run\"\n)\n\n" +
		"var (\n\t_ agent.ToolResultData\n\t_ run.Ticket\n)\n")
	wrong := map[int]string{}
	line := strings.Count(source.String(), "\n")
	for _, phase := range run.Phases() {
		f, _ := reflect.TypeFor[hook.Plugin]().FieldByName(fields[phase])
		for _, effect := range effects {
			line++
			fmt.Fprintf(&source, "var _ = hook.Plugin{%s: func(_ context.Context, m %s) error { m.%s; return nil }}\n", fields[phase], f.Type.In(1), calls[effect])
			if !slices.Contains(allowed[phase], effect) {
				wrong[line] = fmt.Sprintf("%s in %s", effect, phase)
			}
		}
	}
	dir, err := os.MkdirTemp(".", "_forbidden-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "forbidden.go"), []byte(source.String()), 0o600))
	out, err := exec.Command("go", "build", "-gcflags=-e", "./"+dir).CombinedOutput()
	require.Error(t, err)
	for n := range strings.Count(source.String(), "\n") {
		refused := strings.Contains(string(out), fmt.Sprintf("forbidden.go:%d:", n+1))
		_, want := wrong[n+1]
		require.Equal(t, want, refused, "line %d, %s\n%s", n+1, wrong[n+1], out)
	}
	require.NotEmpty(t, wrong)
}
