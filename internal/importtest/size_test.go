package importtest

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxBootstrap is how large a function's bootstrap may be, in bytes (docs/performance.md, ADR 15).
const maxBootstrap = 10_000_000

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
		require.LessOrEqual(t, size, int64(maxBootstrap), "the bootstrap of functions/%s is too large: want at most %d bytes, got %d; "+
			"`go tool nm -size -sort size` on a build without -s -w says what is in it", name, maxBootstrap, size)
		t.Logf("%-8s %5.2f MB", name, float64(size)/1e6)
	}
}

func bootstrapSize(t *testing.T, name string) int64 {
	t.Helper()
	dir := t.TempDir()
	target := "build-" + strings.ToUpper(name[:1]) + name[1:] + "Function"
	log, err := exec.Command("make", "-C", filepath.Join("..", ".."), target, "ARTIFACTS_DIR="+dir).CombinedOutput()
	require.NoError(t, err, string(log))
	file := filepath.Join(dir, "bootstrap")
	quickSchemas(t, file)
	linksAudit(t, name, file)
	info, err := os.Stat(file)
	require.NoError(t, err)
	return info.Size()
}

// quickSchemas requires of a bootstrap with the JSON Schema library that it is the one of internal/lambdamod, as is said in the bootstrap.
func quickSchemas(t *testing.T, file string) {
	t.Helper()
	built, err := buildinfo.ReadFile(file)
	require.NoError(t, err)
	for _, module := range built.Deps {
		if module.Path == "github.com/santhosh-tekuri/jsonschema/v6" {
			require.NotNil(t, module.Replace, "%s is built without dist/lambda/lambda.mod", file)
			require.Equal(t, "./dist/lambda/jsonschema-"+module.Version, module.Replace.Path)
		}
		if module.Path == "github.com/modelcontextprotocol/go-sdk" {
			require.NotNil(t, module.Replace, "%s is built without dist/lambda/lambda.mod", file)
			require.Equal(t, "./dist/lambda/mcp-"+module.Version, module.Replace.Path)
		}
	}
}

// The imports are those of the tags that are deployed.
func TestTagsAreTheMakefiles(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	require.NoError(t, err)
	require.Contains(t, string(makefile), "-tags "+lambdaTags+" ")
}
