package scenario

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
	"github.com/countersign/countersign/pkg/agent/store/memory"
)

// TestRecordARelease writes what TestParkedRunsOfEveryReleaseGoOn reads from then on, of the scenarios that are in the newest release's folder already and of those that are
// named beside it: COUNTERSIGN_RECORD_RELEASE=f-name[,scenario...] go test ./internal/scenario -run TestRecordARelease. What is there stays as it is.
func TestRecordARelease(t *testing.T) {
	name, more, _ := strings.Cut(os.Getenv("COUNTERSIGN_RECORD_RELEASE"), ",")
	if name == "" {
		t.Skip("COUNTERSIGN_RECORD_RELEASE=NAME[,SCENARIO...] records what this code stores as that of a release")
	}
	kept, err := filepath.Glob(filepath.Join(releases, "*", "*.json"))
	require.NoError(t, err)
	newest := filepath.Dir(kept[len(kept)-1])
	var names []string
	for _, file := range kept {
		if filepath.Dir(file) == newest {
			names = append(names, strings.TrimSuffix(filepath.Base(file), ".json"))
		}
	}
	if more != "" {
		names = append(names, strings.Split(more, ",")...)
	}
	dir := filepath.Join(releases, name)
	require.NoError(t, os.Mkdir(dir, 0o755), "a release is recorded once")
	for _, of := range names {
		data, err := os.ReadFile(filepath.Join("..", "..", "scenarios", of+".txtar"))
		if err != nil { // it is told by the former release alone
			data = []byte(former(t, newest, of).Scenario)
		}
		raw, err := agent.MarshalVerbatim(recorded(t, of, data))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, of+".json"), append(raw, '\n'), 0o644))
	}
}

func former(t *testing.T, dir, name string) release {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name+".json"))
	require.NoError(t, err)
	var r release
	require.NoError(t, json.Unmarshal(data, &r))
	return r
}

// recorded is a scenario played to its end, with what was stored whenever its run came to rest.
func recorded(t *testing.T, name string, data []byte) release {
	t.Helper()
	s, err := Load(name+".txtar", data)
	require.NoError(t, err)
	st, err := newStage(s, Options{})
	require.NoError(t, err)
	var all []parked
	waits := int64(0)
	st.clock.SetIdle(func() bool {
		l, err := st.record.Load(context.Background(), tenant, st.run)
		if err == nil && l.State.Status == agent.RunWaiting && l.State.WaitSeq > waits && len(l.Inbox) == 0 {
			waits = l.State.WaitSeq
			all = append(all, st.keep(t))
		}
		return st.cast.idle()
	})
	require.NoError(t, st.clock.Run(st.play))
	require.Empty(t, st.failures, name)
	require.NotEmpty(t, all, "%s: the run never waits", name)
	l, err := st.record.Load(context.Background(), tenant, st.run)
	require.NoError(t, err)
	final, err := json.Marshal(l.State)
	require.NoError(t, err)
	r := release{Scenario: string(data), Parked: map[string]parked{"first": all[0]}, Final: final}
	if len(all) > 1 {
		r.Parked["last"] = all[len(all)-1]
	}
	for at, p := range r.Parked { // canned results are given in the order of executions, and some stories depend on when it is: these cannot be taken up in their middle
		var want any
		require.NoError(t, json.Unmarshal(final, &want))
		if end, failed := carriedOn(t, s, p); failed != "" || len(known("", want, end)) > 0 {
			delete(r.Parked, at)
		}
	}
	require.NotEmpty(t, r.Parked, "%s cannot be taken up", name)
	return r
}

// keep is all that is stored.
func (s *stage) keep(t *testing.T) parked {
	t.Helper()
	p := parked{Queue: len(s.cast.queue), Moments: []int{}, Blobs: map[string]string{}}
	for _, l := range s.cast.moments {
		p.Moments = append(p.Moments, l.number)
	}
	slices.Sort(p.Moments)
	for _, it := range s.table.(*memory.Table).All() {
		p.Items = append(p.Items, kept(it))
	}
	for digest, body := range s.blobs.(*memory.Blobs).All(tenant) {
		p.Blobs[digest] = string(body)
	}
	return p
}

func kept(it store.Item) parkedItem {
	p := parkedItem{PK: it.PK, SK: it.SK, Body: string(it.Body), Index: it.Index, IndexSort: it.IndexSort, Attrs: map[string]parkedValue{}}
	for k, v := range it.Attrs {
		text, n := v.String(), v.Int()
		if p.Attrs[k] = (parkedValue{N: &n}); v.IsString() {
			p.Attrs[k] = parkedValue{S: &text}
		}
	}
	return p
}
