// Package folder keeps blobs as files: T/<tenant>/<digest> under one folder.
package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/countersign/countersign/pkg/agent/store"
)

// Blobs is a store.Blobs over a folder. Safe for concurrent use, by several processes too.
type Blobs struct{ dir string }

var _ store.Blobs = (*Blobs)(nil)

// Open uses the folder dir and makes it if it is not there.
func Open(dir string) (*Blobs, error) {
	if err := os.MkdirAll(filepath.Join(dir, "T"), 0o700); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	return &Blobs{dir: dir}, nil
}

var (
	tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	digestName = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

func (b *Blobs) path(tenant, digest string) (string, error) {
	if !tenantName.MatchString(tenant) || !digestName.MatchString(digest) {
		return "", fmt.Errorf("blob %q of tenant %q: want a SHA-256 in hex and a tenant's name", digest, tenant)
	}
	return filepath.Join(b.dir, "T", tenant, digest), nil
}

// Put writes the blob so that it is either there whole and durable, or not at all.
func (b *Blobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, err := b.path(tenant, digest)
	if err != nil {
		return err
	}
	if store.BlobDigest(data) != digest {
		return fmt.Errorf("put blob %s: the content has another digest", digest)
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("put blob %s: %w", digest, err)
	}
	if err := write(path, data); err != nil {
		return fmt.Errorf("put blob %s: %w", digest, err)
	}
	return nil
}

// write makes a synced file beside path and renames it there.
func write(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "put-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the name durable, not only the content.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get reads a blob and checks that it is what its name says.
func (b *Blobs) Get(ctx context.Context, tenant, digest string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, err := b.path(tenant, digest)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("get blob %s: %w", digest, store.ErrNoBlob)
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %s: %w", digest, err)
	}
	if store.BlobDigest(data) != digest {
		return nil, fmt.Errorf("get blob %s: the file is damaged", digest)
	}
	return data, nil
}
