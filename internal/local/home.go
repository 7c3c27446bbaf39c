package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web"
)

// Tenant is the tenant of everything on a laptop.
const Tenant = "default"

// ErrInUse says that another process has the store; its socket serves what it holds.
var ErrInUse = errors.New("another process has the store open")

// Home is an opened store directory with its engine. It is a development tool: production is Step Functions, Lambda and
// DynamoDB.
type Home struct {
	*Machine
	Dir   string
	table *bolt.Table
}

// Open opens or makes the store directory dir with the tools and the code of r. It starts nothing: see Machine.Resume.
// ErrInUse where another process has it. model makes a provider's adapter, once for each distinct spec. c has the
// rest: only Clock is required, and where Agents is nil, delegated runs are of those of r.
func Open(
	dir string, r *registry.Registry, model func(agent.ModelSpec) (runtime.Model, error), c Config,
) (*Home, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	t, err := OpenTable(dir)
	if err != nil {
		return nil, err
	}
	h := &Home{Dir: dir, table: t}
	blobs, err := bolt.OpenFolder(filepath.Join(dir, "blobs"))
	if err == nil {
		models := newModels(model, blobs)
		c.Table, c.Blobs, c.Executions, c.IDs = t, blobs, NewExecutions(t), clock.NewIDs(c.Clock)
		c.Model, c.Wrap, c.Tools, c.Hooks = models, models.resetScripts, r.Tools(), r.Hooks()
		c.Reaps, c.Warm, c.SharesRuns = true, 256, true
		if c.Agents == nil {
			c.Agents = r.Agent
		}
		h.Machine, err = New(c)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return h, nil
}

const tableFile = "store.db" // of a store directory, made before anything else

// OpenTable opens the table of a store directory, or makes it. ErrInUse where another process has it. An empty file is
// one that is about to be made; but beside what only an opened store has, it is what is left of that store, which is
// not begun anew.
func OpenTable(dir string) (*bolt.Table, error) {
	file := filepath.Join(dir, tableFile)
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		for _, beside := range []string{"blobs", "token"} {
			if _, err := os.Lstat(filepath.Join(dir, beside)); err == nil {
				return nil, fmt.Errorf("open store %s: the file is empty, and beside it there is %s of an earlier store: "+
					"bring %s back from a copy, or move the folder away and begin anew: %w", file, beside, tableFile,
					bolt.ErrDamaged)
			}
		}
	}
	t, err := bolt.Open(file, bolt.Options{})
	if errors.Is(err, bolt.ErrLocked) {
		return nil, fmt.Errorf("open store %s: %w", dir, ErrInUse)
	}
	return t, err
}

// SocketPath returns the path of a store directory's socket.
func SocketPath(dir string) string { return filepath.Join(dir, "engine.sock") }

// Close ends what runs at a safe point and closes the store. Runs go on when it is opened again.
func (h *Home) Close() error { return errors.Join(h.Machine.Close(), h.table.Close()) }

// models routes a request to the adapter of the model it names: every run has its own, pinned with its definition.
type models struct {
	make  func(agent.ModelSpec) (runtime.Model, error)
	blobs store.Blobs
	mu    sync.Mutex
	made  map[string]runtime.Model
}

func newModels(factory func(agent.ModelSpec) (runtime.Model, error), blobs store.Blobs) *models {
	return &models{make: factory, blobs: blobs, made: map[string]runtime.Model{}}
}

// Generate asks the request's own model. One that cannot be made is a failed call that no retry mends.
func (m *models) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	adapter, err := m.adapter(r.Model)
	if err != nil {
		return agent.Reply{}, err
	}
	return adapter.Generate(ctx, r)
}

func (m *models) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	adapter, err := m.adapter(r.Model)
	if err != nil {
		return 0, err
	}
	return runtime.CountWith(ctx, adapter, r)
}

// resetScripts tells scripts that a reply was given up for now, so that they do not fail the same way for ever.
func (m *models) resetScripts(next Invoker) Invoker {
	return func(ctx context.Context, function string, payload []byte) ([]byte, error) {
		out, err := next(ctx, function, payload)
		if errors.Is(err, runtime.ErrModelBusy) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, a := range m.made {
				if s, ok := a.(*script.Model); ok {
					id := RunOf(payload)
					s.GiveUp(id, id)
				}
			}
		}
		return out, err
	}
}

// RunOf returns the run of an event of the state machine; "" = it has none yet.
func RunOf(payload []byte) string {
	var e struct{ State struct{ Run string } }
	if json.Unmarshal(payload, &e) != nil {
		return ""
	}
	return e.State.Run
}

// adapter returns the adapter of a model. Its error is an *agent.ModelError.
func (m *models) adapter(spec agent.ModelSpec) (runtime.Model, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, err := json.Marshal(spec)
	if err != nil {
		err = fmt.Errorf("model %s: %w", spec.ID, err)
	} else if a, ok := m.made[string(key)]; ok {
		return a, nil
	}
	var a runtime.Model
	if err == nil {
		a, err = m.make(spec)
	}
	if err != nil {
		return nil, &agent.ModelError{Class: agent.ModelInvalid, Model: spec.ID, Message: err.Error(), Cause: err}
	}
	if spec.Provider != "script" { // a script's lines are matched against the request as it is
		a = runtime.WithDialect(runtime.WithMedia(a, m.blobs))
	}
	m.made[string(key)] = a
	return a, nil
}

// The secrets of a laptop that turn Slack on, by name. They are read once: Slack's are not replaced while an engine
// runs.
const (
	SlackToken  = "SLACK_BOT_TOKEN"      // xoxb-…; none = there are no messages in Slack
	SlackSecret = "SLACK_SIGNING_SECRET" // several with commas between them; none = no click is taken
)

// Channels returns the channels by which people are notified of requests on a laptop: mails, which are files in the
// store directory, and Slack if its token is among the secrets. Errors name the secret and contain nothing of it.
func Channels(ctx context.Context, dir string, from tool.LocalSecrets, clk clock.Clock) ([]people.Channel, error) {
	all := []people.Channel{people.Outbox{Path: filepath.Join(dir, people.OutboxDir), Clock: clk}}
	token, err := OptionalSecret(ctx, from, SlackToken)
	switch {
	case err != nil:
		return nil, err
	case token == "":
		return all, nil
	case !people.ValidSlackToken(token):
		return nil, fmt.Errorf("secret %s: want the token of a bot, xoxb-…", SlackToken)
	}
	slack := people.NewSlackChannel(people.SlackOptions{Token: people.StaticSlackToken(token), Clock: clk})
	return append([]people.Channel{slack}, all...), nil
}

// OptionalSecret returns a secret of a laptop; "" if there is none. An error is about the file, whichever secret is
// asked for.
func OptionalSecret(ctx context.Context, from tool.LocalSecrets, name string) (string, error) {
	text, err := from.Secret(ctx, Tenant, name)
	if err != nil && !errors.Is(err, tool.ErrNoSecret) {
		return "", err
	}
	return text, nil
}

// Executions keeps the engine's records in a table: PK X#open or X#closed, SK the execution's name.
type Executions struct{ table store.Table }

const (
	openExecutions   = "X#open"
	closedExecutions = "X#closed"
)

// NewExecutions makes the records of an engine over t.
func NewExecutions(t store.Table) *Executions { return &Executions{table: t} }

// Save writes a record; a closed one beside what it was when open.
func (x *Executions) Save(ctx context.Context, r asl.Record) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("save execution %s: %w", r.Name, err)
	}
	pk := openExecutions
	if r.Status.Terminal() {
		pk = closedExecutions
	}
	item := store.Item{Key: store.Key{PK: pk, SK: r.Name}, Body: body}
	if err := x.table.Write(ctx, store.Op{Kind: store.Put, Item: item}); err != nil {
		return fmt.Errorf("save execution %s: %w", r.Name, err)
	}
	return nil
}

// Load implements asl.Store: an execution whose record cannot be read is as one that never began.
func (x *Executions) Load(ctx context.Context) ([]asl.Record, error) {
	byName := map[string]asl.Record{}
	var unread error
	for _, pk := range []string{openExecutions, closedExecutions} { // what has ended hides what was open
		for r := (store.Range{PK: pk}); ; {
			page, next, err := store.ReadPage(ctx, x.table, r, readExecution)
			if err != nil && !errors.Is(err, store.ErrDamaged) {
				return nil, fmt.Errorf("load executions: %w", err)
			}
			unread = errors.Join(unread, err)
			for _, rec := range page {
				byName[rec.Name] = rec
			}
			if r.Cursor = next; next == "" {
				break
			}
		}
	}
	return slices.Collect(maps.Values(byName)), unread
}

// readExecution reads a record, which must be the one that its key says.
func readExecution(it store.Item) (asl.Record, error) {
	var rec asl.Record
	err := jsonx.ReadStored("execution", it.Body, &rec)
	switch {
	case err != nil:
	case rec.Name != it.SK:
		err = errors.New("name: want that of the key")
	case !rec.Status.Valid() || rec.Status.Terminal() != (it.PK == closedExecutions):
		err = errors.New("status: want one that executions under this key have")
	case rec.Wait != nil && rec.Wait.State == "":
		err = errors.New("wait: state: got nothing, want where it waits")
	}
	if err != nil {
		return asl.Record{}, fmt.Errorf("load execution %s: %w", it.SK, store.Damaged(it.Key, "%w", err))
	}
	return rec, nil
}

// Backend is the machine as the API serves it to whoever owns the laptop. Its caller sets Agents, Feed, which is the
// machine's Sink, Caller and Log. The first request that acts resumes the machine, so that one who only looks sets
// nothing going.
func (m *Machine) Backend() web.Backend {
	intake, _ := m.Ports.Blobs.(store.Intake) // a store that takes no streams serves no uploads
	b := m.Deployment.Backend()
	b.Intake, b.Local, b.Via, b.Replay = intake, true, agent.ViaCLI, m.Replay
	b.Tool = func(name string) bool {
		_, ok := m.Ports.Tools.Lookup(name)
		return ok
	}
	var mu sync.Mutex
	resumed := false // a call that failed is made again
	b.Ready = func(ctx context.Context) (err error) {
		mu.Lock()
		defer mu.Unlock()
		if !resumed {
			err = m.Resume(ctx, Tenant, "")
			resumed = err == nil
		}
		return err
	}
	return b
}

// FinishChanges serves a request that changes something to its end, even if its client hangs up in between: a run whose
// request was decided is resumed. A chat does so by itself, since its response ends with its client.
func FinishChanges(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !strings.HasPrefix(r.URL.Path, "/v1/chat/") {
			r = r.WithContext(context.WithoutCancel(r.Context()))
		}
		next.ServeHTTP(w, r)
	})
}

// Pipe is a listener in memory, for a process that talks to its own server.
type Pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipe makes a Pipe.
func NewPipe() *Pipe { return &Pipe{conns: make(chan net.Conn), closed: make(chan struct{})} }

// Dial connects to whoever accepts.
func (p *Pipe) Dial(ctx context.Context) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return mine, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for the next dial.
func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial. It never fails.
func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr is there because a net.Listener has one.
func (p *Pipe) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
