package agents_test

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/scenario"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// Every agent has scenarios beside it, and each of them is about that agent as it is registered: the same definition, but for the model,
// which the scenario is. They hold as they are and with a crash at every call of a port.
func TestScenarios(t *testing.T) {
	about := map[string]int{}
	files, err := filepath.Glob("*/scenarios/*.txtar")
	require.NoError(t, err)
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			s, err := scenario.LoadKnowing(file, data, agents.Registry().Options())
			require.NoError(t, err)
			require.NotEmpty(t, s.Promise)
			of := s.Agent()
			require.Equal(t, filepath.Base(filepath.Dir(filepath.Dir(file))), of.Name)
			about[of.Name]++
			requireRegistered(t, of)
			for _, asked := range asked(t, file, data) {
				requireRegistered(t, asked)
			}
			r := s.Crash(scenario.CrashesInTests())
			require.Empty(t, r.Plain.Failures)
			require.Empty(t, r.Failures)
			require.Positive(t, r.Points)
		})
	}
	for _, name := range agents.Registry().Agents() {
		require.GreaterOrEqual(t, about[name], 3, "%s: want scenarios of what it is for, a denial and a failure", name)
	}
}

// asked are the agents that a scenario has beside its own: agents/NAME/agent.yaml.
func asked(t *testing.T, file string, data []byte) (all []agent.Definition) {
	t.Helper()
	opt := agents.Registry().Options()
	opt.ModelOptional = true
	for _, f := range txtar.Parse(data).Files {
		if ok, _ := path.Match("agents/*/agent.yaml", f.Name); ok {
			d, err := agentfile.Parse(file, f.Data, opt)
			require.NoError(t, err, f.Name)
			all = append(all, d)
		}
	}
	return all
}

// requireRegistered wants a definition to be the registered one of its name.
func requireRegistered(t *testing.T, of agent.Definition) {
	t.Helper()
	registered, ok := agents.Registry().Agent(of.Name)
	require.True(t, ok)
	of.Model, of.HooksVersion = registered.Model, registered.HooksVersion
	want, err := json.Marshal(registered)
	require.NoError(t, err)
	got, err := json.Marshal(of)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got), "agent.yaml is not the agent")
}
