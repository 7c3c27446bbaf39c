package proof

// These tests are of long runs, large conversations and crowds of them (docs/reliability.md): what a step costs is
// bounded by the context window and never by the age of the run; a run hands over to execution after execution, each
// once; a parked run costs little; and of ten thousand requests, decided by fifty people at once, each is decided once.
//
// They assert counts, never times. `go test` runs each of them small; `make long` runs them whole (COUNTERSIGN_LONG=1).

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/store/dynamo"
	"github.com/countersign/countersign/internal/tool"
)

func TestMain(m *testing.M) { standins.MainWithDynamoDB(m) }

// whole is the variable that asks for the whole sizes: make long sets it.
const whole = "COUNTERSIGN_LONG"

// sized is the small size of a test, and under make long its whole one.
func sized(small, large int) int {
	if os.Getenv(whole) != "" {
		return large
	}
	return small
}

// onlyWhole skips what has no small size.
func onlyWhole(t *testing.T) {
	t.Helper()
	if os.Getenv(whole) == "" {
		t.Skip("only under make long (" + whole + "=1)")
	}
}

// stores are where a lab's run may live.
var stores = map[string]func(t *testing.T) store.Table{
	"memory": func(*testing.T) store.Table { return store.NewMemory() },
	"bolt": func(t *testing.T) store.Table {
		t.Helper()
		db, err := bolt.Open(filepath.Join(t.TempDir(), "store.db"), bolt.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	},
	"dynamo": func(t *testing.T) store.Table {
		t.Helper()
		cfg := standins.DynamoDBConfig(t)
		return dynamo.New(cfg, standins.DynamoDBTable(t, cfg, dynamo.IndexName), clock.NewIDs(clock.System()).Key)
	},
}

// setup is what a lab is made of. The zero value of what is optional is the usual.
type setup struct {
	table  store.Table // required
	model  runtime.Model
	result func(c tool.Call) string // of the tools; nil = about 2 KB
	define func(d *agent.Definition)
	warm   int
	sink   runtime.EventSink
}

// lab is the whole product in one process over a table that counts.
type lab struct {
	*local.Machine
	def   *agent.Definition
	table *fault.Table
	items *witness
	blobs store.Blobs
	ended *tally
}

func newLab(t *testing.T, s setup) *lab {
	t.Helper()
	l := &lab{items: &witness{Table: s.table, largest: map[string]int{}, tokens: map[string]bool{}}, ended: &tally{
		parked: map[string]bool{}, done: map[string]run.Reason{}, entered: map[string]int{}, closed: map[string]asl.Record{}, moved: make(chan struct{}, 1),
	}}
	l.items.tally = l.ended
	l.table = fault.NewTable(l.items)
	l.blobs = store.NewMemoryBlobs()
	set, err := tool.NewSet(Workload(func(c tool.Call) string {
		l.ended.enter(c.Key)
		if s.result == nil {
			return ToolResult
		}
		return s.result(c)
	})...)
	require.NoError(t, err)
	l.def, err = WorkAgent("long", 1_000_000)
	require.NoError(t, err)
	l.def.Guards = agent.Guards{}
	if s.define != nil {
		s.define(l.def)
	}
	require.NoError(t, l.def.Check())
	hear := runtime.Sinks{l.ended}
	if s.sink != nil {
		hear = append(hear, s.sink)
	}
	l.Machine, err = local.New(local.Config{
		Table: l.table, Blobs: l.blobs, Model: s.model, Tools: set, Agents: func(string) (*agent.Definition, bool) { return l.def, true },
		Clock: clock.System(), IDs: clock.NewIDs(clock.System()), Executions: executions{local.NewExecutions(l.table), l.ended}, Sink: hear, Warm: s.warm,
		Trouble: func(function string, err error) { l.ended.trouble(fmt.Errorf("%s: %w", function, err)) },
	})
	require.NoError(t, err)
	return l
}

func (l *lab) start(t *testing.T, key string) run.AgentState {
	t.Helper()
	s, err := l.Starter.Start(t.Context(), StartWork(l.def, key))
	require.NoError(t, err)
	return s
}

// state is the run as its journal says.
func (l *lab) state(t *testing.T, run string) run.AgentState {
	t.Helper()
	got, err := l.Ports.Journal.Load(t.Context(), local.Tenant, run)
	require.NoError(t, err)
	return got.State
}

// tally counts what became of runs, and what tools did.
type tally struct {
	mu       sync.Mutex
	parked   map[string]bool
	done     map[string]run.Reason
	entered  map[string]int // by idempotency key: run/call
	twice    []string
	closed   map[string]asl.Record
	problems []error
	moved    chan struct{} // sticky
}

func (y *tally) Committed(_ context.Context, _ run.Entry, s *run.AgentState) {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch s.Status {
	case run.RunDone:
		if _, again := y.done[s.Run]; again {
			y.twice = append(y.twice, s.Run)
		}
		y.done[s.Run] = s.Reason
	case run.RunWaiting:
		y.parked[s.Run] = true
	default:
		return
	}
	y.tell()
}

func (y *tally) tell() {
	select {
	case y.moved <- struct{}{}:
	default:
	}
}

func (y *tally) trouble(err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.problems = append(y.problems, err)
}

func (y *tally) enter(key string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.entered[key]++
}

// until waits until something is reached.
func (y *tally) until(t *testing.T, reached func() bool) {
	t.Helper()
	for {
		y.mu.Lock()
		ok, problems := reached(), errors.Join(y.problems...)
		y.mu.Unlock()
		require.NoError(t, problems)
		if ok {
			return
		}
		select {
		case <-y.moved:
		case <-t.Context().Done():
			require.NoError(t, t.Context().Err())
		}
	}
}

// untilEnded waits until so many runs have ended, and so many executions.
func (y *tally) untilEnded(t *testing.T, runs, executions int) {
	t.Helper()
	y.until(t, func() bool { return len(y.done) >= runs && len(y.closed) >= executions })
}

// untilOver waits until a run and all of its executions have ended, and ends the engine.
func (l *lab) untilOver(t *testing.T, runID string) run.AgentState {
	t.Helper()
	l.ended.untilEnded(t, 1, 1)
	s := l.state(t, runID)
	l.ended.untilEnded(t, 1, int(s.Generation)+1)
	require.NoError(t, l.Engine.Close())
	return s
}

// executions tell the tally of those that have ended.
type executions struct {
	asl.Store
	tally *tally
}

func (x executions) Save(ctx context.Context, r asl.Record) error {
	err := x.Store.Save(ctx, r)
	if err == nil && r.Status.Terminal() {
		x.tally.mu.Lock()
		defer x.tally.mu.Unlock()
		x.tally.closed[r.Name] = r
		x.tally.tell()
	}
	return err
}

// witness sees what is written: the largest item of each kind, and every key of a journal's entry at most once.
type witness struct {
	store.Table
	mu      sync.Mutex
	largest map[string]int  // bytes, by kind
	pages   int             // the most items that one query gave
	tokens  map[string]bool // runs that have stored one
	tally   *tally
}

// kind is what an item is, by the beginning of its keys.
func kind(k store.Key) string {
	if strings.HasPrefix(k.PK, "X#") {
		return "execution"
	}
	if strings.Contains(k.PK, "#APPROVAL#") {
		return "approval"
	}
	sk, _, _ := strings.Cut(k.SK, "#")
	return sk
}

func (w *witness) Query(ctx context.Context, r store.Range) (store.Page, error) {
	p, err := w.Table.Query(ctx, r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages = max(w.pages, len(p.Items))
	return p, err
}

func (w *witness) Write(ctx context.Context, ops ...store.Op) error {
	w.mu.Lock()
	for _, op := range ops {
		w.largest[kind(op.Item.Key)] = max(w.largest[kind(op.Item.Key)], store.Size(op.Item))
	}
	w.mu.Unlock()
	if err := w.Table.Write(ctx, ops...); err != nil {
		return err
	}
	if it := ops[0].Item; ops[0].Kind == store.Update && it.SK == "HEAD" && it.Attrs["token"].String() != "" {
		w.mu.Lock()
		w.tokens[it.PK] = true
		w.mu.Unlock()
		w.tally.tell()
	}
	return nil
}

// stored is how many runs have stored a token.
func (w *witness) stored() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tokens)
}

func (w *witness) size(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.largest[kind]
}
