package cli

import (
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
)

// program is one invocation and all it knows of the world.
type program struct {
	registry     *registry.Registry
	clock        clock.Clock
	stdin        io.Reader
	stdout       io.Writer
	stderr       io.Writer
	getenv       func(string) string
	arg0         string        // how the person called the program, os.Args[0]; "" = countersign
	terminal     bool          // a person reads stderr and types into stdin
	storeTimeout time.Duration // how long another process that has the store may take to answer
	grace        time.Duration // how long what is under way may take once this process ends, calls of tools above all; 0 = defaultGrace
	timeouts     timeouts      // of whoever connects

	command    string // the command's name
	home       string // the store directory
	json       bool
	as         string // --as, as it was typed
	idArgs     []idArg
	stdinLines *lineReader // what comes from stdin; nil until it is asked for
	aws        local.AWS
}

// idArg is an argument that names something by its id, or by the beginning of it. Fields of the grammar with a tag
// id hold one.
type idArg struct {
	kind  string // run, approval, or call: of the run before it
	value reflect.Value
}

// outputWriter is standard output, and what went wrong with it first.
type outputWriter struct {
	io.Writer
	err error
}

// Write notes the first error. Who reads the exit code is not told that all was said when it was not.
func (a *outputWriter) Write(b []byte) (int, error) {
	n, err := a.Writer.Write(b)
	if a.err == nil {
		a.err = err
	}
	return n, err
}

const defaultHome = ".countersign"

// textWriter is where text for people goes.
func (p *program) textWriter() io.Writer {
	if p.json {
		return p.stderr
	}
	return p.stdout
}

// printLine writes a line for people.
func (p *program) printLine(format string, args ...any) {
	fmt.Fprintf(p.textWriter(), format+"\n", args...)
}

// logLine writes a line on how it goes.
func (p *program) logLine(format string, args ...any) { fmt.Fprintf(p.stderr, format+"\n", args...) }

// commandLine is a command line that a person can type as it is.
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

// quoteShell is an argument as a POSIX shell takes it.
func quoteShell(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@,=+%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// isInterrupted reports whether the person stopped us.
func isInterrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
