// Package modelretry asks a model again when it fails in a way that may pass, and the next model of its chain when it
// goes on failing (docs/presets.md, section 5). How often, how soon and after which classes of
// errors is the request's own Model.Retry; which classes move on to the next model is its Model.MoveOn, and whether
// what came of a broken stream is a reply, its Model.CutStream.
package modelretry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
)

// MaxRetryAfter is the longest wait a server may ask for. Who asks for more is not asked again: to ask sooner would
// ignore it, and to wait would hold a paid function idle.
const MaxRetryAfter = time.Minute

// Generator is a model. Its errors are *agent.ModelError or the context's.
type Generator interface {
	Generate(ctx context.Context, r agent.Request) (agent.Reply, error)
}

// Model is a decorator over another model. It holds no state and is safe for concurrent use if next and jitter are.
type Model struct {
	next   Generator
	clock  clock.Clock
	jitter func(max time.Duration) time.Duration
}

// New decorates next. Jitter draws a duration from 0 to max; nil draws 0.
func New(next Generator, c clock.Clock, jitter func(max time.Duration) time.Duration) *Model {
	if jitter == nil {
		jitter = func(time.Duration) time.Duration { return 0 }
	}
	return &Model{next: next, clock: c, jitter: jitter}
}

// Ask asks the models of r.Model's chain in order until one answers, each up to Retry.Attempts times (fewer than 1
// counts as 1), and says how many requests that took, failed ones included, whatever it returns. The requests carry
// Attempt as r.Attempt, r.Attempt+1, and so on, and each the model that is asked; the reply's Place says which one
// answered.
//
// An error whose class does not move on ends the chain. A reply whose stream broke off is an answer where the chain
// keeps such. If the last model says that it takes none of the request's media, it is asked again without them.
//
// The error is the last request's, unless the context is done by then, or would be before the next one: then it wraps
// the context's error alone, because that failure is not the model's and must not be recorded as such.
func (m *Model) Ask(ctx context.Context, r agent.Request) (reply agent.Reply, requests int, err error) {
	if err := ctx.Err(); err != nil {
		return agent.Reply{}, 0, fmt.Errorf("ask model %s: %w", r.Model.ID, err)
	}
	began, whole, first := m.clock.Now(), r.Model, r.Attempt
	for place, spec := range whole.Chain() {
		r.Model = spec
		reply, r.Attempt, err = m.askModel(ctx, r, began)
		reply.Place = place
		failure := failureOf(err)
		if failure == nil || !whole.MovesOn(failure.Class) {
			break
		}
	}
	for failure := failureOf(err); failure != nil; failure = failureOf(err) {
		refusal, ok := errors.AsType[*Refusal](failure.Cause)
		if ok {
			r.Messages, ok = withoutMedia(r.Messages, refusal.Media)
		}
		if !ok {
			break
		}
		place := reply.Place
		reply, r.Attempt, err = m.askModel(ctx, r, began)
		reply.Place = place
	}
	return reply, r.Attempt - first, err
}

// askModel asks one model of a chain whose first model was asked at began. It also returns the next request's Attempt.
func (m *Model) askModel(
	ctx context.Context, r agent.Request, began time.Time,
) (reply agent.Reply, next int, err error) {
	var late error
	ended := clock.Retry(ctx, m.clock, func(n int) (wait time.Duration, again bool) {
		reply, err = m.generateOnce(ctx, r)
		r.Attempt++
		if err != nil && ctx.Err() != nil {
			return 0, false
		}
		if kept, ok := r.Model.Kept(failureOf(err)); ok {
			reply, err = kept, nil
		}
		wait, again = m.nextRetry(r.Model.Retry, n, err, began)
		// there is no point in paying for the time until the deadline
		if deadline, ok := ctx.Deadline(); again && ok && !m.clock.Now().Add(wait).Before(deadline) {
			late, again = context.DeadlineExceeded, false
		}
		return wait, again
	})
	if ended = cmp.Or(late, ended, ctx.Err()); err != nil && ended != nil {
		return agent.Reply{}, r.Attempt, fmt.Errorf("ask model %s: %w", r.Model.ID, ended)
	}
	return reply, r.Attempt, err
}

// generateOnce makes one request within the model's timeout, after which the model has failed and not the caller.
func (m *Model) generateOnce(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if r.Model.Timeout == 0 {
		return m.next.Generate(ctx, r)
	}
	timed, cancel := m.clock.WithTimeout(ctx, r.Model.Timeout)
	defer cancel()
	reply, err := m.next.Generate(timed, r)
	if err != nil && timed.Err() != nil {
		late := &agent.ModelError{Class: agent.ModelTimeout, Model: r.Model.ID,
			Message: fmt.Sprintf("no reply within %s", r.Model.Timeout)}
		if failure := failureOf(err); failure != nil {
			late.Partial = failure.Partial
		}
		err = late
	}
	return reply, err
}

// nextRetry decides whether to retry after so many requests, and how long to wait before.
func (m *Model) nextRetry(retry agent.Retry, requests int, err error, began time.Time) (time.Duration, bool) {
	failure := failureOf(err)
	if failure == nil || !retry.Repeats(failure) || requests >= retry.Attempts {
		return 0, false
	}
	after := time.Duration(0) // that the server asked to wait; 0 = it did not say
	var asks interface{ RetryAfter() time.Duration }
	if errors.As(failure.Cause, &asks) {
		after = asks.RetryAfter()
	}
	wait := agent.Backoff(retry.Backoff, retry.MaxBackoff, requests)
	wait = max(after, wait+m.jitter(wait/100*time.Duration(retry.Jitter)))
	late := retry.Window > 0 && m.clock.Now().Add(wait).Sub(began) > retry.Window
	return wait, after <= MaxRetryAfter && !late
}

// failureOf is the model error that err is, nil if it is none.
func failureOf(err error) *agent.ModelError {
	failure, _ := errors.AsType[*agent.ModelError](err)
	return failure
}
