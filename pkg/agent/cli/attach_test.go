package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// A message to a run brings files, too.
func TestSendAttaches(t *testing.T) {
	d := newHarness(t, renamingAgent, renamingModel)
	content := bytes.Repeat([]byte("x"), 2_000_000) // too large to be inline
	path := filepath.Join(d.dir, "big.pdf")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	parked := d.exits(3, "run", d.dir, "--message", "tidy")
	asks := approvalID.FindAllStringSubmatch(parked.stdout.String(), -1)
	require.Len(t, asks, 2)
	run := runID.FindString(parked.stdout.String())
	d.exits(3, "send", run, "--message", "and this", "--attach", path)
	for _, a := range asks {
		d.run(t.Context(), "", "deny", a[1])
	}
	shown := d.run(t.Context(), "", "show", run, "--messages").stdout.String()
	require.Contains(t, shown, "big.pdf (application/pdf) "+store.BlobDigest(content))
	require.Contains(t, shown, "Done.")
}

var runID = regexp.MustCompile(`r[a-z2-7]{25}`)

// A file that is another by the time it is sent is refused, whoever is first to see it, and no run is started.
func TestAttachOfAFileThatChanges(t *testing.T) {
	d := newHarness(t, holdingAgent, "")
	path := filepath.Join(d.dir, "big.bin")
	content := bytes.Repeat([]byte("x"), web.MaxInline+1)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	_, uploads, err := newUserMessage("look", []string{path})
	require.NoError(t, err)
	require.Len(t, uploads, 1)
	for name, c := range map[string]struct {
		now  func() error
		want string
		code int
	}{
		"shorter": {func() error { return os.WriteFile(path, content[1:], 0o600) }, "1 bytes shorter than it was", 2},
		"other":   {func() error { return os.WriteFile(path, append([]byte("y"), content[1:]...), 0o600) }, "not what its digest says", 2},
		"gone":    {func() error { return os.Remove(path) }, "no such file", 2},
	} {
		require.NoError(t, c.now(), name)
		p, who := d.newProgram("")
		p.home = d.home()
		err := p.withSession(t.Context(), func(s *session) error { return s.uploadFiles(t.Context(), uploads) })
		require.ErrorContains(t, err, "--attach "+path, name)
		require.ErrorContains(t, err, c.want, name)
		require.Equal(t, c.code, p.reportError(t.Context(), err), "%s: %s", name, who.stderr.String())
	}
	files, err := os.ReadDir(filepath.Join(d.home(), "blobs", "T", "default"))
	require.NoError(t, err)
	require.Empty(t, files)
}
