package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerdictsThatContradictTheReply(t *testing.T) {
	c := &Correction{Lifecycle: LifecycleOutputError, Text: "no"}
	for want, e := range map[string]Replied{
		"a reply with calls is neither":           {Summary: true, Calls: called(1, "a").Calls},
		"neither a summary nor refused":           {Correction: c, Calls: called(1, "a").Calls},
		"only an empty summary has a text":        {Static: "x"},
		"that stands for it":                      {Static: "x", Summary: true, Correction: &Correction{Text: "no"}},
		"a refused summary only why":              {Summary: true, Correction: c},
		"a refused reply says why and when":       {Correction: &Correction{Text: "no"}},
		"says why and when the model is told":     {Correction: &Correction{Lifecycle: LifecycleOutputError}},
		"and when the model is told, a refused s": {Summary: true, Correction: &Correction{}},
	} {
		s := started(t)
		e.Inference = 1
		n, err := Apply(s, e)
		require.ErrorContains(t, err, want)
		require.Equal(t, exact(t, s), exact(t, n))
	}
}
