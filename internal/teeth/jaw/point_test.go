package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/scenario"
)

func TestParseWith(t *testing.T) {
	for text, want := range map[string]where{
		"F3@tool.Call":                 {kind: fault.CrashBefore, port: "tool.Call", nth: 1},
		"F4@table.Write ^J#0000000002": {kind: fault.CrashAfter, port: "table.Write", subject: "^J#0000000002", nth: 1},
		"F5/3@table.Write K# #2":       {kind: fault.Zombie, more: 3, port: "table.Write", subject: "K#", nth: 2},
		"F1@model.Generate #2":         {kind: fault.ErrorBefore, port: "model.Generate", nth: 2},
		"message@tool.Call c1":         {deed: scenario.Say, port: "tool.Call", subject: "c1", nth: 1},
		"approve/lost@tool.Call c1":    {deed: scenario.Approve, lost: true, port: "tool.Call", subject: "c1", nth: 1},
	} {
		w, err := parseWith(text)
		require.NoError(t, err)
		require.Equal(t, want, w)
	}
	for _, text := range []string{"", "F3", "F99@tool.Call", "F3@tool.Call c1 #0", "F3@tool.Call c1 #x", "F5/x@tool.Call", "message/3@tool.Call", "sing@tool.Call"} {
		_, err := parseWith(text)
		require.Error(t, err, text)
	}
}

func TestFind(t *testing.T) {
	calls := []fault.Call{
		{Number: 1, Port: "table.Write", What: "J#0+HEAD"}, {Number: 2, Port: "table.Get", What: "HEAD"}, {Number: 3, Port: "table.Write", What: "HEAD"},
	}
	for text, want := range map[string]int{"F3@table.Write HEAD": 1, "F3@table.Write ^HEAD": 3, "F3@table.Write HEAD #2": 3, "F3@table.Get": 2} {
		w, err := parseWith(text)
		require.NoError(t, err)
		c, err := w.find(calls)
		require.NoError(t, err)
		require.Equal(t, want, c.Number, text)
	}
	w, err := parseWith("F3@table.Get HEAD #2")
	require.NoError(t, err)
	_, err = w.find(calls)
	require.ErrorContains(t, err, "the run has 1 calls table.Get HEAD, want at least 2")
}

// TestRun: what is wrong with a scenario is said by the fault that brought it.
func TestRun(t *testing.T) {
	found, err := run("../testdata/teeth-pay.txtar", "F4@tool.Call c1", "")
	require.NoError(t, err)
	require.Empty(t, found)
	found, err = run("../testdata/teeth-pay.txtar", "crash", "")
	require.NoError(t, err)
	require.Empty(t, found)
	_, err = run("../testdata/teeth-pay.txtar", "F4@tool.Call c2", "")
	require.Error(t, err)
	_, err = run("../testdata/none.txtar", "", "")
	require.Error(t, err)
	found, err = run("../testdata/teeth-pay.txtar", "F4@tool.Call c1, message@model.Generate #2", "")
	require.NoError(t, err)
	require.Empty(t, found)
	for _, with := range []string{"approve@tool.Call c1", "message@model.Generate #2, F4@tool.Call c1"} { // nobody is asked; the wrong order
		_, err = run("../testdata/teeth-pay.txtar", with, "")
		require.Error(t, err)
	}
	_, err = run("../testdata/teeth-pay.txtar", "", "F11")
	require.Error(t, err)
}
