// Package bolt implements store.Table in one file, for the local engine. It is durable: when Write returns nil, the
// file and its directory entry have been synced. One process has the file open at a time; others get ErrLocked at once.
//
// The file is a bbolt database with two buckets. NUL is the separator that no key contains:
//
//	items   PK NUL SK                        the item: attributes, index and body (codec.go), checksummed with its key
//	index   Index NUL IndexSort NUL PK NUL SK    nothing: the row points at the item
//
// The index is written in the item's own transaction, so it never lags. Pages are 16 KiB and filled, because keys are
// mostly appended. Measured on journal entries, this stores 1.3 bytes per byte, where bbolt's defaults store 1.7, at
// the same speed. Concurrent Writes share a commit (group.go); a single one does not wait.
package bolt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/countersign/countersign/internal/store"
)

// Errors in addition to those of store.Table.
var (
	// ErrLocked says that another process, or another Table of this one, has the file open.
	ErrLocked = errors.New("in use by another process")
	// ErrDamaged says that the file is not a store, or that its content has changed.
	ErrDamaged error = damaged{}
	// ErrUnknownState says that the content of the disk is unknown after a failed commit. Every call returns it until the
	// file is opened again.
	ErrUnknownState = errors.New("an earlier commit failed, the store must be opened again")
)

// damaged is the type of ErrDamaged, which is a store.ErrDamaged, too.
type damaged struct{}

func (damaged) Error() string { return "not a store, or damaged" }

func (damaged) Is(target error) bool { return target == store.ErrDamaged }

// Options configures Open. The zero value suits most callers.
type Options struct {
	// LockWait is how long Open waits for another process to release the file; 0 = 100 ms. It is rounded to about 50 ms,
	// and is real time, because it waits for the operating system.
	LockWait time.Duration
}

// pageSize is the size of a page, in bytes. A new file has four pages.
const pageSize = 16 << 10

var (
	itemsBucket = []byte("items")
	indexBucket = []byte("index")
)

// Open opens the store at path. If there is none, it creates one that only its owner may read. The folder must exist.
// The error names the path, and matches ErrLocked, ErrDamaged, fs.ErrPermission, fs.ErrNotExist (of the folder), or is
// the system's.
func Open(path string, opts Options) (*Table, error) {
	t, err := openTable(path, opts)
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok { // it contains the path, too
			err = pe.Err
		}
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return t, nil
}

func openTable(path string, opts Options) (*Table, error) {
	info, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return nil, err
	}
	if !isNew && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file: %w", ErrDamaged)
	}
	t := &Table{path: path, lead: make(chan struct{}, 1)}
	err = recoverDamage(func() error { return t.start(opts, !isNew && info.Size() > 0) })
	if err == nil && isNew {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		giveBack := t.release
		if errors.Is(err, ErrDamaged) { // bbolt may hold a lock, so its database is not closed
			giveBack = t.closeFile
		}
		err = errors.Join(err, giveBack())
		// A new file that was not written whole, as on a full disk, would be a damaged store from now on.
		if info, lost := os.Stat(path); isNew && lost == nil && info.Size() < 4*pageSize && !errors.Is(err, ErrLocked) {
			err = errors.Join(err, os.Remove(path))
		}
		return nil, err
	}
	return t, nil
}

// start opens the database. It creates the buckets in a new one, and inspects an old one before anything is written.
func (t *Table) start(opts Options, old bool) error {
	if old {
		if err := t.inspect(opts); err != nil {
			return err
		}
	}
	if err := t.openDatabase(opts, false); err != nil {
		return err
	}
	// Commit nothing if the buckets exist.
	err := t.db.Update(func(tx *bbolt.Tx) error {
		if tx.Bucket(itemsBucket) != nil {
			return errNothing
		}
		_, err1 := tx.CreateBucket(itemsBucket)
		_, err2 := tx.CreateBucket(indexBucket)
		return errors.Join(err1, err2)
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

func (t *Table) openDatabase(opts Options, readOnly bool) error {
	db, err := bbolt.Open(t.path, 0o600, &bbolt.Options{
		Timeout:      cmp.Or(opts.LockWait, 100*time.Millisecond),
		ReadOnly:     readOnly,
		FreelistType: bbolt.FreelistMapType,
		PageSize:     pageSize,
		NoStatistics: true,
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			f, err = os.OpenFile(name, flag, mode)
			t.file = f
			return f, err
		},
	})
	if err != nil {
		// Map the errors of bbolt.Open: an error that is neither the lock's nor the system's is the file's.
		var system syscall.Errno
		switch {
		case errors.Is(err, bolterrors.ErrTimeout):
			return ErrLocked
		case errors.As(err, &system):
			return err
		}
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	t.db = db
	return nil
}

// inspect opens the database for reading, which only checks its two headers, and refuses one that is truncated or
// another program's. bbolt trusts the headers: with missing pages it would read past the end of its memory map.
func (t *Table) inspect(opts Options) error {
	if err := t.openDatabase(opts, true); err != nil {
		return err
	}
	info, err := t.file.Stat()
	if err != nil {
		return err
	}
	err = t.db.View(func(tx *bbolt.Tx) error {
		if info.Size() < tx.Size() {
			return fmt.Errorf("%d bytes of %d: %w", info.Size(), tx.Size(), ErrDamaged)
		}
		first, _ := tx.Cursor().First()
		if first == nil || tx.Bucket(itemsBucket) != nil && tx.Bucket(indexBucket) != nil {
			return nil
		}
		return fmt.Errorf("holds another program's bucket %q: %w", first, ErrDamaged)
	})
	if err != nil {
		return err
	}
	return t.db.Close()
}

// syncFolder makes a new file's name durable.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
