package lambdafn

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign"
)

// machineState is a state of the state machine, as far as errors go.
type machineState struct {
	Type     string
	Resource string
	Retry    []struct{ ErrorEquals []string }
	Catch    []struct {
		ErrorEquals []string
		Next        string
	}
}

func states(t *testing.T) map[string]machineState {
	t.Helper()
	var m struct{ States map[string]machineState }
	require.NoError(t, json.Unmarshal(countersign.StateMachine, &m))
	return m.States
}

// The kinds that pass by themselves are those that the state machine's functions are retried for, no more and no fewer.
func TestRetriedKindsAreTheStateMachines(t *testing.T) {
	functions := 0
	for name, s := range states(t) {
		if !strings.Contains(s.Resource, "lambda:invoke") {
			continue
		}
		functions++
		named := map[Kind]bool{}
		for _, r := range s.Retry {
			for _, e := range r.ErrorEquals {
				if strings.HasPrefix(e, "Countersign.") {
					named[Kind(e)] = true
				}
			}
		}
		want := retried
		if name == "Step" {
			want = append(slices.Clone(retried), KindTooManyRuns)
		}
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(named)), "state %s", name)
	}
	require.Equal(t, 4, functions, "Step, Tools, Approve, RecordFailure")
}

// No error, retried in vain or not retried at all, leaves an execution without its end on record.
func TestEveryTaskCatchesEverything(t *testing.T) {
	for name, s := range states(t) {
		if s.Type != "Task" {
			continue
		}
		last := s.Catch[len(s.Catch)-1]
		require.Equal(t, []string{"States.ALL"}, last.ErrorEquals, name)
		want := "RecordFailure"
		if name == want {
			want = "Failed"
		}
		require.Equal(t, want, last.Next, name)
	}
}
