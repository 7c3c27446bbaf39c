// Package agenttest plays scenarios as Go tests. A scenario is a txtar archive: an agent, what its model and its people
// say, and what must come of it. docs/scenarios.md describes the format, and `countersign test` plays the same files.
//
//	func TestScenarios(t *testing.T) {
//		agenttest.Scenarios(t, agents.Registry(), "*/scenarios/*.txtar")
//	}
//
// [Scenario] plays one that a test has written.
package agenttest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	core "github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/scenario"
	"github.com/countersign/countersign/pkg/agent"
)

// Scenarios plays the files that pattern matches (see filepath.Match), each as a subtest by [Scenario]. A pattern that
// matches nothing fails the test, and so does an agent of the registry that [agent.Registry.Check] refuses.
func Scenarios(t *testing.T, r *agent.Registry, pattern string) {
	t.Helper()
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("scenarios %s: no such files (%v)", pattern, err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			Scenario(t, r, file, data)
		})
	}
}

// Scenario plays an archive: as written, and again with a crash at four of its I/O points; with
// COUNTERSIGN_CRASHES=all at every one. The model is the scenario's script and tools give the scenario's results, so
// nothing real happens. An agent of the scenario that the registry has by that name must be the same but for its model
// and mcp.lock, in whose place the scenario's servers stand. name stands for the archive's file in messages.
func Scenario(t *testing.T, r *agent.Registry, name string, archive []byte) {
	t.Helper()
	s, err := scenario.LoadWithOptions(name, archive, r.Options())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range s.Agents() {
		requireRegistered(t, r, d)
	}
	result := s.Crash(scenario.CrashesInTests(4))
	for _, f := range result.Plain.Failures {
		t.Errorf("%v", f)
	}
	for _, f := range result.Failures {
		t.Errorf("%v", f)
	}
	if !t.Failed() && result.Points == 0 {
		t.Error("the scenario does no I/O: nothing was tested")
	}
}

// requireRegistered compares a scenario's agent with the registered one of its name.
func requireRegistered(t *testing.T, r *agent.Registry, d core.Definition) {
	t.Helper()
	registered, ok := r.Agent(d.Name)
	if !ok {
		return
	}
	d.Model, d.HooksVersion = registered.Model, registered.HooksVersion
	d.MCP = slices.Clone(d.MCP)
	for i := range min(len(d.MCP), len(registered.MCP)) {
		d.MCP[i].Locked = registered.MCP[i].Locked
	}
	want, err := json.Marshal(registered)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("agent %s of the scenario is not the registered one:\n got %s\nwant %s", d.Name, got, want)
	}
}
