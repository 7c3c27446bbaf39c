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
	registry *registry.Registry
	clock    clock.Clock
	stdin    io.Reader
	stdout   io.Writer
	stderr   io.Writer
	getenv   func(string) string
	called   string        // how the person called the program, os.Args[0]; "" = countersign
	terminal bool          // a person reads stderr and types into stdin
	patience time.Duration // how long another process that has the store may take to answer
	grace    time.Duration // how long what is under way may take once this process ends, calls of tools above all; 0 = defaultGrace
	bounds   bounds        // of whoever connects

	doing string // the command's name
	home  string // the store directory
	json  bool
	as    string // --as, as it was typed
	ids   []typedID
	typed *typed // what comes from stdin; nil until it is asked for
	aws   local.AWS
}

// typedID is an argument that names something by its id, or by the beginning of it. Fields of the grammar with a tag
// id hold one.
type typedID struct {
	kind string // run, approval, or call: of the run before it
	at   reflect.Value
}

// answers is standard output, and what went wrong with it first.
type answers struct {
	io.Writer
	err error
}

// Write notes the first error. Who reads the exit code is not told that all was said when it was not.
func (a *answers) Write(b []byte) (int, error) {
	n, err := a.Writer.Write(b)
	if a.err == nil {
		a.err = err
	}
	return n, err
}

const defaultHome = ".countersign"

// people is where text for people goes.
func (p *program) people() io.Writer {
	if p.json {
		return p.stderr
	}
	return p.stdout
}

// say writes a line for people.
func (p *program) say(format string, args ...any) { fmt.Fprintf(p.people(), format+"\n", args...) }

// note writes a line on how it goes.
func (p *program) note(format string, args ...any) { fmt.Fprintf(p.stderr, format+"\n", args...) }

// hint is a command line that a person can type as it is.
func (p *program) hint(args ...string) string {
	line := p.calledAs()
	if p.home != defaultHome && p.home != p.getenv("COUNTERSIGN_HOME") {
		line = append(line, "--home", p.home)
	}
	line = append(line, args...)
	for i, a := range line {
		line[i] = quoted(a)
	}
	return strings.Join(line, " ")
}

// quoted is an argument as a POSIX shell takes it.
func quoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@,=+%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// canceled reports whether the person stopped us.
func canceled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
