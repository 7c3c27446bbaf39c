package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const repository = "../.."

// notRun are commands of the documents that this test does not run, by how they begin, and why.
var notRun = map[string]string{
	"make test":                  "it runs this test",
	"go run ./cmd/countersign":   "it needs a model server, or a deployment",
	"go run github.com/":         "it needs a published version; TestInit runs the same from this checkout",
	"sam ":                       "it needs the SAM CLI and an AWS account",
	"aws ":                       "it needs an AWS account",
	`eval "$(aws `:               "it needs an AWS account",
	"COUNTERSIGN_TABLE=":         "it needs a deployment; TestImportPeople runs the same with a table",
	`curl --aws-sigv4 "aws:amz:`: "it needs a deployment",
}

// TestCommandsOfTheDocuments types every command of every sh block of the documents, in order, on a folder that
// holds what a clone does. A command ends with 0 where its comment, beside it or above it, does not say "exits N";
// one that goes on "until Ctrl-C" runs beside those after it.
//
// RUN, ID, CALL and SEQ stand for what was printed before. Two things are other than typed: the program is built
// already, so that make builds nothing (GO=true), and the port is a free one.
func TestCommandsOfTheDocuments(t *testing.T) {
	met := map[string]bool{}
	for _, name := range documents(t) {
		commands := commandsOf(t, name)
		if len(commands) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := newReader(t)
			for _, c := range commands {
				if why := skipped(c, met); why == "" {
					r.types(c)
				}
			}
			r.ends()
		})
	}
	for begins := range notRun {
		require.True(t, met[begins], "no document has a command that begins with %q any more", begins)
	}
}

func documents(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "agents/*.md"} {
		found, err := filepath.Glob(filepath.Join(repository, pattern))
		require.NoError(t, err)
		for _, f := range found {
			name, err := filepath.Rel(repository, f)
			require.NoError(t, err)
			names = append(names, name)
		}
	}
	require.Contains(t, names, "README.md")
	return names
}

func skipped(c typedCommand, met map[string]bool) (why string) {
	for begins, reason := range notRun {
		if strings.HasPrefix(c.text, begins) {
			met[begins], why = true, reason
		}
	}
	return why
}

// typedCommand is one command of a document.
type typedCommand struct {
	line    int
	text    string // without its comment
	comment string
}

var (
	exits = regexp.MustCompile(`\bexits (\d+)`)
	fence = regexp.MustCompile("^\\s*```(\\w*)")

	outside = regexp.MustCompile(`^ {4,}(countersign|make|go|sam|aws|curl|git) [a-z-]`)
)

// commandsOf are the commands of a document's sh blocks.
func commandsOf(t *testing.T, name string) (all []typedCommand) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, name))
	require.NoError(t, err)
	inBlock, sh := false, false // within a fence; within one whose commands are typed
	var c typedCommand
	for i, line := range strings.Split(string(data), "\n") {
		if m := fence.FindStringSubmatch(line); m != nil {
			require.Empty(t, c.text, "%s:%d: the block ends within a command", name, i+1)
			inBlock = !inBlock
			sh = inBlock && slices.Contains([]string{"sh", "bash", "shell", "console"}, m[1])
			continue
		}
		if !sh {
			require.False(t, !inBlock && outside.MatchString(line), "%s:%d: want commands in an sh block: %s", name, i+1, line)
			continue
		}
		if c.text == "" {
			c.line = i + 1
		}
		text, comment, ends := shellLine(c.text + line)
		c.comment += comment
		switch c.text = strings.TrimSpace(text); {
		case !ends:
			c.text = text + "\n"
		case c.text != "":
			all, c = append(all, c), typedCommand{}
		case comment == "": // what a comment on a line of its own says is about the next command
			c = typedCommand{}
		}
	}
	return all
}

// shellLine splits the comment off a command, and says whether the command ends with the line.
func shellLine(s string) (text, comment string, ends bool) {
	quote := rune(0)
	for i, c := range s {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '#' && (i == 0 || strings.ContainsRune(" \t\n", rune(s[i-1]))):
			return s[:i], s[i:], true
		}
	}
	return s, "", quote == 0 && !strings.HasSuffix(s, `\`)
}

// reader is somebody who types what a document says.
type reader struct {
	t       *testing.T
	address string // of dev
	keys    io.Writer
	screen  *bufio.Reader
	shell   *exec.Cmd

	seen    strings.Builder // all that was printed
	decided []string        // approvals
	beside  []string        // process ids of commands that go on until Ctrl-C
}

// newReader is a shell in a fresh folder.
func newReader(t *testing.T) *reader {
	t.Helper()
	dir := t.TempDir()
	// One scenario stands for all: other tests run them.
	const clone = `mkdir bin scenarios && cp -R "$1/agents" "$1/Makefile" . && cp "$1/scenarios/approve.txtar" scenarios &&
		ln -s "$2" bin/countersign`
	checkout, err := filepath.Abs(repository)
	require.NoError(t, err)
	c := exec.Command("sh", "-c", clone, "sh", checkout, countersign(t))
	c.Dir = dir
	require.NoError(t, c.Run())
	free := httptest.NewServer(nil) // its address is all that is wanted
	free.Close()
	r := &reader{t: t, address: strings.TrimPrefix(free.URL, "http://"), shell: exec.Command("sh")}
	r.shell.Dir = dir
	r.shell.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(), "GO=true",
	}
	out, in, err := os.Pipe()
	require.NoError(t, err)
	r.shell.Stdout, r.shell.Stderr = in, in
	r.keys, err = r.shell.StdinPipe()
	require.NoError(t, err)
	r.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, r.shell.Start())
	t.Cleanup(func() { _ = syscall.Kill(-r.shell.Process.Pid, syscall.SIGKILL) }) // what a test that failed has left
	require.NoError(t, in.Close())
	r.screen = bufio.NewReader(out)
	t.Cleanup(func() { _ = out.Close() })
	return r
}

func (r *reader) types(c typedCommand) {
	r.t.Helper()
	text := r.filled(c)
	text = strings.ReplaceAll(text, "127.0.0.1:8420", r.address)
	if text == "countersign dev" {
		text += " --addr " + r.address
	}
	if strings.Contains(c.comment, "until Ctrl-C") {
		r.typesBeside(text)
		return
	}
	want := "0"
	if m := exits.FindStringSubmatch(c.comment); m != nil {
		want = m[1]
	}
	printed, code := r.runs("{ " + text + "\n} </dev/null")
	require.Equal(r.t, want, code, "line %d: %s\n%s", c.line, text, printed)
}

const done = "--- that was it:"

// runs has the shell run something, to its end.
func (r *reader) runs(text string) (printed, code string) {
	r.t.Helper()
	_, err := fmt.Fprintf(r.keys, "%s\necho \"%s $?\"\n", text, done)
	require.NoError(r.t, err)
	for {
		line, err := r.screen.ReadString('\n')
		require.NoError(r.t, err, "%s\n%s", text, printed)
		if before, after, ended := strings.Cut(line, done+" "); ended {
			printed += before
			r.seen.WriteString(printed)
			return printed, strings.TrimSpace(after)
		}
		printed += line
	}
}

// typesBeside starts a command that goes on, and waits until it has printed something.
func (r *reader) typesBeside(text string) {
	r.t.Helper()
	pipe := filepath.Join(r.t.TempDir(), "out")
	require.NoError(r.t, syscall.Mkfifo(pipe, 0o600))
	_, code := r.runs(text + " </dev/null >" + pipe + " 2>&1 &")
	require.Equal(r.t, "0", code, text)
	pid, _ := r.runs("echo $!")
	r.beside = append(r.beside, strings.TrimSpace(pid))
	out, err := os.Open(pipe)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = out.Close() })
	first, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(r.t, err, "%s ended and printed %q", text, first)
	go func() { _, _ = io.Copy(io.Discard, out) }() // it must not be held up
}

// ends ends what goes on, and the shell.
func (r *reader) ends() {
	r.t.Helper()
	for _, pid := range slices.Backward(r.beside) {
		printed, _ := r.runs("kill " + pid + " 2>/dev/null; wait " + pid)
		require.NotContains(r.t, printed, "panic")
	}
	_, err := io.WriteString(r.keys, "exit\n")
	require.NoError(r.t, err)
	require.NoError(r.t, r.shell.Wait())
}

var (
	placeholder = regexp.MustCompile(`\b(RUN|ID|CALL|SEQ)\b`)
	decides     = regexp.MustCompile(`\b(?:approve|deny) (a[a-z2-7]{25})\b`)
	aboutCall   = regexp.MustCompile(`\b(undo|answer) (r[a-z2-7]{25}) (\S+)`)
	aRun        = regexp.MustCompile(`\br[a-z2-7]{25}\b`)
	suspended   = regexp.MustCompile(`(?m)^(\d+)\.\d+ .* call_suspended `)
)

// filled is a command with what its placeholders stand for: the newest run that was printed, the newest request
// that nobody has decided, the entry of the newest call that was suspended; of undo and answer, the run and the
// call of their newest hint.
func (r *reader) filled(c typedCommand) string {
	r.t.Helper()
	seen := r.seen.String()
	values := map[string]string{}
	for _, id := range aRun.FindAllString(seen, -1) {
		values["RUN"] = id
	}
	if all := suspended.FindAllStringSubmatch(seen, -1); len(all) > 0 {
		values["SEQ"] = all[len(all)-1][1]
	}
	for _, m := range aboutCall.FindAllStringSubmatch(seen, -1) {
		if strings.Contains(c.text, "countersign "+m[1]+" ") {
			values["RUN"], values["CALL"] = m[2], m[3]
		}
	}
	for _, m := range decides.FindAllStringSubmatch(seen, -1) {
		if !slices.Contains(r.decided, m[1]) {
			values["ID"] = m[1]
		}
	}
	text := placeholder.ReplaceAllStringFunc(c.text, func(name string) string {
		require.NotEmpty(r.t, values[name], "line %d: %s: nothing before says what %s is\n%s", c.line, c.text, name, seen)
		return values[name]
	})
	if m := decides.FindStringSubmatch(text); m != nil {
		r.decided = append(r.decided, m[1])
	}
	return text
}

var (
	inline = regexp.MustCompile("`(countersign|make) ([a-z][^`]*)`")
	flag   = regexp.MustCompile(`(?:^|[ \[|(])(--[a-z][a-z-]*)`)
	target = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
)

// TestCommandsInTheTextOfDocuments: commands that documents speak of exist, with the flags that they are spoken of
// with.
func TestCommandsInTheTextOfDocuments(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	require.NoError(t, err)
	targets := []string{}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, m[1])
	}
	help := map[string]string{}
	for _, name := range documents(t) {
		data, err := os.ReadFile(filepath.Join(repository, name))
		require.NoError(t, err)
		for _, m := range inline.FindAllStringSubmatch(string(data), -1) {
			words := strings.Fields(m[2])
			if m[1] == "make" {
				require.Contains(t, targets, words[0], "%s: %s", name, m[0])
				continue
			}
			said := helpOf(t, help, words)
			for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
				require.Contains(t, said, f[1], "%s: %s", name, m[0])
			}
		}
	}
	require.NotEmpty(t, help)
}

// helpOf is the help of the longest command that the words begin with.
func helpOf(t *testing.T, known map[string]string, words []string) string {
	t.Helper()
	for n := min(2, len(words)); n > 0; n-- {
		command := strings.Join(words[:n], " ")
		if known[command] == "" {
			out, err := exec.Command(countersign(t), append(slices.Clone(words[:n]), "--help")...).Output()
			if err != nil {
				continue
			}
			known[command] = string(out)
		}
		return known[command]
	}
	require.Fail(t, "no such command", "countersign %s", strings.Join(words, " "))
	return ""
}
