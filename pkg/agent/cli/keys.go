package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/countersign/countersign/internal/tools/keyring"
)

// keyringFile is the ring in HOME/keyring, made when it is first needed. Only who has the store needs it. Safe for concurrent use.
type keyringFile struct {
	home   string
	newKey func() string // a random key

	mu   sync.Mutex
	ring *keyring.Ring
}

// loadOrCreate reads the ring, or makes one. No key is in its error.
func (k *keyringFile) loadOrCreate() (*keyring.Ring, error) { return k.read(true) }

// load reads the ring; nil where none was made, so that nothing was ever signed.
func (k *keyringFile) load() (*keyring.Ring, error) { return k.read(false) }

func (k *keyringFile) read(minting bool) (*keyring.Ring, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ring != nil {
		return k.ring, nil
	}
	name := filepath.Join(k.home, "keyring")
	text, err := readPrivate(name)
	if errors.Is(err, fs.ErrNotExist) {
		if !minting {
			return nil, nil
		}
		if text, err = keyring.Mint(k.newKey()); err == nil {
			text, err = writePrivate(name, text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the ring of keys: %w", err)
	}
	if k.ring, err = keyring.Parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it, and a new one is made", name, err)
	}
	return k.ring, nil
}

// readPrivate reads a file that only its owner can read.
func readPrivate(name string) (string, error) {
	info, err := os.Lstat(name)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: want a regular file", name)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s: others can read it (mode %#o, want 0600)", name, info.Mode().Perm())
	}
	data, err := os.ReadFile(name)
	return string(data), err
}
