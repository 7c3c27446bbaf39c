package cli

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// timeouts limit how long a client of the port or the socket may take. Zero values mean the defaults. Answers have no
// limit, since event streams end by themselves.
type timeouts struct {
	header time.Duration // to send a request's header; 0 = 10 s
	body   time.Duration // to send its body; 0 = 30 s
	upload time.Duration // to upload a file; 0 = 15 min, as for S3
	idle   time.Duration // between two requests on one connection; 0 = 2 min
}

const maxHeaderBytes = 64 << 10

// newServer returns an HTTP server with the timeouts.
func (p *program) newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: p.limitBodyTime(h), ReadHeaderTimeout: cmp.Or(p.timeouts.header, 10*time.Second),
		IdleTimeout:    cmp.Or(p.timeouts.idle, 2*time.Minute),
		MaxHeaderBytes: maxHeaderBytes,
	}
}

// limitBodyTime limits how long the body of a request may take to arrive.
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

// timedBody removes the read deadline of its connection after the last byte.
type timedBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.conn.SetReadDeadline(time.Time{}) // fails only on a closed connection
	}
	return n, err
}
