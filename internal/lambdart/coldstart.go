package lambdart

import (
	"context"
	"time"
)

// ColdStart ends the function's process, if there is one, starts another, and gives the time from then until that one asks for its first
// event: what Lambda calls init, without the download of the bootstrap. A process that ends instead is Runtime.ExitError.
func (f *Function) ColdStart(ctx context.Context) (time.Duration, error) {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if err := f.Kill(); err != nil {
		return 0, err
	}
	begun := f.clock.Now()
	died, _, err := f.alive()
	if err != nil {
		return 0, err
	}
	select {
	case <-f.firstRequest():
		return f.clock.Now().Sub(begun), nil
	case <-died:
		return 0, &Error{Type: "Runtime.ExitError", Message: f.name + " ended at cold start"}
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (f *Function) firstRequest() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ready
}

// askedForEvent notes the process' first request for an event.
func (f *Function) askedForEvent() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.ready:
	default:
		close(f.ready)
	}
}
