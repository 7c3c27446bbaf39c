package cli

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzReadPeople: a file of people is taken, or refused as wrong usage; it never panics.
func FuzzReadPeople(f *testing.F) {
	f.Add([]byte("default: user:ana\npeople:\n  user:ana: {groups: [\"group:a\"], email: a@example.com, slack: U1, notify: [slack]}\n  user:ben: [group:b]\nslack: {T1: default}\n"))
	f.Add([]byte("people: {user:ana: {groups: [group:a]}}\n"))
	f.Add([]byte("default: 7\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "principals.yaml"), data, 0o600))
		p, err := readPrincipals(dir)
		var bad *usageError
		switch {
		case err != nil:
			require.True(t, errors.As(err, &bad), "%v", err)
		default:
			_, err := p.resolvePrincipal("")
			require.NoError(t, err)
		}
	})
}
