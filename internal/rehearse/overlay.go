package rehearse

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

// overlay is a store.Table over one that is never written to: a partition is copied when it is first looked at, and everything happens to the copy. The lists of
// the index are empty: whoever rehearses one run has no business with others. Not safe for concurrent use.
type overlay struct {
	base   Reader
	top    *memory.Table
	pulled map[string]bool
}

var _ store.Table = (*overlay)(nil)

func newOverlay(base Reader) *overlay {
	return &overlay{base: base, top: memory.New(), pulled: map[string]bool{}}
}

// Get implements store.Table.
func (o *overlay) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	if err := o.pull(ctx, k.PK); err != nil {
		return store.Item{}, false, err
	}
	return o.top.Get(ctx, k)
}

// Query implements store.Table.
func (o *overlay) Query(ctx context.Context, r store.Range) (store.Page, error) {
	if !r.Index {
		if err := o.pull(ctx, r.PK); err != nil {
			return store.Page{}, err
		}
	}
	return o.top.Query(ctx, r)
}

// Write implements store.Table. It writes to the copy alone.
func (o *overlay) Write(ctx context.Context, ops ...store.Op) error {
	for _, op := range ops {
		if err := o.pull(ctx, op.Item.PK); err != nil {
			return err
		}
	}
	return o.top.Write(ctx, ops...)
}

// pull copies a partition once.
func (o *overlay) pull(ctx context.Context, pk string) error {
	if o.pulled[pk] || pk == "" {
		return nil
	}
	r := store.Range{PK: pk}
	for {
		p, err := o.base.Query(ctx, r)
		if err != nil {
			return fmt.Errorf("copy %s: %w", pk, err)
		}
		for _, it := range p.Items {
			if err := o.top.Write(ctx, store.Op{Kind: store.Put, Item: it}); err != nil {
				return fmt.Errorf("copy %s %s: %w", it.PK, it.SK, err)
			}
		}
		if r.Cursor = p.Cursor; r.Cursor == "" {
			o.pulled[pk] = true
			return nil
		}
	}
}

// blobsOver is a store.Blobs over one that is never written to.
type blobsOver struct {
	base BlobReader
	top  *memory.Blobs
}

var _ store.Blobs = blobsOver{}

// Put implements store.Blobs. It writes to memory alone.
func (b blobsOver) Put(ctx context.Context, tenant, digest string, data []byte) error {
	return b.top.Put(ctx, tenant, digest, data)
}

// Get implements store.Blobs.
func (b blobsOver) Get(ctx context.Context, tenant, digest string) ([]byte, error) {
	if data, err := b.top.Get(ctx, tenant, digest); !errors.Is(err, store.ErrNoBlob) {
		return data, err
	}
	return b.base.Get(ctx, tenant, digest)
}

// Size implements store.Blobs.
func (b blobsOver) Size(ctx context.Context, tenant, digest string) (int64, error) {
	if n, err := b.top.Size(ctx, tenant, digest); !errors.Is(err, store.ErrNoBlob) {
		return n, err
	}
	return b.base.Size(ctx, tenant, digest)
}

// readOnly makes a Reader what a journal is over. Nothing that is rehearsed writes to it.
type readOnly struct{ Reader }

// errReadOnly says that a rehearsal was about to write to the store: a bug.
var errReadOnly = errors.New("a rehearsal writes nothing")

// Write implements store.Table by refusing.
func (readOnly) Write(context.Context, ...store.Op) error { return errReadOnly }

// readOnlyBlobs likewise.
type readOnlyBlobs struct{ BlobReader }

// Put implements store.Blobs by refusing.
func (readOnlyBlobs) Put(context.Context, string, string, []byte) error { return errReadOnly }
