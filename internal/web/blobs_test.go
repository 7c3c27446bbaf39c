package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

var (
	file   = bytes.Repeat([]byte("a large file\n"), 40_000) // 520,000 bytes
	digest = store.BlobDigest(file)
	nobody = store.BlobDigest([]byte("nobody's"))
)

func fileOf(content []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
}

// message is a media block that names a blob.
func message(digest string) string {
	return fmt.Sprintf(`[{"type":"media","name":"a.pdf","mediaType":"application/pdf","blob":%q},{"type":"text","text":"pay this"}]`, digest)
}

// A file is announced, uploaded, named in a start and in a message, seen by the model, and shown by its name.
func TestBlobFromUploadToRun(t *testing.T) {
	b := newBench(t, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 5}}], "want": {"messages": [{"content": {"type": "media", "name": "a.pdf", "blob": "`+digest+`"}}, {}]}}
{"text": "Paid.", "want": {"messages": [{}, {}, {}, {}, {"content": {"type": "media", "blob": "`+digest+`"}}, {}]}}`)
	refused := b.do("POST /v1/runs", `{"agent":"payer","key":"k","message":`+message(digest)+`}`)
	require.Equal(t, http.StatusBadRequest, refused.status)
	require.Contains(t, refused.body, `"unknown-blob"`)
	require.Contains(t, refused.body, digest)

	got, err := b.client.Upload(t.Context(), web.Blob{MediaType: "application/pdf", Bytes: int64(len(file)), SHA256: digest}, fileOf(file))
	require.NoError(t, err)
	require.Equal(t, digest, got)
	stored := must(b.Ports.Blobs.Get(t.Context(), local.Tenant, digest))
	require.Equal(t, file, stored)

	a, err := b.client.Start(t.Context(), web.Start{Agent: "payer", Key: "k", Message: json.RawMessage(message(digest))})
	require.NoError(t, err, "the refused start has left nothing under its key")
	r := b.waitUntilParked(a.ID)
	before := must(b.client.Events(t.Context(), a.ID, "", 200))
	refused = b.do("POST /v1/runs/"+a.ID+"/input", `{"decisions":[{"target":"c1","action":"resume"}],"messages":["hello",`+message(nobody)+`]}`)
	require.Equal(t, http.StatusBadRequest, refused.status)
	require.Contains(t, refused.body, `"unknown-blob"`)
	require.Contains(t, refused.body, "messages[1]")
	after := must(b.client.Events(t.Context(), a.ID, "", 200))
	require.Equal(t, before, after, "none of the input was done")
	require.Equal(t, r, b.waitUntilParked(a.ID))

	_, err = b.client.Input(t.Context(), a.ID, web.Input{Messages: []json.RawMessage{json.RawMessage(message(digest))}}, "m1")
	require.NoError(t, err)
	must(b.client.Input(t.Context(), a.ID, web.Input{Decisions: []web.Decision{{Target: "c1", Action: "resume"}}}, ""))
	r = b.waitUntilParked(a.ID)
	require.Equal(t, run.ReasonNaturalEnd, r.Reason, "%v", r.Error)
	require.JSONEq(t, `{"type":"media","name":"a.pdf","mediaType":"application/pdf","blob":"`+digest+`"}`, string(r.Messages[0].Content))
}

// A body that says it is too large is not read, and one that does not say is read to the bound and no further.
func TestUploadsAreBounded(t *testing.T) {
	b := newBench(t, pay)
	got := b.uploaded(digest, -1, io.LimitReader(zeros{}, store.MaxBlob+10))
	require.Equal(t, http.StatusRequestEntityTooLarge, got.status, got.body)
	got = b.uploaded(digest, store.MaxBlob+1, iotest.ErrReader(errors.New("read")))
	require.Equal(t, http.StatusRequestEntityTooLarge, got.status, "said so, and not read")
	got = b.uploaded(digest, -1, bytes.NewReader(file))
	require.Equal(t, http.StatusCreated, got.status, got.body)
}

// uploaded is the answer to a body that says so of its length; -1 = nothing.
func (b *bench) uploaded(digest string, length int64, body io.Reader) answer {
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodPut, "/v1/blobs/"+digest, body)
	r.ContentLength = length
	w := httptest.NewRecorder()
	web.APIHandler(b.backend).ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// An upload that is cut short leaves nothing, not even half a file, and a failing store is not the client's fault.
func TestUploadThatBreaks(t *testing.T) {
	b := newBench(t, pay)
	cut := io.MultiReader(bytes.NewReader(file), iotest.ErrReader(io.ErrUnexpectedEOF))
	got := b.uploaded(digest, int64(len(file))+1, cut)
	require.Contains(t, problemIn(t, got, http.StatusBadRequest, web.InvalidRequest).Detail, "read the body")
	_, err := b.Ports.Blobs.Size(t.Context(), local.Tenant, digest)
	require.ErrorIs(t, err, store.ErrNoBlob)

	b.backend.Intake = broken{}
	b.serve()
	require.Equal(t, http.StatusInternalServerError, b.do("PUT /v1/blobs/"+digest, string(file)).status)
}

type broken struct{}

func (broken) PutFrom(context.Context, string, string, io.Reader) error { return os.ErrPermission }

// Deployed, the handler permits uploads to the store and takes none itself.
func TestAnnounceDeployed(t *testing.T) {
	b := newBench(t, pay)
	expires := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	permits := &permits{upload: store.Upload{URL: "https://bucket.example/x", Headers: map[string]string{"X-A": "b"}, Expires: expires}}
	b.backend.Local, b.backend.Uploads = false, permits
	b.backend.Caller = func(*http.Request) (web.Caller, error) { return web.Caller{Tenant: "acme"}, nil }
	b.serve()
	got := b.do("POST /v1/blobs", `{"mediaType":"image/png","bytes":7,"sha256":"`+digest+`"}`)
	require.Equal(t, http.StatusCreated, got.status, got.body)
	require.JSONEq(t, `{"blob":"`+digest+`","upload":{"method":"PUT","url":"https://bucket.example/x","headers":{"X-A":"b"},"expiresAt":"2026-01-02T03:04:05Z"}}`, got.body)
	require.Equal(t, []string{"acme " + digest + " 7 image/png"}, permits.asked, "for the caller's tenant")
	require.Equal(t, http.StatusNotFound, b.do("PUT /v1/blobs/"+digest, "x").status)
	b.backend.Uploads = nil
	b.serve()
	require.Equal(t, http.StatusNotFound, b.do("POST /v1/blobs", `{"mediaType":"image/png","bytes":7,"sha256":"`+digest+`"}`).status)
}

type permits struct {
	upload store.Upload
	asked  []string
}

func (p *permits) Presign(_ context.Context, tenant, digest string, size int64, mediaType string) (store.Upload, error) {
	p.asked = append(p.asked, fmt.Sprint(tenant, " ", digest, " ", size, " ", mediaType))
	return p.upload, nil
}

// The client sends to a store what it was told to send and nothing of its own, and says whose fault it is.
func TestClientUpload(t *testing.T) {
	b := newBench(t, pay)
	status := http.StatusOK
	var seen http.Header
	var body []byte
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		body, _ = io.ReadAll(r.Body) // a client that breaks off is what one case is about
		w.WriteHeader(status)
	}))
	t.Cleanup(bucket.Close)
	b.backend.Uploads = &permits{upload: store.Upload{URL: bucket.URL + "/x?y=z", Headers: map[string]string{"X-A": "b"}}}
	b.serve()
	announced := web.Blob{MediaType: "text/plain", Bytes: int64(len(file)), SHA256: digest}
	must(b.client.Upload(t.Context(), announced, fileOf(file)))
	require.Equal(t, file, body)
	require.Equal(t, "b", seen.Get("X-A"))
	require.Empty(t, seen.Get("Content-Type"))

	status = http.StatusForbidden
	_, err := b.client.Upload(t.Context(), announced, fileOf(file))
	require.Contains(t, requireProblem(t, err, web.InvalidRequest).Detail, "403")
	status = http.StatusServiceUnavailable
	_, err = b.client.Upload(t.Context(), announced, fileOf(file))
	require.ErrorIs(t, err, web.ErrUnreachable)

	status = http.StatusOK
	_, err = b.client.Upload(t.Context(), announced, fileOf(file[:100]))
	require.ErrorIs(t, err, web.ErrFile, "a file that has shrunk is not an engine that is gone")
	require.NotErrorIs(t, err, web.ErrUnreachable)
	_, err = b.client.Upload(t.Context(), announced, func() (io.ReadCloser, error) { return os.Open(filepath.Join(t.TempDir(), "none")) })
	require.ErrorIs(t, err, web.ErrFile)

	b.backend.Uploads = nil
	b.serve()
	_, err = b.client.Upload(t.Context(), announced, fileOf(append([]byte("A"), file[1:]...)))
	_ = requireProblem(t, err, web.InvalidRequest)
}
