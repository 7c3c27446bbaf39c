package promises

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/promises.txt again, with the sentences it lacks")

const (
	root = "../.."
	file = root + "/docs/promises.txt"
)

// sections are those that concern the presets which work.
var sections = []string{
	"1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "2",
	"3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11",
	"4.1", "4.2", "4.3", "4.4", "4.5", "4.6", "4.7", "4.8", "5", "5.1", "5.2", "5.3", "5.4", "5.5", "5.6", "5.7", "6", "6.1",
}

func TestEverySentenceIsKept(t *testing.T) {
	document, err := os.ReadFile(root + "/docs/semantics.md")
	require.NoError(t, err)
	units := Units(string(document), sections)
	require.Greater(t, len(units), 250)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	book, err := Read(string(text))
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(Write(units, book)), 0o644))
		return
	}
	require.Equal(t, Write(units, book), string(text), "docs/promises.txt is not in step with docs/semantics.md: go test ./internal/promises -update")
	have := tests(t)
	for _, p := range book {
		require.True(t, p.Kept(), "%s: nothing shows that it is kept: %s", p.Section, p.Text)
		for _, name := range p.Scenarios {
			require.FileExists(t, filepath.Join(root, "scenarios", name+".txtar"), p.Text)
		}
		for _, name := range p.Tests {
			require.True(t, have[name], "there is no test %s, which is to show: %s", name, p.Text)
		}
	}
}

// tests are the names of all Go tests and fuzz targets of the module.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	all := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == "node_modules" || strings.HasPrefix(e.Name(), ".") && path != root) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		code, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(code), -1) {
			all[m[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	return all
}

func TestUnits(t *testing.T) {
	got := Units("# t\n## 1. A\nnot asked\n### 1.1 B\nOne two. `Three` (four)\nfive. Six\n\n| a | b |\n|---|---|\n| c | d |\n- item one\n  goes on\n1. second\n## 2. C\nx", []string{"1.1"})
	want := []Unit{}
	for _, text := range []string{"One two.", "Three (four) five.", "Six", "| c | d |", "item one goes on", "second"} {
		want = append(want, Unit{"1.1", text})
	}
	require.Equal(t, want, got)
}

func TestBook(t *testing.T) {
	units := []Unit{{"1.1", "A b."}, {"1.1", "C."}, {"6", "D."}}
	book, err := Read("# note\n## 1.1\nA b.\n\tscenario: x, y\n\ttest: TestZ\nGone.\n\tinstead: of old\n\n## 6\nD.\n\tlater: soon\n")
	require.NoError(t, err)
	require.Len(t, book, 3)
	require.Equal(t, head+"\n## 1.1\nA b.\n\tscenario: x, y\n\ttest: TestZ\nC.\n\n## 6\nD.\n\tlater: soon\n", Write(units, book))
	again, err := Read(Write(units, book))
	require.NoError(t, err)
	require.Equal(t, []string{"x", "y"}, again[0].Scenarios)
	require.False(t, again[1].Kept())
	for _, bad := range []string{"\ttest: x", "A.\n\tproof: x", "A.\n\ttest:"} {
		_, err := Read(bad)
		require.Error(t, err, bad)
	}
}
