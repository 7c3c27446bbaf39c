package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// writeLargeFile writes a file that is too large to be inline and returns its path and digest.
func (d *harness) writeLargeFile(name, of string) (path, digest string) {
	d.t.Helper()
	content := bytes.Repeat([]byte(of), 2_000_000/len(of))
	path = filepath.Join(d.dir, name)
	require.NoError(d.t, os.WriteFile(path, content, 0o600))
	return path, store.BlobDigest(content)
}

// A large file goes through the socket of the process that has the store.
func TestAttachThroughTheSocket(t *testing.T) {
	d := newHarness(t, holdingAgent, holdingModel)
	path, digest := d.writeLargeFile("big.pdf", "0123456789")
	first := d.start(t.Context(), "run", d.dir, "--message", "hold", "--key", "first")
	<-d.entered
	second := d.start(t.Context(), "run", d.dir, "--message", "see", "--attach", path, "--key", "second")
	run := <-d.entered
	stored, err := os.ReadFile(filepath.Join(d.home(), "blobs", "T", "default", digest))
	require.NoError(t, err)
	require.Equal(t, digest, store.BlobDigest(stored))
	require.Contains(t, d.run(t.Context(), "", "show", run, "--messages").stdout.String(), "big.pdf (application/pdf) "+digest)
	d.release <- struct{}{}
	d.release <- struct{}{}
	for _, done := range []<-chan *commandResult{first, second} {
		who := <-done
		require.Equal(t, 0, who.code, who.stderr.String())
	}
}

// A message to a run brings files, too.
func TestSendAttaches(t *testing.T) {
	d := newHarness(t, renamingAgent, renamingModel)
	path, digest := d.writeLargeFile("big.pdf", "x")
	parked := d.exits(3, "run", d.dir, "--message", "tidy")
	asks := approvalID.FindAllStringSubmatch(parked.stdout.String(), -1)
	require.Len(t, asks, 2)
	run := runID.FindString(parked.stdout.String())
	d.exits(3, "send", run, "--message", "and this", "--attach", path)
	for _, a := range asks {
		d.run(t.Context(), "", "deny", a[1])
	}
	shown := d.run(t.Context(), "", "show", run, "--messages").stdout.String()
	require.Contains(t, shown, "big.pdf (application/pdf) "+digest)
	require.Contains(t, shown, "Done.")
}

var runID = regexp.MustCompile(`r[a-z2-7]{25}`)

// A file that is another by the time it is sent is refused, whoever is first to see it, and no run is started.
func TestAttachOfAFileThatChanges(t *testing.T) {
	d := newHarness(t, holdingAgent, "")
	path := filepath.Join(d.dir, "big.bin")
	content := bytes.Repeat([]byte("x"), api.MaxInline+1)
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
		err := p.withSession(t.Context(), false, func(s *session) error { return s.uploadFiles(t.Context(), uploads) })
		require.ErrorContains(t, err, "--attach "+path, name)
		require.ErrorContains(t, err, c.want, name)
		require.Equal(t, c.code, p.reportError(t.Context(), err), "%s: %s", name, who.stderr.String())
	}
	files, err := os.ReadDir(filepath.Join(d.home(), "blobs", "T", "default"))
	require.NoError(t, err)
	require.Empty(t, files)
}
