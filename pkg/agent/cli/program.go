package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/web/api"
)

// program is one invocation of the command line and its environment.
type program struct {
	registry     *registry.Registry
	clock        clock.Clock
	stdin        io.Reader
	stdout       io.Writer
	stderr       io.Writer
	getenv       func(string) string
	arg0         string         // os.Args[0]; "" = countersign
	terminal     bool           // a person reads stderr and types into stdin
	colour       bool           // stderr shows colours
	zone         *time.Location // of times that people are shown; nil = UTC
	storeTimeout time.Duration  // for a process that has the store to answer
	grace        time.Duration  // for running calls after an interrupt; 0 = defaultGrace
	timeouts     timeouts       // of HTTP clients

	command    string // the command's name
	home       string // the store directory
	json       bool
	as         string // --as, as it was typed
	idArgs     []idArg
	stdinLines *lineReader // nil until stdin is read
	aws        local.AWS
	live       *liveAgents // the agents that dev serves; nil in every other command
}

// agents are those that runs can be started of.
func (p *program) agents() api.Agents {
	if p.live != nil {
		return p.live
	}
	return p.registry
}

// idArg is an argument that holds an id or its beginning: a field of the grammar with the tag id.
type idArg struct {
	kind  string // run, approval or call; a call belongs to the run before it
	value reflect.Value
}

// outputWriter is standard output. It keeps its first error.
type outputWriter struct {
	io.Writer
	err error
}

// Write keeps the first error, so that the exit code reports an incomplete output.
func (a *outputWriter) Write(b []byte) (int, error) {
	n, err := a.Writer.Write(b)
	if a.err == nil {
		a.err = err
	}
	return n, err
}

const defaultHome = ".countersign"

// printLine prints a line for people.
func (p *program) printLine(format string, args ...any) {
	w := p.stdout
	if p.json {
		w = p.stderr
	}
	fmt.Fprintf(w, format+"\n", args...)
}

// logLine prints a line of progress on standard error.
func (p *program) logLine(format string, args ...any) { fmt.Fprintf(p.stderr, format+"\n", args...) }

// wordColours are the colours of the words that lines of progress begin with, as ANSI has them; others are cyan.
var wordColours = map[string]string{
	"wait": "33", "busy": "33", "below": "36", "done": "32", "trouble": "31", "failed": "31", "disabled": "31",
}

// logEvent prints a line of progress. Its first word says what it is about.
func (p *program) logEvent(word, format string, args ...any) {
	p.logLine("%s %s", p.paint(cmp.Or(wordColours[word], "36"), fmt.Sprintf("%-8s", word)), fmt.Sprintf(format, args...))
}

// paint returns a text in a colour of ANSI, where standard error shows colours.
func (p *program) paint(colour, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// commandLine returns a command line that a person can copy.
func (p *program) commandLine(args ...string) string {
	line := p.invocation()
	if p.home != defaultHome && p.home != p.getenv("COUNTERSIGN_HOME") {
		line = append(line, "--home", p.home)
	}
	line = append(line, args...)
	for i, a := range line {
		line[i] = quoteShell(a)
	}
	return strings.Join(line, " ")
}

// quoteShell quotes an argument for a POSIX shell.
func quoteShell(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@,=+%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// isInterrupted reports whether the person interrupted the command.
func isInterrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
