package storetest

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

// Taking is a store of blobs that accepts streams.
type Taking interface {
	store.Blobs
	store.Intake
}

// Intake is the conformance suite of store.Intake. open returns an empty store for one test and ends it with t.Cleanup.
func Intake(t *testing.T, open func(t *testing.T) Taking) {
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"Whole":  func(r io.Reader) io.Reader { return r },
		"Pieces": func(r io.Reader) io.Reader { return iotest.DataErrReader(iotest.HalfReader(r)) },
	} {
		for _, test := range blobTests {
			t.Run(name+test.name, func(t *testing.T) {
				in := open(t)
				test.run(blobFixture{t, in, func(ctx context.Context, tenant, digest string, data []byte) error {
					return in.PutFrom(ctx, tenant, digest, reader(bytes.NewReader(data)))
				}})
			})
		}
	}
	for name, run := range map[string]func(blobFixture, store.Intake){
		"Broken": testIntakeBroken, "Unseen": testIntakeUnseen, "TooLarge": testIntakeTooLarge,
	} {
		t.Run(name, func(t *testing.T) {
			in := open(t)
			run(blobFixture{t, in, in.Put}, in)
		})
	}
}

// testIntakeBroken checks that a broken stream leaves nothing and does not damage a stored blob.
func testIntakeBroken(f blobFixture, in store.Intake) {
	data := []byte("content")
	digest := store.BlobDigest(data)
	refuse := func() {
		broken := io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrUnexpectedEOF))
		require.ErrorIs(f, in.PutFrom(context.Background(), "acme", digest, broken), io.ErrUnexpectedEOF)
	}
	refuse()
	f.requireNone("acme", digest)
	f.put("acme", data)
	refuse()
	f.requireBlob("acme", digest, data)
}

// testIntakeUnseen checks that nobody sees a part of a blob before its stream has ended.
func testIntakeUnseen(f blobFixture, in store.Intake) {
	data := []byte("content")
	digest := store.BlobDigest(data)
	r, w := io.Pipe()
	done := make(chan error)
	go func() { done <- in.PutFrom(context.Background(), "acme", digest, r) }()
	_, err := w.Write(data)
	require.NoError(f, err)
	f.requireNone("acme", digest)
	require.NoError(f, w.Close())
	require.NoError(f, <-done)
	f.requireBlob("acme", digest, data)
}

// testIntakeTooLarge checks that an endless stream is not read forever.
func testIntakeTooLarge(f blobFixture, in store.Intake) {
	digest := store.BlobDigest([]byte("content"))
	require.ErrorIs(f, in.PutFrom(context.Background(), "acme", digest, zeros{}), store.ErrBlobTooLarge)
	f.requireNone("acme", digest)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
