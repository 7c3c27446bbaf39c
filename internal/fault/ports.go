package fault

import (
	"context"

	"github.com/countersign/countersign/internal/agent"
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
	return b.in.through(ctx, Call{Port: "blobs.Put", What: digest}, func() error { return b.next.Put(ctx, tenant, digest, data) })
}

func (b *blobs) Get(ctx context.Context, tenant, digest string) (data []byte, err error) {
	err = b.in.through(ctx, Call{Port: "blobs.Get", What: digest}, func() (err error) {
		data, err = b.next.Get(ctx, tenant, digest)
		return err
	})
	return data, err
}

func (b *blobs) Size(ctx context.Context, tenant, digest string) (size int64, err error) {
	err = b.in.through(ctx, Call{Port: "blobs.Size", What: digest}, func() (err error) {
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
	err = m.in.through(ctx, Call{Port: portModel, What: r.Model.ID}, func() (err error) {
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
	return w.in.through(ctx, Call{Port: "waiter.Success", What: ""}, func() error { return w.next.Success(ctx, token) })
}

func (w *waiter) Start(ctx context.Context, tenant, run, name string) error {
	return w.in.through(ctx, Call{Port: "waiter.Start", What: name}, func() error { return w.next.Start(ctx, tenant, run, name) })
}

func (w *waiter) Stop(ctx context.Context, name, cause string) error {
	return w.in.through(ctx, Call{Port: "waiter.Stop", What: name}, func() error { return w.next.Stop(ctx, name, cause) })
}

func (w *waiter) Status(ctx context.Context, name string) (s runtime.ExecutionStatus, err error) {
	err = w.in.through(ctx, Call{Port: "waiter.Status", What: name, Lags: true}, func() (err error) {
		s, err = w.next.Status(ctx, name)
		if i := invocationOf(ctx); i != nil && i.lag > 0 {
			s = earlier(s)
		}
		return err
	})
	return s, err
}

// earlier is the status that an execution had before.
func earlier(s runtime.ExecutionStatus) runtime.ExecutionStatus {
	switch s {
	case runtime.ExecutionEnded, runtime.ExecutionThrottled:
		return runtime.ExecutionRunning
	default:
		return runtime.ExecutionNone
	}
}

// Tools puts the injector before every tool of a source. One that can reconcile still can.
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
		return &reconciler{entered{s.in, t}, r}, true
	}
	return &entered{s.in, t}, true
}

type entered struct {
	in *Injector
	tool.Tool
}

func (t *entered) Call(ctx context.Context, c tool.Call) (r agent.ToolResultData, err error) {
	err = t.in.through(ctx, Call{Port: portTool, What: c.ID, Once: t.Spec().Effect == run.EffectNonIdempotent || t.Spec().Effect == ""}, func() (err error) {
		r, err = t.Tool.Call(ctx, c)
		return err
	})
	return r, err
}

type reconciler struct {
	entered
	next tool.Reconciler
}

func (t *reconciler) Reconcile(ctx context.Context, c tool.Call) (o tool.Outcome, r agent.ToolResultData, err error) {
	err = t.in.through(ctx, Call{Port: "tool.Reconcile", What: c.ID}, func() (err error) {
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
	return e.in.through(ctx, Call{Port: "bus.Emit", What: o.ID}, func() error { return e.next.Emit(ctx, o) })
}
