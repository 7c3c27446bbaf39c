package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/proof"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/tool"
)

// deltaBytes is the JSON of an iteration of the workload.
const deltaBytes = 2372

// bench makes a fresh store for every measurement.
type bench struct {
	clock clock.Clock
	dir   string
}

// lab is one engine over a counted store.
type lab struct {
	*local.Machine
	table *fault.Table
	sink  *ended
	bolt  *bolt.Table
	dir   string
}

func (b *bench) open(m runtime.Model) (*lab, error) {
	dir, err := os.MkdirTemp(b.dir, "bench-")
	if err != nil {
		return nil, err
	}
	db, err := bolt.Open(filepath.Join(dir, "store.db"), bolt.Options{})
	if err != nil {
		return nil, err
	}
	blobs, err := bolt.OpenFolder(filepath.Join(dir, "blobs"))
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	l := &lab{table: fault.NewTable(db), bolt: db, dir: dir,
		sink: &ended{done: make(chan run.AgentState, 1), parked: make(chan run.AgentState, 1)}}
	tools, err := tool.NewSet(proof.Workload(nil)...)
	if err != nil {
		return nil, err
	}
	l.Machine, err = local.New(local.Config{
		Table: l.table, Blobs: blobs, Model: m, Tools: tools, Clock: b.clock, IDs: clock.NewIDs(b.clock),
		Executions: local.NewExecutions(l.table), Sink: l.sink, Warm: 8,
		Agents: func(string) (*agent.Definition, bool) { return nil, false },
	})
	return l, err
}

func (l *lab) close() error {
	return errors.Join(l.Engine.Close(), l.bolt.Close(), os.RemoveAll(l.dir))
}

// ended tells when a run parks and ends.
type ended struct {
	done   chan run.AgentState
	parked chan run.AgentState
}

func (e *ended) Committed(_ context.Context, _ run.Entry, s *run.AgentState) {
	switch s.Status {
	case run.RunDone:
		e.done <- *s
	case run.RunWaiting:
		e.parked <- *s
	}
}

func (l *lab) start(ctx context.Context, n int) (run.AgentState, error) {
	d, err := proof.WorkAgent("bench", n)
	if err != nil {
		return run.AgentState{}, err
	}
	return l.Starter.Start(ctx, proof.StartWork(d, ""))
}

// iterations is W(n), timed from the durable start to the committed end: n iterations, each of so many parallel calls,
// and the final answer.
func (b *bench) iterations(ctx context.Context, name string, n, width int) (m measurement, err error) {
	l, err := b.open(proof.WorkModel{N: n, Width: width, Tool: "work_read"})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if _, err := l.start(ctx, n); err != nil {
		return m, err
	}
	began := b.clock.Now() // the run is durable; from here on it iterates
	end := <-l.sink.done
	took := b.clock.Now().Sub(began)
	if end.Reason != run.ReasonNaturalEnd || end.Inferences != int64(n)+1 {
		return m, fmt.Errorf("%s(%d) ended as %s after %d inferences", name, n, end.Reason, end.Inferences)
	}
	return counted(ctx, l, name, n, l.table.Counts(), took), nil
}

// counted turns counts into a measurement for one iteration.
func counted(ctx context.Context, l *lab, name string, n int, c fault.Counts, took time.Duration) measurement {
	per := func(v int64) float64 { return float64(v) / float64(n) }
	transitions := 0
	for _, x := range l.Engine.List(ctx, "") {
		transitions += x.Transitions
	}
	return measurement{
		Work: name, N: n, Store: "bolt", Micros: micros(took) / float64(n), Bytes: per(c.BytesWritten),
		Writes: per(c.Writes + c.Transactions), Reads: per(c.Gets + c.Queries), WCU: per(c.WCU),
		Transitions: per(int64(transitions)),
	}
}

// floor is the same delta, one conditional durable insert an iteration and nothing else.
func (b *bench) floor(ctx context.Context, n int) (took time.Duration, err error) {
	dir, err := os.MkdirTemp(b.dir, "floor-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t, err := bolt.Open(filepath.Join(dir, "store.db"), bolt.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	body := []byte(strings.Repeat("f", deltaBytes))
	began := b.clock.Now()
	for i := range n {
		op := store.Op{Kind: store.Put, If: []store.Cond{{Op: store.ItemAbsent}},
			Item: store.Item{Key: store.Key{PK: "T#default#RUN#floor", SK: fmt.Sprintf("J#%010d", i)}, Body: body}}
		if err := t.Write(ctx, op); err != nil {
			return 0, err
		}
	}
	return b.clock.Now().Sub(began), nil
}

// wait is W_wait: from the decision on a parked run to its end, warm.
func (b *bench) wait(ctx context.Context) (m measurement, err error) {
	l, err := b.open(proof.WorkModel{N: 1, Width: 1, Tool: "work_pay"})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	s, err := l.start(ctx, 1)
	if err != nil {
		return m, err
	}
	parked := <-l.sink.parked
	for {
		h, err := l.Ports.Journal.Head(ctx, local.Tenant, s.Run)
		if err != nil {
			return m, err
		}
		if h.Token != "" {
			break
		}
	}
	before := l.table.Counts()
	began := b.clock.Now()
	_, err = l.Desk.Decide(ctx, approval.DecisionInput{
		Tenant: local.Tenant, ID: parked.Waits()[0].Wait.Approval, Action: approval.Approve,
		By: policy.Principal{ID: "user:local", Groups: []string{"group:operators"}},
	})
	if err != nil {
		return m, err
	}
	<-l.sink.done
	took := b.clock.Now().Sub(began)
	return counted(ctx, l, "W_wait", 1, l.table.Counts().Sub(before), took), nil
}
