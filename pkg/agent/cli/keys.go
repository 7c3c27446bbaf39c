package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/secrets"
)

// keyringFile is the keyring in HOME/keyring, created on first use. Only the process with the store uses it. Safe for
// concurrent use.
type keyringFile struct {
	home   string
	newKey func() string // returns a random key

	mu   sync.Mutex
	ring *secrets.Ring
}

// loadOrCreate reads the keyring or creates one.
func (k *keyringFile) loadOrCreate() (*secrets.Ring, error) { return k.read(true) }

// load reads the keyring. It returns nil if none was created, which means that nothing was ever signed.
func (k *keyringFile) load() (*secrets.Ring, error) { return k.read(false) }

// read's errors contain no key.
func (k *keyringFile) read(minting bool) (*secrets.Ring, error) {
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
		if text, err = secrets.Mint(k.newKey()); err == nil {
			text, err = writePrivate(name, text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the ring of keys: %w", err)
	}
	if k.ring, err = secrets.Parse(text); err != nil {
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

// tokenFile holds the token, in HOME.
const tokenFile = "token"

var tokenPattern = regexp.MustCompile(`^[a-z2-7]{52}$`)

// readToken returns the token in HOME/token. Whoever sends it to dev's port owns the store. The first call creates
// the token. The caller holds the store's lock, so no other process creates one.
func readToken(home string, draw func() string) (string, error) {
	name := filepath.Join(home, tokenFile)
	text, err := readPrivate(name)
	if errors.Is(err, fs.ErrNotExist) {
		return writePrivate(name, draw())
	}
	token := strings.TrimSpace(text)
	if err == nil && !tokenPattern.MatchString(token) {
		err = fmt.Errorf("%s: want 52 characters of a-z and 2-7", name)
	}
	if err != nil {
		return "", usageErrorf("%w; remove it, and a new token is made", err)
	}
	return token, nil
}

// writePrivate writes a file with mode 0600 atomically.
func writePrivate(name, token string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(name), "token-*")
	if err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return "", fmt.Errorf("make token: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return token, nil
}
