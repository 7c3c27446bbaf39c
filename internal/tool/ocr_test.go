package tool

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

// screenshots is the demo material; its screenshots are what these tests read.
const screenshots = "../../agents/screenshots/inbox"

const flight = "Screenshot 2026-02-11 at 10.15.42.png"

func extract(ctx context.Context, t *testing.T, root, path string) (agent.ToolResultData, error) {
	t.Helper()
	tools, err := Builtin()
	require.NoError(t, err)
	args, err := json.Marshal(extractInput{path})
	require.NoError(t, err)
	return tools[3].Call(ctx, Call{Root: root, Args: args})
}

func absolute(t *testing.T, dir string) string {
	t.Helper()
	abs, err := filepath.Abs(dir)
	require.NoError(t, err)
	return abs
}

func TestReadsScreenshots(t *testing.T) {
	if _, err := exec.LookPath("tesseract"); err != nil {
		t.Skip("tesseract is not installed: apt-get install tesseract-ocr")
	}
	for name, words := range map[string][]string{
		flight:                                  {"Your flight is booked", "QK7TZ4", "Lisbon (LIS)", "184.60 EUR"},
		"Screenshot 2026-02-12 at 17.03.08.png": {"ERROR: no space left on device", "Backup FAILED"},
		"Screenshot 2026-02-13 at 08.47.55.png": {"Messages: Jonas", "tennis court is free from 18:00"},
	} {
		r, err := extract(t.Context(), t, absolute(t, screenshots), name)
		require.NoError(t, err)
		require.False(t, r.IsError, r.Content)
		for _, w := range words {
			require.Contains(t, r.Content, w, name)
		}
		again, err := extract(t.Context(), t, absolute(t, screenshots), name)
		require.NoError(t, err)
		require.Equal(t, r, again)
	}
}

func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r, err := extract(t.Context(), t, absolute(t, screenshots), flight)
	require.NoError(t, err)
	require.Equal(t, Errorf(notInstalled), r)
	require.Contains(t, r.Content, "apt-get install tesseract-ocr")
}

func TestOnlyPicturesInTheFolder(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // none of these gets as far as tesseract
	top := t.TempDir()
	dir := filepath.Join(top, "root")
	require.NoError(t, os.Mkdir(dir, 0o755))
	png := []byte("\x89PNG\r\n\x1a\n")
	require.NoError(t, os.WriteFile(filepath.Join(top, "out.png"), png, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text.png"), []byte("hello"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty.png"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "large.png"), png, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(dir, "large.png"), maxPicture+1))
	require.NoError(t, os.Symlink("../out.png", filepath.Join(dir, "link.png")))
	for path, want := range map[string]string{
		"text.png":   "not a picture",
		"empty.png":  "not a picture",
		"large.png":  "pictures of at most 20971520 are read",
		"link.png":   "leads outside",
		"../out.png": "lead outside",
		".":          "is a folder",
		"none.png":   "does not exist",
	} {
		r, err := extract(t.Context(), t, dir, path)
		require.NoError(t, err)
		require.True(t, r.IsError, path)
		require.Contains(t, r.Content, want, path)
	}
}

func TestPicturesAreKnownByTheirFirstBytes(t *testing.T) {
	for head, want := range map[string]bool{
		"\x89PNG\r\n\x1a\n....": true, "\xFF\xD8\xFF\xE0": true, "GIF89a": true, "BM....": true, "II*\x00": true, "MM\x00*": true,
		"RIFF\x00\x00\x00\x00WEBPVP8 ": true, "RIFF\x00\x00\x00\x00WAVEfmt ": false, "RIFF": false,
		"": false, "PNG": false, "%PDF-1.7": false, "/etc/passwd": false,
	} {
		require.Equal(t, want, isPicture([]byte(head)), "%q", head)
	}
}

func TestClean(t *testing.T) {
	require.Equal(t, "a\n\nb", cleanOutput(" \n a\n\fb \f\n"))
	require.Len(t, lastLine(strings.Repeat("x", 1000)), 200)
}
