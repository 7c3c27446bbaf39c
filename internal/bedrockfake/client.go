package bedrockfake

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// patient is an HTTP client whose request bodies outlive the SDK's interest in them. The SDK (smithy-go 1.28.8) closes
// a body as soon as the response's header is there; net/http may not have seen the body's end by then, takes the close
// for a failed write and drops the connection with the response in it. That needs a server that answers within
// microseconds: this one.
type patient struct{ http *http.Client }

// Do sends a request with a copy of its body.
func (p patient) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, fmt.Errorf("read request body: %w", err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return p.http.Do(r)
}
