package cli

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// timeouts are how long whoever connects to the port or to the socket may take; 0 = the default. An answer has none: an
// event stream bounds itself.
type timeouts struct {
	header time.Duration // until the header of a request is there; 0 = 10 s
	body   time.Duration // until its body is; 0 = 30 s
	upload time.Duration // until a file is; 0 = 15 min, as for an upload to S3
	idle   time.Duration // between two requests on one connection; 0 = 2 min
}

const maxHeaderBytes = 64 << 10

// newServer serves a handler within the bounds.
func (p *program) newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: p.limitBodyTime(h), ReadHeaderTimeout: cmp.Or(p.timeouts.header, 10*time.Second), IdleTimeout: cmp.Or(p.timeouts.idle, 2*time.Minute),
		MaxHeaderBytes: maxHeaderBytes,
	}
}

// limitBodyTime has the body of a request come in time. Nothing is bounded once it is there.
func (p *program) limitBodyTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		limit := cmp.Or(p.timeouts.body, 30*time.Second)
		if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/blobs/") {
			limit = cmp.Or(p.timeouts.upload, 15*time.Minute)
		}
		conn := http.NewResponseController(w)
		if err := conn.SetReadDeadline(p.clock.Now().Add(limit)); err != nil {
			http.Error(w, "the connection cannot be bounded in time", http.StatusInternalServerError)
			return
		}
		r.Body = &timedBody{r.Body, conn}
		next.ServeHTTP(w, r)
	})
}

// timedBody takes the bound off its connection once all of it is there.
type timedBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.conn.SetReadDeadline(time.Time{}) // the connection has gone, or it could be set before
	}
	return n, err
}
