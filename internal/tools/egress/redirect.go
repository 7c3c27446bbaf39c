package egress

import (
	"io"
	"net/http"
)

// redirect lets a request follow a redirect, or says why not. via is where it has been, the first request first.
func (d *guard) redirect(r *http.Request, via []*http.Request) error {
	if len(via) > DefaultRedirects {
		return refusedf("more than %d redirects", DefaultRedirects)
	}
	last := via[len(via)-1]
	if last.URL.Scheme == "https" && r.URL.Scheme != "https" {
		return refusedf("a redirect from https to %.20q", r.URL.Scheme)
	}
	if err := d.check(r); err != nil {
		return err
	}
	r.Header.Del("Referer") // it has the query of the last URL
	if !hasLeftOrigin(r, via) {
		return nil
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength != 0 {
		return refusedf("a redirect of %s to another host", r.Method)
	}
	for _, name := range d.credentials {
		r.Header.Del(name)
	}
	return nil
}

// hasLeftOrigin reports whether a redirect ever led a request to another origin, even if another led it back.
func hasLeftOrigin(r *http.Request, via []*http.Request) bool {
	home := origin(via[0])
	for _, v := range append(via[1:len(via):len(via)], r) {
		if origin(v) != home {
			return true
		}
	}
	return false
}

func origin(r *http.Request) string {
	t, err := parseTarget(r.URL)
	if err != nil {
		return ""
	}
	return r.URL.Scheme + "://" + t.String()
}

// bounded is a body that ends with an error where it is larger than it may be.
type bounded struct {
	body       io.ReadCloser
	left, most int64
}

// TooLargeError is the error of reading a body beyond its bound.
type TooLargeError struct{ Most int64 } // bytes

func (e *TooLargeError) Error() string { return "the answer is too large" }

func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.body.Read(p)
	if int64(n) > b.left {
		n, err = int(b.left), &TooLargeError{b.most}
	}
	b.left -= int64(n)
	return n, err
}

func (b *bounded) Close() error { return b.body.Close() }
