package agents_test

import (
	"path/filepath"
	"testing"

	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/agenttest"
)

// Every agent has scenarios beside it: of what it is for, of a denial, and of a failure.
func TestScenarios(t *testing.T) {
	agenttest.Scenarios(t, agents.Registry(), "*/scenarios/*.txtar")
	for _, name := range agents.Registry().Agents() {
		files, err := filepath.Glob(name + "/scenarios/*.txtar")
		if err != nil || len(files) < 3 {
			t.Errorf("%s has %d scenarios (%v), want at least 3", name, len(files), err)
		}
	}
}
