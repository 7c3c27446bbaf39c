package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
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
	grace        time.Duration  // for running calls after an interrupt
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
func (p *program) agents() web.Agents {
	if p.live != nil {
		return p.live
	}
	return p.registry
}

// outputWriter is standard output. It keeps its first error, so that the exit code reports an incomplete output.
type outputWriter struct {
	io.Writer
	err error
}

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

func (p *program) logLine(format string, args ...any) { fmt.Fprintf(p.stderr, format+"\n", args...) }

// wordColours are the colours of the words that lines of progress begin with, as ANSI has them; others are cyan.
var wordColours = map[string]string{
	"wait": "33", "busy": "33", "below": "36", "done": "32", "trouble": "31", "failed": "31", "disabled": "31",
}

// printText prints a line of the result, unless the result is JSON.
func (p *program) printText(format string, args ...any) {
	if !p.json {
		p.printLine(format, args...)
	}
}

// printJSON writes the result as JSON if --json was given.
func (p *program) printJSON(v any) error {
	if p.json {
		return p.writeJSON(v)
	}
	return nil
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

func quoteShell(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@,=+%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func isInterrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// invocation returns the words with which the person called this program. For `go run` it names the package, because
// the compiled file is temporary.
func (p *program) invocation() []string {
	if strings.Contains(filepath.ToSlash(p.arg0), "/go-build") {
		if info, ok := debug.ReadBuildInfo(); ok && strings.Contains(info.Path, "/") {
			return []string{"go", "run", info.Path}
		}
	}
	return []string{cmp.Or(p.arg0, "countersign")}
}

func (p *program) commandName() string { return strings.Join(p.invocation(), " ") }

// versionFlag prints the version and exits.
type versionFlag bool

// BeforeReset is called by kong as soon as the flag is found, before the rest of the command line is checked.
func (versionFlag) BeforeReset(app *kong.Kong, p *program) error {
	v := lambdafn.ReadBuild()
	app.Exit(exitDone)
	if p.json {
		return p.writeJSON(v)
	}
	p.printLine("%s %s", filepath.Base(cmp.Or(p.arg0, "countersign")), v)
	return nil
}

// The exit codes of docs/cli.md.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitWaiting     = 3
	exitInterrupted = 130
)

// exitCode is an error for a command that has printed its result and exits with a code.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }

type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// reportError prints an error once and returns the exit code.
func (p *program) reportError(ctx context.Context, err error) int {
	var code exitCode
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &code):
		return int(code)
	case isInterrupted(ctx, err):
		return exitInterrupted
	}
	p.logLine("countersign: %s%s", lines(err.Error()), p.idHint(err))
	exit, why := exitFailed, &web.Problem{Type: "failed", Title: "the command failed", Detail: err.Error()}
	if _, ok := errors.AsType[*usageError](err); ok || errors.Is(err, store.ErrNoRun) {
		exit, why.Type, why.Title = exitUsage, "usage", "wrong usage or a bad file"
	}
	if errors.As(err, &why) {
		switch why.Type { // mistakes of the person who typed the command
		case web.InvalidRequest, web.UnknownAgent, web.UnknownBlob, web.NotSupported, web.EditRefused, web.GrantRefused,
			web.AnswerRefused, web.RunNotFound, web.CallNotFound, web.ApprovalNotFound, web.GrantNotFound:
			exit = exitUsage
		}
	}
	shown := any(why)
	if why.Status == 0 { // not the API's
		shown = map[string]any{"type": why.Type, "title": why.Title, "detail": why.Detail}
	}
	if err := p.printJSON(map[string]any{"error": shown}); err != nil {
		p.logLine("countersign: %s", lines(err.Error()))
	}
	return exit
}

var wholeID = regexp.MustCompile(`^[ra][a-z2-7]{25}$`)

// idHint says where to find the id that a command line wants, if err says that there is no such run or approval.
func (p *program) idHint(err error) string {
	var bad *web.Problem
	if !errors.Is(err, store.ErrNoRun) && !errors.Is(err, approval.ErrNotFound) && (!errors.As(err, &bad) ||
		bad.Type != web.RunNotFound && bad.Type != web.ApprovalNotFound) {
		return ""
	}
	for _, id := range p.idArgs {
		value := id.value.String()
		whole := wholeID.MatchString(value)
		switch {
		case id.kind == "approval" && whole && value[0] == 'r':
			return " (this is a run: " + p.commandLine("approvals", "--run", value) + " lists what it asks)"
		case id.kind == "run" && whole && value[0] == 'a':
			return " (this is an approval: " + p.commandLine("approvals") + " lists them with their runs)"
		case id.kind == "approval":
			return " (" + p.commandLine("approvals") + " lists them)"
		case id.kind == "run":
			return " (" + p.commandLine("runs") + " lists them)"
		}
	}
	return ""
}

// runExit returns the exit of a command that followed a run; nil for 0.
func runExit(r web.Run) error {
	switch {
	case r.Status != run.RunDone:
		return exitCode(exitWaiting)
	case r.Reason == run.ReasonError, r.Reason == run.ReasonCancelled:
		return exitCode(exitFailed)
	default:
		return nil
	}
}

// writeJSON writes the one JSON document of a command, with terminal control characters escaped.
func (p *program) writeJSON(v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	if err == nil {
		_, err = p.stdout.Write(people.EscapeJSON(text.Bytes()))
	}
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// Formats of foreign text, on one line and on several.
var (
	line  = people.EscapeLine
	lines = people.EscapeLines
)

// stamp formats a time: in the zone of the person at a terminal, else in UTC.
func (p *program) stamp(t time.Time) string { return people.FormatTimeIn(t, p.zone) }

// quoteText returns foreign text as a quoted value with secrets masked.
func quoteText(s string) string { return `"` + people.ForeignText(s).String() + `"` }

// truncate shortens a line of progress. Nothing that people decide on is truncated.
func truncate(s string, limit int) string {
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	return string(r[:limit]) + "…"
}

func writeApproval(w io.Writer, a approval.Approval, v people.DocumentView) error {
	if _, err := fmt.Fprintf(w, "approval %s (%s)\n", a.ID, a.Status); err != nil {
		return err
	}
	return people.WriteText(w, people.BuildDocument(a, v))
}

func noteSuffix(note string) string {
	if note == "" {
		return ""
	}
	return ": " + quoteText(note)
}

func (p *program) answerCommands(a approval.Approval) []string {
	if a.Kind == approval.KindOutcome {
		return []string{
			p.commandLine("answer", a.Run, a.Call(), "--rerun") + "   carries it out again",
			p.commandLine("answer", a.Run, a.Call(), "--result", "JSON") + "   it took effect, with this result",
			p.commandLine("answer", a.Run, a.Call(), "--error", "TEXT") + "   it failed",
		}
	}
	if a.Kind == approval.KindInput {
		return []string{p.commandLine("approve", a.ID, "--result",
			"JSON") + "   answers; without --result the answer is true", p.commandLine("deny", a.ID)}
	}
	approve := []string{"approve", a.ID}
	if slices.ContainsFunc(a.Decisions, func(d approval.Decision) bool { return d.Action == approval.Edit }) {
		approve = append(approve, "--digest", a.Digest) // without it an approval of edited arguments is refused
	}
	ways := []string{p.commandLine(approve...), p.commandLine("deny", a.ID)}
	if c := a.ChannelsOf(""); !c.Allow(agent.ViaCLI) {
		ways[0] = "approve it by " + c.Words()
	}
	open := slices.IndexFunc(a.Permissions, func(t approval.Permission) bool { return t.Verdict == "" })
	if len(a.Permissions) > 1 && open >= 0 {
		tool := line(a.Permissions[open].Tool)
		ways = append(ways, p.commandLine("approve", a.ID, "--tool", tool)+"   decides about one tool")
	}
	return append(ways, p.commandLine("ask", a.ID, "--note", "TEXT")+"   decides nothing")
}

// readJSONArg reads an argument that is JSON, @FILE, or - for standard input. Errors name the flag and do not repeat
// the value.
func (p *program) readJSONArg(flag, arg string) (json.RawMessage, error) {
	data, err := []byte(arg), error(nil)
	if arg == "-" {
		data, err = io.ReadAll(p.stdin)
	} else if file, ok := strings.CutPrefix(arg, "@"); ok {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, usageErrorf("%s: %v", flag, err)
	}
	v, err := jsonx.CompactJSON(data, jsonx.JSONLimits{})
	if err != nil {
		return nil, usageErrorf("%s: %v", flag, err)
	}
	return v, nil
}

// formatOutput returns a run's output for people: a text as it is, anything else as JSON.
func formatOutput(raw json.RawMessage) string {
	var s string
	switch err := json.Unmarshal(raw, &s); {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case err == nil:
		return lines(s)
	default:
		return lines(string(raw))
	}
}
