package released

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "list the golden files that are new; one that is listed stays as it is")

// list is the digests of all golden files of stored forms, by name.
const list = "released.txt"

// globs are where they are, from the top of the repository. A folder of stored forms that is none of these is not guarded.
var globs = []string{
	"pkg/agent/testdata/journal-v*", "internal/scenario/testdata/releases/*/*.json", "statemachine/testdata/*.json", "pkg/agent/testdata/stored-*",
}

// TestReleasedGoldensAreAppendOnly: whoever changes or takes away what an earlier version stored, so that a test passes, changes what users have in their tables. A form
// that changes gets files of its own, and go test ./internal/released -update lists them.
func TestReleasedGoldensAreAppendOnly(t *testing.T) {
	have := map[string]string{}
	for _, glob := range globs {
		files, err := filepath.Glob(filepath.Join("..", "..", glob))
		require.NoError(t, err)
		require.NotEmpty(t, files, glob)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			name, err := filepath.Rel(filepath.Join("..", ".."), file)
			require.NoError(t, err)
			sum := sha256.Sum256(data)
			have[filepath.ToSlash(name)] = hex.EncodeToString(sum[:])
		}
	}
	listed := read(t)
	for name, digest := range listed {
		require.Equal(t, digest, have[name], "%s was released: it is neither changed nor taken away; a new form is a new file", name)
	}
	if *update {
		write(t, have)
		return
	}
	for name := range have {
		require.Contains(t, listed, name, "list it: go test ./internal/released -update")
	}
}

func read(t *testing.T) map[string]string {
	t.Helper()
	listed := map[string]string{}
	f, err := os.Open(list)
	if os.IsNotExist(err) && *update {
		return listed
	}
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		digest, name, ok := strings.Cut(lines.Text(), "  ")
		require.True(t, ok, lines.Text())
		listed[name] = digest
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, listed)
	return listed
}

func write(t *testing.T, have map[string]string) {
	t.Helper()
	var out []string
	for name, digest := range have {
		out = append(out, fmt.Sprintf("%s  %s\n", digest, name))
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	require.NoError(t, os.WriteFile(list, []byte(strings.Join(out, "")), 0o644))
}
