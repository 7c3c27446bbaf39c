// Package ledger is what the example agents keep in the place of a system of yours: a folder with a file for each thing
// that was done, under the key of the call that did it. The same call writes once, however often it is made.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Ledger is the folder. It is made when something is first kept. Safe for concurrent use, by several processes too.
type Ledger struct{ Dir string }

func (l Ledger) path(key string) string { return filepath.Join(l.Dir, url.PathEscape(key)+".json") }

// Keep writes entry, as JSON, under key: whole or not at all. Where there is one already it stays as it is, and kept is
// false.
func (l Ledger) Keep(key string, entry any) (kept bool, err error) {
	data, err := json.Marshal(entry)
	if err != nil {
		return false, fmt.Errorf("keep %s: %w", key, err)
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return false, fmt.Errorf("keep %s: %w", key, err)
	}
	f, err := os.CreateTemp(l.Dir, ".new-*")
	if err != nil {
		return false, fmt.Errorf("keep %s: %w", key, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Link(f.Name(), l.path(key))
	}
	kept = err == nil
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return false, fmt.Errorf("keep %s: %w", key, err)
	}
	return kept, nil
}

// Find reads what was kept under key into entry, and says whether there is anything.
func (l Ledger) Find(key string, entry any) (bool, error) {
	data, err := os.ReadFile(l.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, entry)
	}
	if err != nil {
		return false, fmt.Errorf("find %s: %w", key, err)
	}
	return true, nil
}

// Each gives what is kept, entry by entry, in the order of the names of their files.
func (l Ledger) Each(give func(entry json.RawMessage) error) error {
	files, err := os.ReadDir(l.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") || !strings.HasSuffix(f.Name(), ".json") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(l.Dir, f.Name()))
		if err == nil {
			err = give(data)
		}
		if err != nil {
			return fmt.Errorf("read ledger: %s: %w", f.Name(), err)
		}
	}
	return nil
}
