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

// ErrFile says that the file of an upload cannot be read, or is shorter than announced. Nothing was stored.
var ErrFile = errors.New("the file to upload")

// Upload brings a file to where runs can name it and gives what a media block names. open gives the file's content, from its beginning
// and as often as it is called. To upload the same again is no error.
//
// A file that is not what b says is refused, and so is one that the store will not take; then nothing is there. Errors of the file
// itself wrap ErrFile.
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
	req, err := c.newUploadRequest(ctx, to.Upload, content)
	if err != nil {
		return "", fmt.Errorf("write the upload of %s: %w", b.SHA256, err)
	}
	req.ContentLength = b.Bytes
	err = c.sendUpload(ctx, req)
	if own := content.readError(); own != nil { // not the engine's doing
		err = own
	}
	return to.Blob, err
}

// newUploadRequest is the request that an upload is.
func (c *Client) newUploadRequest(ctx context.Context, u Upload, content io.Reader) (*http.Request, error) {
	target := u.URL
	if strings.HasPrefix(target, "/") {
		target = c.base + target
	}
	req, err := http.NewRequestWithContext(ctx, u.Method, target, content)
	if err != nil {
		return nil, err
	}
	for name, value := range u.Headers {
		req.Header.Set(name, value)
	}
	if target != u.URL && c.as != "" {
		req.Header.Set(AsHeader, c.as)
	}
	return req, nil
}

// sendUpload makes the request of an upload. A store's own refusal has no form of ours, and its text is not ours to show.
func (c *Client) sendUpload(ctx context.Context, req *http.Request) error {
	sender := c.http
	if !strings.HasPrefix(req.URL.String(), c.base+"/") {
		sender = http.DefaultClient // whoever signed the URL wants no other credentials
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

// announcedFile is a file of as many bytes as were announced, and remembers if it was not. Safe for concurrent use: a transport may
// still read a body whose request has failed.
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

func (a *announcedFile) readError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}
