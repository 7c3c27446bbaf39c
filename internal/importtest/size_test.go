package importtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxBootstrap is how large a function's bootstrap may be, in bytes (docs/performance.md, ADR 15).
const maxBootstrap = 10_000_000

// stepBootstrap is that of functions/step, which checks outputs against JSON Schemas beside asking models: 9.94 MiB, and what is left of it is
// in ADR 15.
const stepBootstrap = 10_430_000

// Every function is built as `sam build` builds it, has its target in the Makefile, and is small.
func TestBootstrapsStaySmall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds every function")
	}
	mains, err := filepath.Glob(filepath.Join("..", "..", "functions", "*", "main.go"))
	require.NoError(t, err)
	require.NotEmpty(t, mains)
	for _, file := range mains {
		name := filepath.Base(filepath.Dir(file))
		size := bootstrapSize(t, name)
		limit := int64(maxBootstrap)
		if name == "step" {
			require.Greater(t, size, limit, "it has become small: away with its own limit")
			limit = stepBootstrap
		}
		require.LessOrEqual(t, size, limit, "the bootstrap of functions/%s is too large: want at most %d bytes, got %d; "+
			"`go tool nm -size -sort size` on a build without -s -w says what is in it", name, limit, size)
		t.Logf("%-8s %5.2f MB", name, float64(size)/1e6)
	}
}

func bootstrapSize(t *testing.T, name string) int64 {
	t.Helper()
	dir := t.TempDir()
	target := "build-" + strings.ToUpper(name[:1]) + name[1:] + "Function"
	log, err := exec.Command("make", "-C", filepath.Join("..", ".."), target, "ARTIFACTS_DIR="+dir).CombinedOutput()
	require.NoError(t, err, string(log))
	info, err := os.Stat(filepath.Join(dir, "bootstrap"))
	require.NoError(t, err)
	return info.Size()
}

// The imports are those of the tags that are deployed.
func TestTagsAreTheMakefiles(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	require.NoError(t, err)
	require.Contains(t, string(makefile), "-tags "+lambdaTags+" ")
}
