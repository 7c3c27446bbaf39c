package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"

	"github.com/countersign/countersign/internal/tool"
)

// Blobs puts the injector before blobs.
func (in *Injector) Blobs(next store.Blobs) store.Blobs { return &blobs{in, next} }

type blobs struct {
	in   *Injector
	next store.Blobs
}

func (b *blobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	return b.in.intercept(ctx, Call{Port: "blobs.Put", Target: digest}, func() error { return b.next.Put(ctx, tenant, digest, data) })
}

func (b *blobs) Get(ctx context.Context, tenant, digest string) (data []byte, err error) {
	err = b.in.intercept(ctx, Call{Port: "blobs.Get", Target: digest}, func() (err error) {
		data, err = b.next.Get(ctx, tenant, digest)
		return err
	})
	return data, err
}

func (b *blobs) Size(ctx context.Context, tenant, digest string) (size int64, err error) {
	err = b.in.intercept(ctx, Call{Port: "blobs.Size", Target: digest}, func() (err error) {
		size, err = b.next.Size(ctx, tenant, digest)
		return err
	})
	return size, err
}

// Model puts the injector before a model.
func (in *Injector) Model(next runtime.Model) runtime.Model { return &model{in, next} }

type model struct {
	in   *Injector
	next runtime.Model
}

func (m *model) Generate(ctx context.Context, r agent.Request) (reply agent.Reply, err error) {
	err = m.in.intercept(ctx, Call{Port: portModel, Target: r.Model.ID}, func() (err error) {
		reply, err = m.next.Generate(ctx, r)
		return err
	})
	return reply, err
}

// Waiter puts the injector before a waiter.
func (in *Injector) Waiter(next runtime.Waiter) runtime.Waiter { return &waiter{in, next} }

type waiter struct {
	in   *Injector
	next runtime.Waiter
}

func (w *waiter) Success(ctx context.Context, token string) error {
	return w.in.intercept(ctx, Call{Port: "waiter.Success", Target: ""}, func() error { return w.next.Success(ctx, token) })
}

func (w *waiter) Start(ctx context.Context, tenant, run, name string) error {
	return w.in.intercept(ctx, Call{Port: "waiter.Start", Target: name}, func() error { return w.next.Start(ctx, tenant, run, name) })
}

func (w *waiter) Stop(ctx context.Context, name, cause string) error {
	return w.in.intercept(ctx, Call{Port: "waiter.Stop", Target: name}, func() error { return w.next.Stop(ctx, name, cause) })
}

func (w *waiter) Status(ctx context.Context, name string) (s runtime.ExecutionStatus, err error) {
	err = w.in.intercept(ctx, Call{Port: "waiter.Status", Target: name, MayLag: true}, func() (err error) {
		s, err = w.next.Status(ctx, name)
		if i := invocationOf(ctx); i != nil && i.lagWrites > 0 {
			s = earlierStatus(s)
		}
		return err
	})
	return s, err
}

// earlierStatus returns the status that an execution had before.
func earlierStatus(s runtime.ExecutionStatus) runtime.ExecutionStatus {
	switch s {
	case runtime.ExecutionEnded, runtime.ExecutionThrottled:
		return runtime.ExecutionRunning
	default:
		return runtime.ExecutionNone
	}
}

// Tools puts the injector before every tool of a source. Tools keep their ability to reconcile.
func (in *Injector) Tools(next runtime.ToolSource) runtime.ToolSource { return &tools{in, next} }

type tools struct {
	in   *Injector
	next runtime.ToolSource
}

func (s *tools) Lookup(original string) (tool.Tool, bool) {
	t, ok := s.next.Lookup(original)
	if !ok {
		return nil, false
	}
	if r, ok := t.(tool.Reconciler); ok {
		return &faultyReconciler{faultyTool{s.in, t}, r}, true
	}
	return &faultyTool{s.in, t}, true
}

type faultyTool struct {
	in *Injector
	tool.Tool
}

// Unwrap returns the tool itself.
func (t *faultyTool) Unwrap() tool.Tool { return t.Tool }

func (t *faultyTool) Call(ctx context.Context, c tool.Call) (r agent.ToolResultData, err error) {
	err = t.in.intercept(ctx, Call{Port: portTool, Target: c.ID, NotRepeatable: t.Spec().Effect == run.EffectNonIdempotent || t.Spec().Effect == ""}, func() (err error) {
		r, err = t.Tool.Call(ctx, c)
		return err
	})
	return r, err
}

type faultyReconciler struct {
	faultyTool
	next tool.Reconciler
}

func (t *faultyReconciler) Reconcile(ctx context.Context, c tool.Call) (o tool.Outcome, r agent.ToolResultData, err error) {
	err = t.in.intercept(ctx, Call{Port: "tool.Reconcile", Target: c.ID}, func() (err error) {
		o, r, err = t.next.Reconcile(ctx, c)
		return err
	})
	return o, r, err
}

// Emitter puts the injector before a bus.
func (in *Injector) Emitter(next runtime.Emitter) runtime.Emitter { return &emitter{in, next} }

type emitter struct {
	in   *Injector
	next runtime.Emitter
}

func (e *emitter) Emit(ctx context.Context, o policy.Outgoing) error {
	return e.in.intercept(ctx, Call{Port: "bus.Emit", Target: o.ID}, func() error { return e.next.Emit(ctx, o) })
}

// Channel puts the injector before a channel to people.
func (in *Injector) Channel(next notify.Channel) notify.Channel { return &channel{in, next} }

type channel struct {
	in   *Injector
	next notify.Channel
}

func (c *channel) Name() string { return c.next.Name() }

func (c *channel) Reaches(p person.Person) bool { return c.next.Reaches(p) }

func (c *channel) Send(ctx context.Context, m notify.Message) (ref string, err error) {
	err = c.in.intercept(ctx, Call{Port: "channel.Send", Target: c.Name() + " " + m.To.ID}, func() (err error) {
		ref, err = c.next.Send(ctx, m)
		return err
	})
	return ref, err
}

func (c *channel) Update(ctx context.Context, ref string, m notify.Message) error {
	return c.in.intercept(ctx, Call{Port: "channel.Update", Target: c.Name() + " " + m.To.ID}, func() error { return c.next.Update(ctx, ref, m) })
}

// Functions puts the injector before functions.
func (in *Injector) Functions(next runtime.Functions) runtime.Functions { return &functions{in, next} }

type functions struct {
	in   *Injector
	next runtime.Functions
}

func (f *functions) Invoke(ctx context.Context, i runtime.Invoke) (out runtime.Invoked, err error) {
	err = f.in.intercept(ctx, Call{Port: portFunctions, Target: i.Function, NotRepeatable: i.Once}, func() (err error) {
		out, err = f.next.Invoke(ctx, i)
		return err
	})
	return out, err
}

// Remotes puts the injector before all calls and listings of remote tools.
func (in *Injector) Remotes(next runtime.Remotes) runtime.Remotes {
	all := runtime.Remotes{}
	for kind, r := range next {
		all[kind] = &remote{in, r}
	}
	return all
}

type remote struct {
	in   *Injector
	next runtime.Remote
}

func (r *remote) Open(tenant string, d *agent.Definition) runtime.Session {
	s := &session{r.in, r.next.Open(tenant, d)}
	if l, ok := s.Session.(runtime.Lister); ok {
		return &lister{s, l}
	}
	return s
}

type session struct {
	in *Injector
	runtime.Session
}

func (s *session) Tool(spec agent.ToolSpec) tool.Tool {
	t := s.Session.Tool(spec)
	if r, ok := t.(tool.Reconciler); ok {
		return &faultyReconciler{faultyTool{s.in, t}, r}
	}
	return &faultyTool{s.in, t}
}

type lister struct {
	*session
	next runtime.Lister
}

func (l *lister) List(ctx context.Context, s agent.MCPServer) (tools agent.ServerTools, err error) {
	err = l.in.intercept(ctx, Call{Port: "remote.List", Target: s.Name}, func() (err error) {
		tools, err = l.next.List(ctx, s)
		return err
	})
	return tools, err
}

// Table puts the injector before an empty table. Queries of its index can be stale.
func (in *Injector) Table(next store.Table) store.Table { return &table{in: in, next: next} }

type table struct {
	in   *Injector
	next store.Table

	mu      sync.Mutex
	written [][]store.Op // successful writes, in order
}

func (t *table) Get(ctx context.Context, k store.Key) (it store.Item, found bool, err error) {
	err = t.in.intercept(ctx, Call{Port: "table.Get", Target: k.SK}, func() (err error) {
		it, found, err = t.next.Get(ctx, k)
		return err
	})
	return it, found, err
}

func (t *table) Query(ctx context.Context, r store.Range) (p store.Page, err error) {
	err = t.in.intercept(ctx, Call{Port: "table.Query", Target: r.From, MayLag: r.Index}, func() (err error) {
		from := t.next
		if i := invocationOf(ctx); r.Index && i != nil && i.lagWrites > 0 {
			if from, err = t.olderTable(ctx, i.lagWrites); err != nil {
				return err
			}
		}
		p, err = from.Query(ctx, r)
		return err
	})
	return p, err
}

func (t *table) Write(ctx context.Context, ops ...store.Op) error {
	keys := make([]string, len(ops))
	for i, op := range ops {
		keys[i] = op.Item.SK
	}
	return t.in.intercept(ctx, Call{Port: "table.Write", Target: strings.Join(keys, "+")}, func() error {
		err := t.next.Write(ctx, ops...)
		if err == nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.written = append(t.written, slices.Clone(ops))
		}
		return err
	})
}

// olderTable returns the table as it was before the last writes.
func (t *table) olderTable(ctx context.Context, writes int) (store.Table, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := store.NewMemory()
	for _, ops := range t.written[:max(0, len(t.written)-writes)] {
		ops = slices.Clone(ops)
		for i := range ops {
			ops[i].If = nil
		}
		if err := old.Write(context.WithoutCancel(ctx), ops...); err != nil {
			return nil, fmt.Errorf("read an older state of the index: %w", err)
		}
	}
	return old, nil
}
