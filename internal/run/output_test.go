package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
)

func TestVerdictsThatContradictTheReply(t *testing.T) {
	c := &run.Correction{Lifecycle: run.LifecycleOutputError, Text: "no"}
	for want, e := range map[string]run.Replied{
		"a reply with calls is neither":           {Summary: true, Calls: called(1, "a").Calls},
		"neither a summary nor refused":           {Correction: c, Calls: called(1, "a").Calls},
		"only an empty summary has a text":        {Static: "x"},
		"that stands for it":                      {Static: "x", Summary: true, Correction: &run.Correction{Text: "no"}},
		"a refused summary only why":              {Summary: true, Correction: c},
		"a refused reply says why and when":       {Correction: &run.Correction{Text: "no"}},
		"says why and when the model is told":     {Correction: &run.Correction{Lifecycle: run.LifecycleOutputError}},
		"and when the model is told, a refused s": {Summary: true, Correction: &run.Correction{}},
	} {
		s := started(t)
		e.Inference = 1
		n, err := run.Apply(s, e)
		require.ErrorContains(t, err, want)
		require.Equal(t, exact(t, s), exact(t, n))
	}
}
