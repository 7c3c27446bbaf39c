package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/repotest"
)

// A new project works as its README says, each command as typed, with no network: the run of the demo waits, a person
// decides, the run ends, and vet and the tests pass. `sam build` has the commands by which this checkout builds its functions.
// All of it is in a folder with a space in its name.
func TestInit(t *testing.T) {
	work := filepath.Join(t.TempDir(), "my work")
	require.NoError(t, os.Mkdir(work, 0o700))
	dir := filepath.Join(work, "my-desk")
	env := append(slices.DeleteFunc(os.Environ(), func(v string) bool { // of the make that runs this test
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") || strings.HasPrefix(v, "COUNTERSIGN_")
	}), "GOPROXY=off", "GOFLAGS=-ldflags=-w -vet=off", "TMPDIR="+work)
	sh := func(at, line string) string {
		t.Helper()
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = at, env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
		return string(out)
	}
	checkout, err := filepath.Abs(repository)
	require.NoError(t, err)
	printed := sh(work, "countersign init my-desk --replace '"+checkout+"'")
	require.Contains(t, printed, "\n  cd my-desk\n  make demo\n  make test\n")
	require.Empty(t, sh(dir, "gofmt -l ."))

	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	_, block, _ := strings.Cut(string(readme), "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	printed = ""
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, "#")
		if m := regexp.MustCompile(`approve (a[a-z2-7]{25})\n`).FindStringSubmatch(printed); m != nil {
			command = strings.ReplaceAll(command, "ID", m[1])
		}
		printed += "\n$ " + command + sh(dir, command)
	}
	for _, want := range []string{
		`Send ana@example.com the mail "Your lamp, order 1002".`, "by user:local", "natural_end", "ok  \tmy-desk/agents\t",
	} {
		require.Contains(t, printed, want)
	}
	mails, err := filepath.Glob(filepath.Join(work, "my-desk-outbox-*", "*.json"))
	require.NoError(t, err)
	require.Len(t, mails, 1, printed)

	p, err := repotest.Read(dir, nil)
	require.NoError(t, err)
	functions := p.Resources("AWS::Serverless::Function")
	require.NotEmpty(t, functions)
	for _, f := range functions { // internal/e2e builds and starts those of the checkout
		build := "make -n build-" + f.ID + " ARTIFACTS_DIR=out"
		require.Equal(t, sh(checkout, build), sh(dir, build))
	}
}
