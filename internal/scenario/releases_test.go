package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/pkg/agent/store"
)

// releases are what earlier releases stored, one folder each, in the order of their release. A file of one is a scenario as it was then, all that its table and blobs
// held when the run was parked for the first and for the last time, and the run as it was at its end.
var releases = filepath.Join("testdata", "releases")

// release is such a file.
type release struct {
	Scenario string            `json:"scenario"`
	Parked   map[string]parked `json:"parked"` // "first", and "last" where there was more than one
	Final    json.RawMessage   `json:"final"`
}

// parked is a store while the run waits.
type parked struct {
	Queue   int               `json:"queue"`   // the lines of people that were still to come
	Moments []int             `json:"moments"` // and those for a moment, by number
	Items   []parkedItem      `json:"items"`
	Blobs   map[string]string `json:"blobs"` // by digest
}

type parkedItem struct {
	PK, SK    string
	Attrs     map[string]parkedValue `json:",omitempty"`
	Body      string                 `json:",omitempty"`
	Index     string                 `json:",omitempty"`
	IndexSort string                 `json:",omitempty"`
}

type parkedValue struct {
	S *string `json:"s,omitempty"`
	N *int64  `json:"n,omitempty"`
}

// put writes the item as it was.
func (i parkedItem) put() store.Op {
	it := store.Item{Key: store.Key{PK: i.PK, SK: i.SK}, Body: []byte(i.Body), Index: i.Index, IndexSort: i.IndexSort}
	if i.Attrs != nil {
		it.Attrs = map[string]store.Value{}
	}
	for k, v := range i.Attrs {
		if it.Attrs[k] = store.Num(0); v.S != nil {
			it.Attrs[k] = store.Str(*v.S)
		} else if v.N != nil {
			it.Attrs[k] = store.Num(*v.N)
		}
	}
	return store.Op{Kind: store.Put, Item: it}
}

// TestParkedRunsOfEveryReleaseGoOn: what an earlier release parked, this code carries on to the end that it had there: the same people say the same, and
// the same facts come of it (R12, invariant 9).
func TestParkedRunsOfEveryReleaseGoOn(t *testing.T) {
	dir := releases
	if other := os.Getenv("COUNTERSIGN_RELEASES"); other != "" {
		dir = other
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		var r release
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &r))
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		for at, p := range r.Parked {
			t.Run(filepath.Base(filepath.Dir(file))+"/"+name+"/"+at, func(t *testing.T) {
				s, err := Load(name+".txtar", []byte(r.Scenario))
				require.NoError(t, err)
				got, failed := carriedOn(t, s, p)
				require.Empty(t, failed)
				var want any
				require.NoError(t, json.Unmarshal(r.Final, &want))
				require.Empty(t, known("", want, got))
			})
		}
	}
}

// carriedOn is the run as it ends that goes on from p, and what of the story was not as it is told; "" = nothing.
func carriedOn(t *testing.T, s *Scenario, p parked) (end any, failed string) {
	t.Helper()
	st, err := newStage(s, Options{})
	require.NoError(t, err)
	p.load(t, st)
	st.cast.queue = st.cast.queue[len(st.cast.queue)-p.Queue:]
	st.cast.moments = slices.DeleteFunc(st.cast.moments, func(l line) bool { return !slices.Contains(p.Moments, l.number) })
	err = st.clock.Run(func() {
		st.open = true
		require.NoError(t, st.machine.Resume(context.Background(), tenant))
		require.NoError(t, st.curtain.Wait(context.Background(), 0))
	})
	require.NoError(t, err)
	for _, f := range st.failures {
		failed += f.String() + "\n"
	}
	l, err := st.record.Load(context.Background(), tenant, st.run)
	require.NoError(t, err)
	raw, err := json.Marshal(l.State)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &end))
	return end, failed
}

// load fills an empty stage with what was stored, and with the executions of then as ones that were stopped: a release loses none.
func (p parked) load(t *testing.T, st *stage) {
	t.Helper()
	for _, i := range p.Items {
		require.NoError(t, st.table.Write(context.Background(), i.put()))
		if owner := i.Attrs["owner"].S; i.SK == "HEAD" && owner != nil {
			was := asl.Record{Name: *owner, Status: asl.Aborted, StartDate: opening, StopDate: opening}
			require.NoError(t, st.machine.Engine.Store.Save(context.Background(), was))
		}
	}
	for digest, body := range p.Blobs {
		require.NoError(t, st.blobs.Put(context.Background(), tenant, digest, []byte(body)))
	}
}

// known says what of want is not so in got, which may have more keys. What lies in time and in how often the run was written to is not compared: it went on at
// another time, by another execution.
func known(at string, want, got any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s: got %v, want an object", at, got)}
		}
		var out []string
		for key, v := range w {
			if !slices.Contains([]string{"seq", "updatedAt", "endedAt", "expires", "since"}, key) {
				out = append(out, known(at+"/"+key, v, g[key])...)
			}
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return []string{fmt.Sprintf("%s: got %v, want %d", at, got, len(w))}
		}
		var out []string
		for i, v := range w {
			out = append(out, known(fmt.Sprintf("%s/%d", at, i), v, g[i])...)
		}
		return out
	default:
		if want != got {
			return []string{fmt.Sprintf("%s: got %v, want %v", at, got, want)}
		}
		return nil
	}
}
