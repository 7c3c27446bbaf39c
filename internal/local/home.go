package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store/bolt"
)

// Tenant is the tenant of everything on a laptop.
const Tenant = "default"

// warmRuns is how many runs' folded states a laptop keeps.
const warmRuns = 256

// ErrInUse says that another process has the store; its socket serves what it holds.
var ErrInUse = errors.New("another process has the store open")

// Options of Open. Sink, Watch, Trouble, Busy, Remotes, Trusts, Functions, Callbacks, Embedder and Notify may be nil,
// everything else is required.
type Options struct {
	Dir      string
	Registry *registry.Registry
	Model    func(agent.ModelSpec) (runtime.Model, error) // makes a provider's adapter; called once for each distinct spec
	Sink     runtime.EventSink
	Watch    *lambdafn.Observer               // of runs; nil = nobody watches them
	Trouble  func(function string, err error) // see Config

	Busy  func(run string, err error, again time.Duration) // see Config
	Clock clock.Clock

	Remotes   runtime.Remotes // see Config
	Trusts    func(agent, server string)
	Functions runtime.Functions // see Config
	Callbacks runtime.Callbacks // see Config
	Embedder  runtime.Embedder  // see Config
	People    person.Directory  // see Config
	Notify    *notify.Notifier  // see Config
}

// Home is an opened store directory with its engine. It is a development tool: production is Step Functions, Lambda and
// DynamoDB.
type Home struct {
	*Machine
	Dir   string
	table *bolt.Table
}

// Open opens or makes the store directory. It starts nothing: see Machine.Resume. ErrInUse where another process has
// it.
func Open(o Options) (*Home, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Dir, err)
	}
	t, err := OpenTable(o.Dir)
	if err != nil {
		return nil, err
	}
	m, err := o.machine(t)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return &Home{Machine: m, Dir: o.Dir, table: t}, nil
}

// tableFile is the file of a store directory's table, made before anything else.
const tableFile = "store.db"

// OpenTable opens the table of a store directory, or makes it. ErrInUse where another process has it. An empty file is
// one that is about to be made; but beside what only an opened store has, it is what is left of that store, which is
// not begun anew.
func OpenTable(dir string) (*bolt.Table, error) {
	file := filepath.Join(dir, tableFile)
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		for _, beside := range []string{"blobs", "token"} {
			if _, err := os.Lstat(filepath.Join(dir, beside)); err == nil {
				return nil, fmt.Errorf("open store %s: the file is empty, and beside it there is %s of an earlier store: bring %s back from a copy, "+
					"or move the folder away and begin anew: %w", file, beside, tableFile, bolt.ErrDamaged)
			}
		}
	}
	t, err := bolt.Open(file, bolt.Options{})
	if errors.Is(err, bolt.ErrLocked) {
		return nil, fmt.Errorf("open store %s: %w", dir, ErrInUse)
	}
	return t, err
}

func (o Options) machine(t *bolt.Table) (*Machine, error) {
	blobs, err := bolt.OpenFolder(filepath.Join(o.Dir, "blobs"))
	if err != nil {
		return nil, err
	}
	executions := NewExecutions(t)
	models := newModels(withBlobs(o.Model, blobs))
	return New(Config{
		Busy: o.Busy, Reaps: true, Wrap: models.resetScripts,
		Table: t, Blobs: blobs, Model: models, Tools: o.Registry.Tools(), Hooks: o.Registry.Hooks(), Agents: o.Registry.Agent,
		Clock: o.Clock, IDs: ids.System(o.Clock), Executions: executions, Sink: o.Sink, Watch: o.Watch, Trouble: o.Trouble, Warm: warmRuns,
		Remotes: o.Remotes, Trusts: o.Trusts, Functions: o.Functions, Callbacks: o.Callbacks, Embedder: o.Embedder, People: o.People, Notify: o.Notify,
		LeavesUnknown: true,
	})
}

// Socket is the path of the Unix socket on which whoever has the store serves it.
func (h *Home) Socket() string { return SocketPath(h.Dir) }

// SocketPath is the path of a store directory's socket.
func SocketPath(dir string) string { return filepath.Join(dir, "engine.sock") }

// Close ends what runs at a safe point and closes the store. Runs go on when it is opened again.
func (h *Home) Close() error {
	ended := h.Machine.Close()
	return errors.Join(ended, h.table.Close())
}
