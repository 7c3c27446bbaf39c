package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

const schemas = "github.com/countersign/countersign/pkg/agent/tool/schema"

// The library that functions link passes every test of the package that stands in front of it, whose texts a model reads, and is ready at
// once.
func TestSchemasAreJudgedAsWithGoMod(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a test")
	}
	root, out := filepath.Join("..", ".."), t.TempDir()
	require.NoError(t, write(root, out))
	cost := map[string]int{}
	for _, mod := range []string{filepath.Join(root, "go.mod"), filepath.Join(out, "lambda.mod")} {
		tests := filepath.Join(t.TempDir(), "schema.test")
		absolute, err := filepath.Abs(mod)
		require.NoError(t, err)
		said, err := command(root, "go", "test", "-c", "-modfile", absolute, "-o", tests, schemas).CombinedOutput()
		require.NoError(t, err, string(said))
		run := command(filepath.Join(root, "pkg", "agent", "tool", "schema"), tests, "-test.v")
		run.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		log, err := run.CombinedOutput()
		require.NoError(t, err, string(log))
		require.Contains(t, string(log), "--- PASS: TestEveryKeywordHasWords")
		cost[filepath.Base(mod)] = allocated(t, string(log))
	}
	t.Logf("bytes that the library's init allocates: %v", cost)
	require.Greater(t, cost["go.mod"], 1_000_000, "the library's own init has become cheap: is internal/lambdamod of use still?")
	require.Less(t, cost["lambda.mod"], 50_000, "the library's init compiles metaschemas")
}

const mcp = "github.com/countersign/countersign/pkg/agent/mcp"

// The SDK that functions link is as good a client as all of it: the tests whose servers are not made of its other half pass.
func TestServersAreReachedAsWithGoMod(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a test")
	}
	root, out := filepath.Join("..", ".."), t.TempDir()
	require.NoError(t, write(root, out))
	mod, err := filepath.Abs(filepath.Join(out, "lambda.mod"))
	require.NoError(t, err)
	tests := filepath.Join(t.TempDir(), "mcp.test")
	said, err := command(root, "go", "test", "-c", "-modfile", mod, "-o", tests, mcp).CombinedOutput()
	require.NoError(t, err, string(said))
	log, err := command(filepath.Join(root, "pkg", "agent", "mcp"), tests, "-test.v", "-test.skip", "TestVersionsOfTheProtocol|TestInputOver|TestGoodbye").CombinedOutput()
	require.NoError(t, err, string(log))
	require.Contains(t, string(log), "--- PASS: TestHostileToCalls")
	require.Contains(t, string(log), "--- PASS: TestQuestionsAndAnswers")
}

func command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return cmd
}

// allocated is how many bytes the library's init allocates, as the runtime traced it; it is silent of an init that does nothing.
func allocated(t *testing.T, trace string) int {
	t.Helper()
	require.Contains(t, trace, "init runtime @", "nothing was traced")
	found := regexp.MustCompile(`(?m)^init ` + regexp.QuoteMeta(library) + ` @.* clock, (\d+) bytes`).FindStringSubmatch(trace)
	if found == nil {
		return 0
	}
	bytes, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return bytes
}

// Writing twice is as writing once, and what was spoiled meanwhile is mended.
func TestWritingAgainChangesNothing(t *testing.T) {
	root, out := filepath.Join("..", ".."), t.TempDir()
	require.NoError(t, write(root, out))
	first := everything(t, out)
	require.Contains(t, first, "lambda.sum")
	require.Contains(t, first, filepath.Join("text", "message", "message.go"))
	require.NoError(t, os.WriteFile(filepath.Join(out, "text", "message", "message.go"), []byte("package broken"), 0o600))
	require.NoError(t, write(root, out))
	require.Equal(t, first, everything(t, out))
}

func everything(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		all[rel] = string(data)
		return err
	}))
	return all
}

// A version of the library that reads otherwise is not built half changed.
func TestEditsMustFit(t *testing.T) {
	all := []edit{{"one", "1"}, {"two", "2"}}
	for name, tc := range map[string]struct{ source, want, err string }{
		"fits":  {"one two three", "1 2 three", ""},
		"gone":  {"two three", "", "this is there 0 times, want once"},
		"twice": {"one two two", "", "this is there 2 times, want once"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := apply([]byte(tc.source), all)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, string(got))
		})
	}
	_, err := patched(t.TempDir(), map[string][]edit{"draft.go": all}, nil)
	require.ErrorContains(t, err, "draft.go: this is there 0 times")
}

// What is long is named by its sum.
func TestSpansMustFit(t *testing.T) {
	sum := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s)))[:16] }
	for name, tc := range map[string]struct {
		source string
		span   span
		want   string
	}{
		"fits":    {"a{one}b", span{"{", "}", sum("one"), "1"}, "a{1}b"},
		"changed": {"a{two}b", span{"{", "}", sum("one"), "1"}, ""},
		"gone":    {"a(one)b", span{"{", "}", sum("one"), "1"}, ""},
		"open":    {"a{one", span{"{", "}", sum("one"), "1"}, ""},
		"twice":   {"a{one}{one}b", span{"{", "}", sum("one"), "1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := exchange([]byte(tc.source), []span{tc.span})
			if tc.want == "" {
				require.ErrorContains(t, err, "not what it was")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, string(got))
		})
	}
	_, err := patched(t.TempDir(), nil, map[string][]span{"mcp/server.go": {{}}})
	require.ErrorContains(t, err, "mcp/server.go: what stands between")
}

func TestWhatCannotBeHadIsNamed(t *testing.T) {
	_, err := download(t.TempDir(), library)
	require.ErrorContains(t, err, library+" cannot be had")
}
