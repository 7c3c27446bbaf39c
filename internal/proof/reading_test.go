package proof

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// TestReadingAnOldRun: what people ask of a run of many iterations, by a process that has not seen it before. Lists and events are read by pages,
// however old the run is; what needs its state folds it whole, once for a process that keeps it.
func TestReadingAnOldRun(t *testing.T) {
	n := sized(400, 10_000)
	l := newLab(t, setup{table: stores["memory"](t), model: WorkModel{N: n, Tool: "work_read"}, define: small, warm: 1})
	run := l.start(t, "old").Run
	s := l.untilOver(t, run)
	for _, c := range []struct {
		path   string
		stream bool
		most   int64 // items read; 0 = as many as the run has
	}{
		{path: "/v1/runs?limit=50", most: 50},
		{path: "/v1/runs/" + run + "/events?limit=50", most: 60},
		{path: "/v1/runs/" + run + "/events?limit=50&cursor=300", most: 60},
		{path: "/v1/runs/" + run + "/events?cursor=" + strconv.FormatInt(s.Seq()-3, 10), stream: true, most: 10},
		{path: "/v1/runs/" + run + "?messages=0"},
		{path: "/v1/runs/" + run},
		{path: "/v1/runs/" + run + "/calls?limit=50"},
		{path: "/v1/runs/" + run + "/messages?limit=50"},
	} {
		table := fault.NewTable(l.items.Table) // of a process of its own
		l.get(t, store.NewJournal(table, 1), c.path, c.stream)
		spent := table.Counts()
		most := c.most
		if most == 0 {
			most = 2*s.Entries + 10
		}
		require.LessOrEqual(t, spent.ItemsRead, most, c.path)
	}
	longest := &stretches{Journal: store.NewJournal(l.table, 0)}
	followed := string(l.get(t, longest, "/v1/runs/"+run+"/events", true))
	require.Equal(t, n+1, strings.Count(followed, "event: replied"), "a client that follows gets all of it")
	require.LessOrEqual(t, longest.most, 100, "and no more of it is held at once")
}

// stretches is a journal that knows the most entries that were read at once.
type stretches struct {
	*store.Journal
	most int
}

func (s *stretches) Entries(ctx context.Context, tenant, run string, from int64, count int) ([]run.Entry, error) {
	all, err := s.Journal.Entries(ctx, tenant, run, from, count)
	s.most = max(s.most, len(all))
	return all, err
}
