package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// demo is `make demo` without the build: its script, a scratch folder, and a PATH that has no other programs than
// those the script names, so that it has tesseract only where the test puts one there.
type demo struct {
	t       *testing.T
	path    string
	scratch string
}

func newDemo(t *testing.T) *demo {
	t.Helper()
	d := &demo{t: t, path: t.TempDir(), scratch: filepath.Join(t.TempDir(), "demo")}
	for _, name := range []string{"sh", "dirname", "rm", "mkdir", "cp", "ls"} {
		program, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(program, filepath.Join(d.path, name)))
	}
	return d
}

func (d *demo) command() *exec.Cmd {
	cmd := exec.Command("../../agents/screenshots/demo.sh", countersign(d.t), d.scratch)
	cmd.Env = []string{"PATH=" + d.path, "HOME=" + d.t.TempDir()}
	return cmd
}

// files are the names in the demo's folder.
func (d *demo) files() (names []string) {
	d.t.Helper()
	entries, err := os.ReadDir(filepath.Join(d.scratch, "inbox"))
	require.NoError(d.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

var (
	pictures = []string{
		"Screenshot 2026-02-11 at 10.15.42.png", "Screenshot 2026-02-12 at 17.03.08.png", "Screenshot 2026-02-13 at 08.47.55.png",
	}
	notes        = []string{"asdf.txt", "doc1-final-2.txt", "note-1.txt", "untitled.txt"}
	renamedNotes = []string{
		"grandmas_lentil_soup_for_about.txt", "hartmann_rowe_office_supplies.txt", "milk_eggs.txt", "tue_feb_weekly_with_ana.txt",
	}
)

// Without tesseract the demo renames the notes, says of each picture why it was left, and ends well.
func TestDemoWithoutTesseract(t *testing.T) {
	d := newDemo(t)
	out, err := d.command().Output()
	require.NoError(t, err, string(out))
	require.ElementsMatch(t, append(pictures, renamedNotes...), d.files())
	require.Contains(t, string(out), "tesseract is not installed, so pictures stay as they are")
	require.Contains(t, string(out), "I looked through 7 files and renamed 4.")
	_, left, found := strings.Cut(string(out), "Left as they are:\n")
	require.True(t, found, string(out))
	for _, name := range pictures {
		require.Contains(t, left, "- "+name+" (Text in pictures cannot be read: tesseract is not installed on this machine.")
	}
}

// With a tesseract, here one that reads the same in every picture, all seven files are renamed.
func TestDemoWithTesseract(t *testing.T) {
	d := newDemo(t)
	reader := "#!/bin/sh\nwhile read -r line; do :; done\necho Terminal backup\n"
	require.NoError(t, os.WriteFile(filepath.Join(d.path, "tesseract"), []byte(reader), 0o755))
	out, err := d.command().Output()
	require.NoError(t, err, string(out))
	require.ElementsMatch(t, append([]string{"terminal_backup.png", "terminal_backup_2.png", "terminal_backup_3.png"}, renamedNotes...), d.files())
	require.NotContains(t, string(out), "Left as they are")
}

const question = "[a/d/e/ask/l] "

var approval = regexp.MustCompile(`approval\s+(a[a-z2-7]{25})`)

// asked is the request that is shown last.
func asked(t *testing.T, shown string) string {
	t.Helper()
	all := approval.FindAllStringSubmatch(shown, -1)
	require.NotEmpty(t, all, shown)
	return all[len(all)-1][1]
}

// Later on the terminal leaves the run: the demo says so and ends well, and the next one goes on with that run in
// the same folder. Once the run has ended the next one is a fresh one.
func TestDemoLaterGoesOnWithTheRun(t *testing.T) {
	d := newDemo(t)
	terminal := d.onTerminal()
	first := terminal.asks()
	terminal.types("a")
	second := terminal.asks()
	terminal.types("l")
	rest, code := terminal.ended()
	require.Zero(t, code, rest)
	require.Contains(t, rest, "The run waits for a decision. The next `make demo` goes on with it.")
	require.NotContains(t, d.files(), "asdf.txt", "it was approved")
	require.Contains(t, d.files(), "doc1-final-2.txt", "it was left for later")

	terminal = d.onTerminal()
	shown := terminal.asks()
	require.Contains(t, shown, "The demo goes on with the run that was left open")
	require.Contains(t, shown, "grandmas_lentil_soup_for_about.txt")
	require.NotEqual(t, asked(t, first), asked(t, second))
	require.Equal(t, asked(t, second), asked(t, shown), "the same request")
	for range 2 {
		terminal.types("a")
		terminal.asks()
	}
	terminal.types("a")
	rest, code = terminal.ended()
	require.Zero(t, code, rest)
	require.ElementsMatch(t, append(pictures, renamedNotes...), d.files())

	terminal = d.onTerminal()
	require.NotContains(t, terminal.asks(), "goes on with the run")
	require.ElementsMatch(t, append(pictures, notes...), d.files())
	terminal.types("l")
	_, code = terminal.ended()
	require.Zero(t, code)
}

// terminal is the demo on a terminal, and the person before it.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	screen *bufio.Reader
	keys   io.Writer
}

func (d *demo) onTerminal() *terminal {
	d.t.Helper()
	cmd := d.command()
	both, err := pty.Start(cmd)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = both.Close() })
	return &terminal{t: d.t, cmd: cmd, screen: bufio.NewReader(both), keys: both}
}

// asks is what the terminal shows until it asks what to do with a call.
func (m *terminal) asks() string {
	m.t.Helper()
	var shown strings.Builder
	for !strings.HasSuffix(shown.String(), question) {
		c, err := m.screen.ReadByte()
		require.NoError(m.t, err, shown.String())
		shown.WriteByte(c)
	}
	return shown.String()
}

func (m *terminal) types(line string) {
	m.t.Helper()
	_, err := io.WriteString(m.keys, line+"\n")
	require.NoError(m.t, err)
}

// ended is the rest of what the terminal shows, and the exit code.
func (m *terminal) ended() (shown string, code int) {
	m.t.Helper()
	rest, err := io.ReadAll(m.screen)
	if !errors.Is(err, syscall.EIO) { // a terminal's way of saying that nobody has it open any more
		require.NoError(m.t, err)
	}
	_ = m.cmd.Wait() // its error is the exit code
	return string(rest), m.cmd.ProcessState.ExitCode()
}
