package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/scenario"
)

// TestRegressions runs the shrunk findings of random programs: scenarios whose text has a line "script: " with the
// disturbances, as a failure prints them.
func TestRegressions(t *testing.T) {
	files, err := filepath.Glob("testdata/regressions/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			s, err := scenario.Load(file, data)
			require.NoError(t, err)
			_, line, ok := strings.Cut(s.Description, "\nscript:")
			require.True(t, ok, "the text has a line that begins with script:")
			script, err := parseScript(line)
			require.NoError(t, err)
			r := s.Run(scenario.Options{Faults: script.Faults, Interventions: script.Interventions, InvariantsOnly: true})
			require.Empty(t, r.Failures)
			require.GreaterOrEqual(t, len(r.Calls), script.lastCall(), "every disturbance comes to happen")
			require.Zero(t, r.Ineffective, "and has something to do")
		})
	}
}

// parseScript parses the text of Script.String.
func parseScript(text string) (Script, error) {
	var s Script
	for _, word := range strings.Fields(text) {
		what, at, ok := strings.Cut(word, "@")
		call, more, _ := strings.Cut(at, "/")
		n, err := strconv.Atoi(call)
		if !ok || err != nil {
			return Script{}, fmt.Errorf("got %q, want KIND@CALL, with /MORE or /lost behind it", word)
		}
		switch {
		case slices.Contains(fault.Kinds(), fault.Kind(what)):
			p := fault.Point{Call: n, Kind: fault.Kind(what)}
			if more != "" {
				if p.Param, err = strconv.Atoi(more); err != nil {
					return Script{}, fmt.Errorf("got %q, want a number behind the /", word)
				}
			}
			s = s.withFault(p)
		case slices.Contains(scenario.InterventionKinds(), scenario.InterventionKind(what)):
			s = s.withIntervention(scenario.Intervention{Call: n, Do: scenario.InterventionKind(what), Lost: more == "lost"})
		default:
			return Script{}, fmt.Errorf("got %q, want a kind of fault or of intervention", word)
		}
	}
	return s, nil
}

func TestParseScript(t *testing.T) {
	s := Script{
		Faults:        []fault.Point{{Call: 3, Kind: fault.CrashAfter}, {Call: 9, Kind: fault.Zombie, Param: 2}},
		Interventions: []scenario.Intervention{{Call: 4, Do: scenario.Approve}, {Call: 7, Do: scenario.CancelRun, Lost: true}},
	}
	back, err := parseScript(s.String())
	require.NoError(t, err)
	require.Equal(t, s, back)
	for _, bad := range []string{"F4", "F4@x", "F99@1", "F5@1/x", "sing@1"} {
		_, err := parseScript(bad)
		require.Error(t, err, bad)
	}
}
