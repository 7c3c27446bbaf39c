package tracing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe/otlp"
)

const (
	// maxBuffered is how many spans wait for a collector that cannot be reached; the oldest go first.
	maxBuffered = 2048
	// maxExport is how many spans one request takes.
	maxExport = 256
	// restAfterFailure is how long a collector that failed is left alone, so that it does not cost every invocation its wait.
	restAfterFailure = 30 * time.Second
)

// buffer keeps ended spans until it is told to send them. It starts nothing of its own: a Lambda is frozen between invocations. Safe
// for concurrent use.
type buffer struct {
	exporter Exporter
	service  string
	clock    clock.Clock
	log      func(string)

	mu      sync.Mutex
	spans   []otlp.Span
	lost    int
	resting time.Time // until then nothing is sent
	failing bool      // it was said that the collector fails

	sending sync.Mutex
}

// keep takes a span that has ended.
func (b *buffer) keep(s otlp.Span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spans = append(b.spans, s)
	b.shed()
}

// shed drops the oldest spans over the bound.
func (b *buffer) shed() {
	if over := len(b.spans) - maxBuffered; over > 0 {
		b.spans, b.lost = b.spans[over:], b.lost+over
	}
}

// flush sends what there is, unless the collector failed a moment ago. A failure is told once and never with what was to be sent.
func (b *buffer) flush(ctx context.Context) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	for {
		batch := b.take()
		if len(batch) == 0 {
			return nil
		}
		if err := b.settle(batch, b.exporter.Export(ctx, otlp.Batch{Service: b.service, Spans: batch})); err != nil {
			return err
		}
	}
}

func (b *buffer) take() []otlp.Span {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clock.Now().Before(b.resting) {
		return nil
	}
	n := min(len(b.spans), maxExport)
	batch := b.spans[:n:n]
	b.spans = b.spans[n:]
	return batch
}

// settle notes what became of a batch: one that could not be sent is kept for later, one that was refused is lost.
func (b *buffer) settle(batch []otlp.Span, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.failing = false
		return nil
	}
	var busy *otlp.Unavailable
	if errors.As(err, &busy) {
		b.spans = append(batch, b.spans...)
		b.shed()
		b.resting = b.clock.Now().Add(max(busy.After, restAfterFailure))
	} else {
		b.lost += len(batch)
	}
	if !b.failing {
		b.failing = true
		b.log(fmt.Sprintf("send spans: %v (%d lost so far)", err, b.lost))
	}
	return err
}
