package awsfake

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ColdStart starts one more process, waits until it asks for its first event, and ends it. It says how long that took
// from the process's start.
func (f *Lambda) ColdStart(ctx context.Context) (took time.Duration, err error) {
	asked := make(chan time.Duration, 1)
	p, err := startProcess(f.cfg, func(d time.Duration) { asked <- d })
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.kill()) }()
	ctx, cancel := f.cfg.Clock.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	select {
	case took = <-asked:
		return took, nil
	case <-p.died:
		return 0, fmt.Errorf("cold start of %s: %w", f.cfg.Name, &LambdaError{Type: "Runtime.ExitError", Message: "it ended"})
	case <-ctx.Done():
		return 0, fmt.Errorf("cold start of %s: %w", f.cfg.Name, ctx.Err())
	}
}
