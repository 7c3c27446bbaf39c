package gateway

import (
	"bytes"
	"encoding/base64"
	"maps"
	"net/http"
	"strings"
	"unicode/utf8"
)

// Lambda takes an answer of 6 MB, counted as it is encoded. In base64 that is 4.5 MB; as text in JSON, a byte can become six.
const (
	maxAnswer = 4_500_000 // bytes
	maxText   = 1_000_000
)

// recorder is a ResponseWriter that keeps the answer. It is no Flusher: nothing reaches the client before the end.
type recorder struct {
	method string
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
}

func newRecorder(method string) *recorder { return &recorder{method: method, header: http.Header{}} }

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter: the first status counts.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status, r.sent = status, r.header.Clone()
	}
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(data []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.method == http.MethodHead {
		return 0, http.ErrBodyNotAllowed
	}
	return r.body.Write(data)
}

// encode is the answer as the gateway takes it: text as it is, anything else and what is large in base64.
func (r *recorder) encode() Answer {
	r.WriteHeader(http.StatusOK)
	headers := maps.Clone(r.sent)
	a := Answer{Status: r.status, Headers: map[string]string{}, Cookies: headers["Set-Cookie"]}
	delete(headers, "Set-Cookie")
	for name, values := range headers {
		a.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	if a.Base64 = r.body.Len() > maxText || !utf8.Valid(r.body.Bytes()); a.Base64 {
		a.Body = base64.StdEncoding.EncodeToString(r.body.Bytes())
	} else {
		a.Body = r.body.String()
	}
	return a
}
