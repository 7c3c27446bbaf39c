package bolt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/countersign/countersign/internal/store"
)

// Blobs is a store.Blobs and a store.Intake over files of one folder, T/<tenant>/<digest>. Safe for concurrent use,
// also by several processes.
type Blobs struct{ dir string }

// OpenFolder opens the folder dir, and creates it if it is missing.
func OpenFolder(dir string) (*Blobs, error) {
	if err := os.MkdirAll(filepath.Join(dir, "T"), 0o700); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	return &Blobs{dir: dir}, nil
}

func (b *Blobs) path(tenant, digest string) string { return filepath.Join(b.dir, "T", tenant, digest) }

// Put implements store.Blobs.
func (b *Blobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	if err := store.CheckPut(ctx, tenant, digest, data); err != nil {
		return err
	}
	if _, err := os.Stat(b.path(tenant, digest)); err == nil {
		return nil
	}
	return b.PutFrom(ctx, tenant, digest, bytes.NewReader(data))
}

// PutFrom implements store.Intake. The blob is either complete and durable, or absent.
func (b *Blobs) PutFrom(ctx context.Context, tenant, digest string, content io.Reader) error {
	if err := store.CheckBlob(ctx, tenant, digest); err != nil {
		return err
	}
	path := b.path(tenant, digest)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = write(ctx, path, digest, content)
	}
	if err != nil {
		return fmt.Errorf("put blob %s: %w", digest, err)
	}
	return nil
}

// write writes a synced temporary file beside path and, if its content fits the digest, renames it to path.
func write(ctx context.Context, path, digest string, content io.Reader) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "put-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(content, store.MaxBlob+1))
	switch {
	case err != nil:
	case n > store.MaxBlob:
		err = store.ErrBlobTooLarge
	case hex.EncodeToString(h.Sum(nil)) != digest:
		err = store.ErrBlobContent
	default:
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close(), ctx.Err()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// Get reads a blob and checks that its content fits its name.
func (b *Blobs) Get(ctx context.Context, tenant, digest string) ([]byte, error) {
	if err := store.CheckBlob(ctx, tenant, digest); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(b.path(tenant, digest))
	if err != nil {
		return nil, missing("get", digest, err)
	}
	if store.BlobDigest(data) != digest {
		return nil, fmt.Errorf("get blob %s: the file is damaged", digest)
	}
	return data, nil
}

// Size implements store.Blobs.
func (b *Blobs) Size(ctx context.Context, tenant, digest string) (int64, error) {
	if err := store.CheckBlob(ctx, tenant, digest); err != nil {
		return 0, err
	}
	info, err := os.Stat(b.path(tenant, digest))
	if err != nil {
		return 0, missing("look for", digest, err)
	}
	return info.Size(), nil
}

func missing(what, digest string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = store.ErrNoBlob
	}
	return fmt.Errorf("%s blob %s: %w", what, digest, err)
}

// Delete implements store.Blobs.
func (b *Blobs) Delete(ctx context.Context, tenant, digest string) error {
	if err := store.CheckBlob(ctx, tenant, digest); err != nil {
		return err
	}
	if err := os.Remove(b.path(tenant, digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete blob %s: %w", digest, err)
	}
	return nil
}
