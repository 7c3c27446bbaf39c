package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// ErrRefused says that the collector will never take these spans.
var ErrRefused = errors.New("the collector refused the spans")

// Unavailable says that the collector could not be reached or asked for patience. After is how long it asked for; 0 = it did not say.
type Unavailable struct {
	After time.Duration
	cause string
}

func (e *Unavailable) Error() string { return "the collector is not available: " + e.cause }

// The waits between tries where the collector does not say how long.
const (
	firstWait = 100 * time.Millisecond
	maxTries  = 5
)

// Exporter sends spans. Safe for concurrent use.
type Exporter struct {
	config Config
	clock  clock.Clock
	jitter func(limit time.Duration) time.Duration
}

// New makes an exporter. It opens no connection. Jitter draws a duration from 0 to limit; nil draws 0.
func New(c Config, clk clock.Clock, jitter func(limit time.Duration) time.Duration) *Exporter {
	if c.Client == nil {
		c.Client = &http.Client{}
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if jitter == nil {
		jitter = func(time.Duration) time.Duration { return 0 }
	}
	return &Exporter{config: c, clock: clk, jitter: jitter}
}

// Export sends a batch in one request and tries again, as the protocol says, after 429, 502, 503, 504 and errors of the network, as
// long as ctx and the timeout last. The error is ErrRefused or an *Unavailable; it names no header, no query and no content.
func (x *Exporter) Export(ctx context.Context, b Batch) error {
	if len(b.Spans) == 0 {
		return nil
	}
	body, err := x.body(requestOf(b))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	ctx, cancel := x.clock.WithTimeout(ctx, x.config.Timeout)
	defer cancel()
	wait := firstWait
	for try := 1; ; try++ {
		err := x.send(ctx, body)
		var busy *Unavailable
		if !errors.As(err, &busy) || try == maxTries {
			return err
		}
		if !x.pause(ctx, max(busy.After, wait+x.jitter(wait/2))) {
			return err
		}
		wait *= 2
	}
}

// pause waits, or reports at once that there is no time for it.
func (x *Exporter) pause(ctx context.Context, d time.Duration) bool {
	if at, ok := ctx.Deadline(); ok && !x.clock.Now().Add(d).Before(at) {
		return false
	}
	return x.clock.Sleep(ctx, d) == nil
}

func (x *Exporter) body(r request) ([]byte, error) {
	body := r.protobuf()
	if x.config.JSON {
		var err error
		if body, err = json.Marshal(r); err != nil {
			return nil, err
		}
	}
	if !x.config.Gzip {
		return body, nil
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(body)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

func (x *Exporter) send(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, x.config.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: the endpoint is no URL", ErrRefused)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	if x.config.JSON {
		r.Header.Set("Content-Type", "application/json")
	}
	if x.config.Gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	for k, v := range x.config.Headers {
		r.Header.Set(k, v)
	}
	resp, err := x.config.Client.Do(r)
	if err != nil {
		return &Unavailable{cause: bare(err)}
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, maxAnswer); err != nil && !errors.Is(err, io.EOF) {
		return &Unavailable{cause: "its answer was cut short"}
	}
	return x.answered(resp)
}

// maxAnswer bounds, in bytes, what is read of an answer so that the connection can be used again.
const maxAnswer = 64 << 10

func (x *Exporter) answered(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return &Unavailable{After: x.retryAfter(resp.Header.Get("Retry-After")), cause: strconv.Itoa(code)}
	default:
		return fmt.Errorf("%w: status %d", ErrRefused, code)
	}
}

// retryAfter reads seconds or a date (RFC 9110).
func (x *Exporter) retryAfter(v string) time.Duration {
	if s, err := strconv.ParseUint(v, 10, 20); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(x.clock.Now()))
	}
	return 0
}

// bare is an error of the network without the URL, which may hold a key.
func bare(err error) string {
	var named *url.Error
	if errors.As(err, &named) {
		err = named.Err
	}
	return err.Error()
}
