package openai

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/countersign/countersign/internal/agent"
)

// refusal is the cause of an error that came as a status.
type refusal struct {
	status int
	code   string // and parameter, as problem.shown has them
	after  time.Duration
}

func (r *refusal) Error() string {
	if r.code == "" {
		return fmt.Sprintf("status %d", r.status)
	}
	return fmt.Sprintf("status %d, %s", r.status, r.code)
}

// RetryAfter is what the server asked to wait before the next request; 0 = it did not say.
func (r *refusal) RetryAfter() time.Duration { return r.after }

// parseRefusal parses an unsuccessful response: the reason, or the call that the server could not read. If the body
// cannot be read, the status decides.
func parseRefusal(ctx context.Context, r agent.Request, resp *http.Response) (agent.Reply, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil && ctx.Err() != nil {
		return agent.Reply{}, ioFailure(ctx, err)
	}
	p := problemIn(body)
	if resp.StatusCode == http.StatusInternalServerError {
		if c, ok := quotedCall(r, p.message); ok {
			return agent.Reply{Model: r.Model.ID, Calls: []agent.ReplyCall{c}, StopReason: stopRepaired}, nil
		}
	}
	cause := &refusal{status: resp.StatusCode, code: p.description(), after: retryAfter(resp.Header)}
	lasting := resp.StatusCode == http.StatusNotFound
	return agent.Reply{}, &agent.ModelError{Class: p.class(resp.StatusCode), Message: cause.Error(), Cause: cause, Lasting: lasting}
}

// streamFailure is an error that came as data. A number that is a status decides as one.
func streamFailure(p problem) error {
	status, err := strconv.Atoi(p.code)
	if err != nil || status < 400 || status > 599 {
		status = 0
	}
	message := "server reported an error in its reply"
	if code := p.description(); code != "" {
		message += ", " + code
	}
	return modelError(p.class(status), message)
}

// retryAfter reads Retry-After-Ms, else Retry-After: seconds, or a date taken relative to the response's own Date, so
// that no clock is needed.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	now, noDate := http.ParseTime(h.Get("Date"))
	if err != nil || noDate != nil {
		return 0
	}
	return max(0, at.Sub(now))
}
