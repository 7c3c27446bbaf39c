package prompt_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

func named(names ...string) []agent.ToolSpec {
	return run.Map(names, func(n string) agent.ToolSpec { return agent.ToolSpec{Name: n} })
}

func TestNarrow(t *testing.T) {
	tools := named("a.x", "a.y", "b.x", "c", "b.z")
	for name, c := range map[string]struct {
		similarity []float64
		server     string
		k          int
		want       []string
	}{
		"the most similar":           {[]float64{1, 5, 2, 4, 3}, "", 2, []string{"a.y", "c"}},
		"of equal ones the first":    {[]float64{1, 1, 1, 1, 1}, "", 2, []string{"a.x", "a.y"}},
		"the server's first":         {[]float64{9, 1, 8, 7, 0}, "b", 3, []string{"a.x", "b.x", "b.z"}},
		"all of the server's":        {[]float64{9, 1, 8, 7, 0}, "b", 1, []string{"b.x", "b.z"}},
		"a server nobody has":        {[]float64{9, 1, 8, 7, 0}, "d", 1, []string{"a.x"}},
		"no more than there are":     {[]float64{9, 1, 8, 7, 0}, "", 9, []string{"a.x", "a.y", "b.x", "c", "b.z"}},
		"one below zero is still in": {[]float64{-9, -1, -8, -7, -5}, "", 1, []string{"a.y"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, prompt.Narrow(tools, c.similarity, c.server, c.k)) })
	}
	require.Equal(t, []string{}, prompt.Narrow(nil, nil, "a", 3))
}

func TestBM25(t *testing.T) {
	texts := []string{
		"files.readFile: Read a file of the desktop", "mail.send_message: Send a mail to somebody", "calendar.HTTPSync: Fetch appointments", "x: ",
	}
	best := func(query string) int {
		scores := prompt.BM25(texts, query)
		require.Equal(t, scores, prompt.BM25(texts, query))
		top := 0
		for i, s := range scores {
			if s > scores[top] {
				top = i
			}
		}
		if scores[top] == 0 {
			return -1
		}
		return top
	}
	for query, want := range map[string]int{
		"reading the files": 0, "mail this": 1, "the message": 1, "http": 2, "an appointment": 2, "SENDS": 1, "nothing fits": -1, "": -1, "readfile": 0, "x": 3,
	} {
		require.Equal(t, want, best(query), query)
	}
	require.Empty(t, prompt.BM25(nil, "a"))
	scores := prompt.BM25([]string{"rare word", "word", "word more of it and more"}, "word rare")
	require.Greater(t, scores[0], scores[1])
	require.Greater(t, scores[1], scores[2], "a short text weighs more than a long one")
}
