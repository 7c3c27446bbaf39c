package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

// Blobs is the conformance suite of store.Blobs. open returns an empty store for one test and ends it with t.Cleanup.
func Blobs(t *testing.T, open func(t *testing.T) store.Blobs) {
	for _, test := range append(slices.Clone(blobTests), []blobTest{
		{"Tenants", testBlobTenants},
		{"Names", testBlobNames},
	}...) {
		t.Run(test.name, func(t *testing.T) {
			b := open(t)
			test.run(blobFixture{t, b, b.Put})
		})
	}
}

type blobTest struct {
	name string
	run  func(blobFixture)
}

// blobTests also apply to streams.
var blobTests = []blobTest{
	{"Content", testBlobContent},
	{"Copies", testBlobCopies},
	{"OtherContent", testBlobOtherContent},
	{"Context", testBlobContext},
	{"Concurrent", testBlobConcurrent},
}

// blobFixture is the store of one test and the way to put blobs into it.
type blobFixture struct {
	*testing.T
	blobs store.Blobs
	try   func(ctx context.Context, tenant, digest string, data []byte) error
}

func (f blobFixture) put(tenant string, data []byte) (digest string) {
	f.Helper()
	digest = store.BlobDigest(data)
	require.NoError(f, f.try(context.Background(), tenant, digest, data))
	return digest
}

func (f blobFixture) requireBlob(tenant, digest string, want []byte) {
	f.Helper()
	got, err := f.blobs.Get(context.Background(), tenant, digest)
	require.NoError(f, err)
	require.True(f, bytes.Equal(want, got), "%d bytes, want %d", len(got), len(want))
	size, err := f.blobs.Size(context.Background(), tenant, digest)
	require.NoError(f, err)
	require.EqualValues(f, len(want), size)
}

func (f blobFixture) requireNone(tenant, digest string) {
	f.Helper()
	_, err := f.blobs.Get(context.Background(), tenant, digest)
	require.ErrorIs(f, err, store.ErrNoBlob)
	_, err = f.blobs.Size(context.Background(), tenant, digest)
	require.ErrorIs(f, err, store.ErrNoBlob)
}

func testBlobContent(f blobFixture) {
	for _, data := range [][]byte{{}, {0}, []byte("text\r\n"), bytes.Repeat([]byte{0, 0xff, '\n', 'x'}, 512<<10)} {
		f.requireNone("acme", store.BlobDigest(data))
		for range 3 { // putting it again changes nothing
			f.requireBlob("acme", f.put("acme", data), data)
		}
	}
}

// testBlobCopies checks that the store keeps neither the passed nor the returned slice.
func testBlobCopies(f blobFixture) {
	mine := []byte("content")
	digest := f.put("acme", mine)
	mine[0] = 'X'
	got, err := f.blobs.Get(context.Background(), "acme", digest)
	require.NoError(f, err)
	got[0] = 'Y'
	f.requireBlob("acme", digest, []byte("content"))
}

// testBlobTenants checks that a digest is resolved under its own tenant only, even if names have a common prefix.
func testBlobTenants(f blobFixture) {
	data := []byte("content")
	digest := f.put("acme", data)
	for _, other := range []string{"rival", "acme-2", "acm", "a"} {
		f.requireNone(other, digest)
	}
	f.put("rival", data)
	f.requireBlob("rival", digest, data)
	f.requireBlob("acme", digest, data)
}

// testBlobOtherContent checks that content that does not fit the digest is refused, leaves nothing, and does not damage
// a stored blob.
func testBlobOtherContent(f blobFixture) {
	data := []byte("content")
	digest := store.BlobDigest(data)
	refuse := func() {
		for _, other := range []string{"", "conten", "content ", "CONTENT"} {
			require.ErrorIs(f, f.try(context.Background(), "acme", digest, []byte(other)), store.ErrBlobContent, other)
		}
	}
	refuse()
	f.requireNone("acme", digest)
	f.put("acme", data)
	refuse()
	f.requireBlob("acme", digest, data)
}

// testBlobNames checks that a digest has one spelling, and that no name leads out of its tenant.
func testBlobNames(f blobFixture) {
	ctx, data := context.Background(), []byte("content")
	digest := f.put("acme", data)
	for _, name := range []struct{ tenant, digest string }{
		{"", digest}, {"..", digest}, {"a/b", digest}, {"Acme", digest}, {strings.Repeat("a", 41), digest},
		{"acme", ""}, {"acme", "../acme/" + digest}, {"acme", digest[:63]}, {"acme", digest + "0"},
		{"acme", strings.ToUpper(digest)}, {"acme", "sha256:" + digest},
	} {
		require.ErrorIs(f, f.try(ctx, name.tenant, name.digest, data), store.ErrInvalid, "%v", name)
		_, err := f.blobs.Get(ctx, name.tenant, name.digest)
		require.ErrorIs(f, err, store.ErrInvalid, "%v", name)
		_, err = f.blobs.Size(ctx, name.tenant, name.digest)
		require.ErrorIs(f, err, store.ErrInvalid, "%v", name)
	}
}

func testBlobContext(f blobFixture) {
	data := []byte("content")
	digest := store.BlobDigest(data)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(f, f.try(ended, "acme", digest, data), context.Canceled)
	f.requireNone("acme", digest)
	f.put("acme", data)
	_, err := f.blobs.Get(ended, "acme", digest)
	require.ErrorIs(f, err, context.Canceled)
	_, err = f.blobs.Size(ended, "acme", digest)
	require.ErrorIs(f, err, context.Canceled)
}

// testBlobConcurrent checks that many concurrent puts of the same blob all succeed, and that each writer can read it.
func testBlobConcurrent(f blobFixture) {
	data := bytes.Repeat([]byte("content"), 4<<10)
	digest := store.BlobDigest(data)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			err := f.try(context.Background(), "acme", digest, data)
			_, unread := f.blobs.Get(context.Background(), "acme", digest)
			assert.NoError(f, errors.Join(err, unread))
		})
	}
	all.Wait()
	f.requireBlob("acme", digest, data)
}
