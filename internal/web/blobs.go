package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
)

// Blob is the body of POST /v1/blobs: a file to be uploaded.
type Blob struct {
	MediaType string `json:"mediaType"`
	Bytes     int64  `json:"bytes"`  // 1 to store.MaxBlob
	SHA256    string `json:"sha256"` // of its content: 64 lower-case hex digits
}

// Uploading is the answer to POST /v1/blobs.
type Uploading struct {
	Blob   string `json:"blob"` // what a media block names once the file is there
	Upload Upload `json:"upload"`
}

// Upload is the request that uploads the file. It may be repeated.
type Upload struct {
	Method    string            `json:"method"`             // PUT
	URL       string            `json:"url"`                // a path beginning with / is of this API
	Headers   map[string]string `json:"headers"`            // required headers
	ExpiresAt time.Time         `json:"expiresAt,omitzero"` // zero = never
}

// Uploaded is the answer to PUT /v1/blobs/{sha256}.
type Uploaded struct {
	Blob string `json:"blob"`
}

// announceUpload permits an upload: to the store itself, or on a laptop to this API. It writes nothing.
func (s *apiServer) announceUpload(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if s.Uploads == nil && !s.acceptsUploads() {
		return 0, nil, pathProblem(r)
	}
	b, err := readBody[Blob](w, r, false)
	if err != nil {
		return 0, nil, err
	}
	switch {
	case !agent.ValidDigest(b.SHA256):
		return 0, nil, invalidProblem("sha256: got %.64q, want 64 lower-case hex digits", b.SHA256)
	case b.Bytes < 1:
		return 0, nil, invalidProblem("bytes: got %d, want 1 to %d", b.Bytes, store.MaxBlob)
	case b.Bytes > store.MaxBlob:
		return 0, nil, problem(TooLarge, "bytes: got %d, want at most %d", b.Bytes, store.MaxBlob)
	case !agent.ValidMediaType(b.MediaType):
		return 0, nil, invalidProblem("mediaType: got %.64q, want one such as image/png", b.MediaType)
	}
	if s.Uploads == nil {
		u := Upload{Method: http.MethodPut, URL: "/v1/blobs/" + b.SHA256, Headers: map[string]string{}}
		return http.StatusCreated, Uploading{b.SHA256, u}, nil
	}
	u, err := s.Uploads.Presign(r.Context(), c.Tenant, b.SHA256, b.Bytes, b.MediaType)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, Uploading{b.SHA256, Upload{http.MethodPut, u.URL, u.Headers, u.Expires}}, nil
}

// acceptsUploads reports whether this API accepts files itself, which only the owner of the machine may send.
func (s *apiServer) acceptsUploads() bool { return s.Local && s.Intake != nil }

// receiveUpload stores a file while it arrives: completely or not at all.
func (s *apiServer) receiveUpload(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if !s.acceptsUploads() {
		return 0, nil, pathProblem(r)
	}
	digest := r.PathValue("sha256")
	if !agent.ValidDigest(digest) {
		return 0, nil, invalidProblem("sha256: got %.64q, want 64 lower-case hex digits", digest)
	}
	if r.ContentLength == 0 {
		return 0, nil, invalidProblem("the body is empty")
	}
	if r.ContentLength > store.MaxBlob {
		return 0, nil, problem(TooLarge, "the body has %d bytes, want at most %d", r.ContentLength, store.MaxBlob)
	}
	content := &uploadBody{body: http.MaxBytesReader(w, r.Body, store.MaxBlob)}
	err := s.Intake.PutFrom(r.Context(), c.Tenant, digest, content)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return http.StatusCreated, Uploaded{digest}, nil
	case errors.As(content.err, &tooLarge), errors.Is(err, store.ErrBlobTooLarge):
		return 0, nil, problem(TooLarge, "the body has more than %d bytes", store.MaxBlob)
	case errors.Is(err, store.ErrBlobContent):
		return 0, nil, invalidProblem("the body is not what its digest says: nothing was stored")
	case content.err != nil:
		return 0, nil, invalidProblem("read the body: %v", content.err)
	default:
		return 0, nil, err
	}
}

// uploadBody keeps the read error of a body, which is an error of the client and not of the store.
type uploadBody struct {
	body io.Reader
	err  error
}

func (b *uploadBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

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
