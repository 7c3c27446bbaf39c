package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Notes are asked for under a number of their own, behind the replies that a plan has had, and what their model thinks is no part of them.
func TestNotesBesideAPlanAndInTags(t *testing.T) {
	d := Definition{Model: ModelSpec{Dialect: DialectXML}, Context: Context{SummaryBy: SummaryModel, Summary: 50}}
	s, err := Apply(AgentState{}, RunStarted{Tenant: "default", Run: "r", Owner: "r-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"a"}}}})
	require.NoError(t, err)
	s.Inferences, s.Plan.Replies = 1, 3
	r, owed := SummaryRequest(&d, &s, Evicted{Total: 1, Summary: "- user: a"})
	require.True(t, owed)
	require.Equal(t, int64(5), r.Inference)
	e := Summarised(&d, Evicted{Total: 1, Summary: "- user: a"}, Reply{Text: "<thinking>hm</thinking>A was said."}, 1)
	require.Equal(t, "A was said.", e.Summary)
	e = Summarised(&d, Evicted{Total: 1, Summary: "- user: a"}, Reply{Text: "<thinking>hm</thinking>"}, 1)
	require.Equal(t, "- user: a", e.Summary)
}
