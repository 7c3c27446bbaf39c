package storetest

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

// Taking is a store of blobs that takes streams.
type Taking interface {
	store.Blobs
	store.Intake
}

// Intake is the conformance suite of store.Intake. open gives an empty one for one test and ends it with t.Cleanup.
func Intake(t *testing.T, open func(t *testing.T) Taking) {
	for _, test := range []struct {
		name string
		run  func(blobFixture, store.Intake)
	}{
		{"Stream", testIntakeStream},
		{"Refused", testIntakeRefused},
		{"Unseen", testIntakeUnseen},
		{"TooLarge", testIntakeTooLarge},
		{"Concurrent", testIntakeConcurrent},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := open(t)
			test.run(blobFixture{t, b}, b)
		})
	}
}

// testIntakeStream: in pieces or whole, once or twice, the content is there.
func testIntakeStream(f blobFixture, in store.Intake) {
	data := bytes.Repeat([]byte{0, 0xff, '\n', 'x'}, 64<<10)
	digest := store.BlobDigest(data)
	for _, r := range []io.Reader{iotest.HalfReader(bytes.NewReader(data)), iotest.DataErrReader(bytes.NewReader(data)),
		bytes.NewReader(data)} {
		require.NoError(f, in.PutFrom(context.Background(), "acme", digest, r))
		f.requireBlob("acme", digest, data)
	}
	f.requireNone("rival", digest)
}

// testIntakeRefused: content that is cut short, longer, other, or breaks is refused and leaves nothing, and does no
// harm to what is there.
func testIntakeRefused(f blobFixture, in store.Intake) {
	data := []byte("content")
	digest := store.BlobDigest(data)
	refuse := func() {
		for _, other := range []string{"", "conten", "content ", "CONTENT"} {
			require.ErrorIs(f, in.PutFrom(context.Background(), "acme", digest, strings.NewReader(other)), store.ErrBlobContent,
				other)
		}
		broken := io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrUnexpectedEOF))
		require.ErrorIs(f, in.PutFrom(context.Background(), "acme", digest, broken), io.ErrUnexpectedEOF)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		require.ErrorIs(f, in.PutFrom(ended, "acme", digest, bytes.NewReader(data)), context.Canceled)
	}
	refuse()
	f.requireNone("acme", digest)
	f.put("acme", data)
	refuse()
	f.requireBlob("acme", digest, data)
}

// testIntakeUnseen: as long as the stream has not ended, nobody sees a part of it.
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

// testIntakeTooLarge: a stream that does not end is not read for ever.
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

// testIntakeConcurrent: many send the same at once; all succeed.
func testIntakeConcurrent(f blobFixture, in store.Intake) {
	f.requireConcurrent(func(digest string, data []byte) error {
		return in.PutFrom(context.Background(), "acme", digest, bytes.NewReader(data))
	})
}
