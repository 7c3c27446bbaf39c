package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// tokenFile holds the token, in HOME.
const tokenFile = "token"

var tokenPattern = regexp.MustCompile(`^[a-z2-7]{52}$`)

// readToken is what HOME/token holds: whoever shows it to dev's port is the owner of the store. The first time it is minted, by draw.
// The caller has the store, so nobody else mints meanwhile.
func readToken(home string, draw func() string) (string, error) {
	name := filepath.Join(home, tokenFile)
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return writePrivate(name, draw())
	case err != nil:
		return "", fmt.Errorf("read token: %w", err)
	case !info.Mode().IsRegular():
		return "", usageErrorf("%s: want a regular file; remove it, and a new token is made", name)
	case info.Mode().Perm()&0o077 != 0:
		return "", usageErrorf("%s: others can read it (mode %#o, want 0600); remove it, and a new token is made", name, info.Mode().Perm())
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if !tokenPattern.MatchString(token) {
		return "", usageErrorf("%s: want 52 characters of a-z and 2-7; remove it, and a new token is made", name)
	}
	return token, nil
}

// writePrivate writes a token, whole or not at all. A temporary file is made with mode 0600.
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
