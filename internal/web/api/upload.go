package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// ErrFile says that the file of an upload cannot be read or is shorter than announced. Nothing was stored.
var ErrFile = errors.New("the file to upload")

// Upload uploads a file and returns the blob for a media block. open opens the file from its start, as often as
// needed. Repeating an upload is no error.
//
// The server refuses a file that does not match b and stores nothing of it. Errors of the file itself wrap ErrFile.
func (c *Client) Upload(ctx context.Context, b Blob, open func() (io.ReadCloser, error)) (blob string, err error) {
	to, err := post[Uploading](ctx, c, "/v1/blobs", b, "")
	if err != nil {
		return "", err
	}
	file, err := open()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrFile, err)
	}
	content := &announcedFile{ReadCloser: file, left: b.Bytes}
	defer content.Close()
	target := to.Upload.URL
	if strings.HasPrefix(target, "/") {
		target = c.base + target
	}
	req, err := http.NewRequestWithContext(ctx, to.Upload.Method, target, content)
	if err != nil {
		return "", fmt.Errorf("write the upload of %s: %w", b.SHA256, err)
	}
	for name, value := range to.Upload.Headers {
		req.Header.Set(name, value)
	}
	if target != to.Upload.URL && c.as != "" {
		req.Header.Set(AsHeader, c.as)
	}
	req.ContentLength = b.Bytes
	err = c.sendUpload(ctx, req)
	content.mu.Lock()
	defer content.mu.Unlock()
	if content.err != nil { // the file's error comes first
		err = content.err
	}
	return to.Blob, err
}

// sendUpload sends an upload. The error of an external store is reported by its status only.
func (c *Client) sendUpload(ctx context.Context, req *http.Request) error {
	sender := c.http
	if !strings.HasPrefix(req.URL.String(), c.base+"/") {
		sender = http.DefaultClient // a presigned URL needs no other credentials
	}
	resp, err := sender.Do(req)
	if err != nil {
		return unreachableError(ctx, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode < http.StatusMultipleChoices:
		return nil
	case resp.Header.Get("Content-Type") == "application/problem+json":
		return readProblem(ctx, resp)
	case resp.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("%w: the store answered the upload with status %d", ErrUnreachable, resp.StatusCode)
	default:
		return problem(InvalidRequest, "the store refused the upload with status %d", resp.StatusCode)
	}
}

// announcedFile reads the announced number of bytes and keeps a read error. Safe for concurrent use: a transport may
// still read the body of a failed request.
type announcedFile struct {
	io.ReadCloser
	mu   sync.Mutex
	left int64
	err  error
}

func (a *announcedFile) Read(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return 0, a.err
	}
	if a.left == 0 {
		return 0, io.EOF
	}
	n, err := a.ReadCloser.Read(p[:min(int64(len(p)), a.left)])
	a.left -= int64(n)
	switch {
	case errors.Is(err, io.EOF) && a.left > 0:
		a.err = fmt.Errorf("%w is %d bytes shorter than it was", ErrFile, a.left)
	case err != nil && !errors.Is(err, io.EOF):
		a.err = fmt.Errorf("%w: %w", ErrFile, err)
	}
	if a.err != nil {
		return n, a.err
	}
	return n, err
}
