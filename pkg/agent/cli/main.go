package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"
	"golang.org/x/term"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/web"
)

// Main runs the command line of this process over a registry and exits. The first Ctrl-C, or a closed terminal, stops
// following and lets running calls finish; runs stay as they are. The second Ctrl-C kills the process.
func Main(r *registry.Registry) {
	p := &program{
		registry: r, clock: clock.System(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv,
		arg0: os.Args[0], storeTimeout: 10 * time.Second, grace: defaultGrace,
		terminal: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
	}
	p.colour = p.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if p.terminal && term.IsTerminal(int(os.Stdout.Fd())) {
		p.zone = time.Local
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	p.clock.Go(func() {
		<-signals
		signal.Stop(signals)
		signal.Ignore(syscall.SIGHUP) // a terminal that is closed sends it more than once
		cancel()
	})
	os.Exit(p.run(ctx, os.Args[1:]))
}

// command is the target of a node of the grammar.
type command interface {
	run(ctx context.Context, p *program) error
}

// run executes one command line and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	out := &outputWriter{Writer: p.stdout}
	p.stdout = out
	code := exitDone
	if c, helped, err := p.parse(args); !helped {
		if err == nil {
			err = p.completeIDs(ctx)
		}
		if err == nil {
			err = c.run(ctx, p)
		}
		code = p.reportError(ctx, err)
	}
	if out.err != nil && code == exitDone {
		p.logLine("countersign: write the answer: %v", out.err)
		return exitFailed
	}
	return code
}

// parse finds the command. helped reports that the help, or the completion that a shell asked for, was printed.
func (p *program) parse(args []string) (c command, helped bool, err error) {
	var g grammar
	parser, err := kong.New(&g, kong.Name(p.commandName()), kong.Bind(p),
		kong.Description("Durable agents whose actions wait for a countersignature."),
		kong.Writers(p.stdout, p.stderr), kong.Exit(func(int) { helped = true }), kong.WithHyphenPrefixedParameters(true),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		return nil, false, fmt.Errorf("build the command line: %w", err)
	}
	kongplete.Complete(parser, kongplete.WithExitFunc(func(int) { helped = true })) // where a shell asks by COMP_LINE
	if helped {
		return nil, true, nil
	}
	// Usage errors respect --json, too. Bytes that are no UTF-8 would be altered as JSON.
	p.json = slices.Contains(args, "--json")
	if i := slices.IndexFunc(args, func(a string) bool { return !utf8.ValidString(a) }); i >= 0 {
		return nil, false, usageErrorf("%q: want UTF-8; see %s", args[i], p.helpOf(nil))
	}
	parsed, err := parser.Parse(args)
	if helped {
		return nil, true, nil
	}
	if err != nil {
		var path []*kong.Path
		if bad, ok := errors.AsType[*kong.ParseError](err); ok {
			path = bad.Context.Path
		}
		hint := ""
		if strings.HasPrefix(err.Error(), "unexpected argument") && slices.ContainsFunc(path, func(e *kong.Path) bool {
			return e.Command != nil && (e.Command.Name == "run" || e.Command.Name == "send")
		}) {
			hint = " (a message is --message TEXT)"
		}
		return nil, false, usageErrorf("%v%s; see %s", err, hint, p.helpOf(path))
	}
	// Values may begin with a hyphen, so kong accepts the end of the line as a value, and the next flag. An empty value
	// must not mean all: `revoke --digest ""` would revoke every grant.
	isFlag := func(value string) bool {
		return slices.ContainsFunc(parsed.Flags(), func(f *kong.Flag) bool { return value == "--"+f.Name })
	}
	for _, f := range parsed.Flags() {
		if i := slices.Index(args, "--"+f.Name); i >= 0 && i+1 < len(args) && f.Set && !f.IsBool() && isFlag(args[i+1]) {
			return nil, false, usageErrorf("--%s: got the flag %s, want a value (--%[1]s=%[2]s, if it is meant); see %s", f.Name,
				args[i+1], p.helpOf(parsed.Path))
		}
		if f.Set && !f.IsBool() && hasEmptyText(f.Target) {
			return nil, false, usageErrorf("--%s: got nothing, want a value; see %s", f.Name, p.helpOf(parsed.Path))
		}
	}
	for _, e := range parsed.Path {
		if e.Positional != nil && hasEmptyText(e.Positional.Target) {
			return nil, false, usageErrorf("<%s>: got nothing, want a value; see %s", e.Positional.Name, p.helpOf(parsed.Path))
		}
	}
	if _, err := policy.ParsePrincipal(g.As); g.As != "" && err != nil {
		return nil, false, usageErrorf("--as: %v", err)
	}
	p.command, p.json, p.as, p.idArgs = parsed.Selected().Name, g.JSON, g.As, idArgsOf(parsed)
	p.home = cmp.Or(g.Home, p.getenv("COUNTERSIGN_HOME"), defaultHome)
	c, ok := parsed.Selected().Target.Addr().Interface().(command)
	if !ok {
		return nil, false, fmt.Errorf("%s does nothing", parsed.Command())
	}
	return c, false, nil
}

// helpOf returns what prints the help of the command that a path leads to.
func (p *program) helpOf(path []*kong.Path) string {
	words := []string{p.commandName()}
	for _, e := range path {
		if e.Command != nil {
			words = append(words, e.Command.Name)
		}
	}
	return strings.Join(append(words, "--help"), " ")
}

// hasEmptyText reports whether an argument is an empty text, or a list with one.
func hasEmptyText(target reflect.Value) bool {
	v := reflect.Indirect(target)
	if v.Kind() != reflect.Slice {
		return v.Kind() == reflect.String && v.String() == ""
	}
	for i := range v.Len() {
		if hasEmptyText(v.Index(i)) {
			return true
		}
	}
	return false
}

// grammar is the command line, filled by kong.
type grammar struct {
	Home string `placeholder:"DIR" help:"Directory of the embedded store (or COUNTERSIGN_HOME; default ./.countersign)."`
	JSON bool   `name:"json" help:"Print one JSON document on standard output and nothing else there."`
	As   string `placeholder:"WHO" help:"Who acts, as user:ana,group:finance (default: HOME/principals.yaml)."`

	Version versionFlag `help:"Print the version of this program and end."`

	Run       runCommand       `cmd:"" help:"Start a run and follow it."`
	Runs      runsCommand      `cmd:"" help:"List runs, or what was repaired of them."`
	Show      showCommand      `cmd:"" help:"Show a run."`
	Events    eventsCommand    `cmd:"" help:"Show what happened in a run."`
	Approvals approvalsCommand `cmd:"" help:"List what waits for a person, with all a decision needs."`
	Approve   approveCommand   `cmd:"" help:"Approve a call, perhaps with other arguments, and carry its run on."`
	Deny      denyCommand      `cmd:"" help:"Deny a call and carry its run on."`
	Ask       askCommand       `cmd:"" help:"Ask about a call that waits for a person, or answer. It decides nothing."`
	Grants    grantsCommand    `cmd:"" help:"List or revoke standing grants: what agents may call without asking."`
	MCP       mcpCommand       `cmd:"" name:"mcp" help:"Pin the tools of MCP servers."`
	Export    exportCommand    `cmd:"" help:"Write journals, all that has happened to runs, or a run as a test."`
	Audit     auditCommand     `cmd:"" help:"Verify journals: all that has happened to runs."`
	People    peopleCommand    `cmd:"" help:"Say who decides in a deployment."`
	Answer    answerCommand    `cmd:"" help:"Answer for a service, or settle a call whose outcome is unknown."`
	Send      sendCommand      `cmd:"" help:"Say something to a run and carry it on."`
	Cancel    cancelCommand    `cmd:"" help:"End a run."`
	Delete    deleteCommand    `cmd:"" help:"Delete a run that has ended, with all that belongs to it."`
	Resume    resumeCommand    `cmd:"" help:"Carry on everything that is open."`
	Undo      undoCommand      `cmd:"" help:"Take back a call of a run that has ended, once it is approved."`
	Fork      forkCommand      `cmd:"" help:"Branch off a run at one of its entries and follow the new run."`
	Rehearse  rehearseCommand  `cmd:"" help:"Say what deploying this build would do to open runs. Nothing is written."`
	Doctor    doctorCommand    `cmd:"" help:"Say what is wrong, here or in a deployment, and what mends it."`
	Dev       devCommand       `cmd:"" help:"Serve API, console and approval pages until Ctrl-C, and carry on all runs."`
	Test      testCommand      `cmd:"" help:"Run scenarios."`
	Validate  validateCommand  `cmd:"" help:"Check agent definitions without running them."`
	Init      initCommand      `cmd:"" help:"Write a new project: an agent, its tool, its scenarios and the deployment."`

	// Earlier spellings of grants revoke and audit replay.
	Revoke revokeCommand `cmd:"" hidden:""`
	Replay replayCommand `cmd:"" hidden:""`
}

const idLength = 26 // of runs and approvals

// idArgsOf returns the ids of a command line that may be shortened, in order. Those of a deployment may not: the store
// directory has other runs.
func idArgsOf(parsed *kong.Context) (all []idArg) {
	values := slices.Clone(parsed.Selected().Positional)
	for _, f := range parsed.Flags() {
		if f.Name == "deployed" && f.Target.Bool() {
			return nil
		}
		values = append(values, f.Value)
	}
	for _, v := range values {
		kind := v.Tag.Get("id")
		switch at := v.Target; {
		case kind == "":
		case at.Kind() == reflect.Slice:
			for i := range at.Len() {
				all = append(all, idArg{kind, at.Index(i)})
			}
		case at.String() != "":
			all = append(all, idArg{kind, at})
		}
	}
	return all
}

// idArg is an argument that holds an id or its beginning: a field of the grammar with the tag id.
type idArg struct {
	kind  string // run, approval or call; a call belongs to the run before it
	value reflect.Value
}

func (id idArg) isComplete() bool { return id.kind != "call" && len(id.value.String()) >= idLength }

// completeIDs replaces the beginnings of ids by whole ids. A beginning without a match stays, and the command refuses
// it.
func (p *program) completeIDs(ctx context.Context) error {
	if !slices.ContainsFunc(p.idArgs, func(id idArg) bool { return !id.isComplete() }) {
		return nil
	}
	if _, err := os.Stat(p.home); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return p.withSession(ctx, func(s *session) error {
		run := ""
		for _, id := range p.idArgs {
			if !id.isComplete() {
				whole, err := s.findID(ctx, id.kind, id.value.String(), run)
				refused, ok := errors.AsType[*web.Problem](err)
				switch {
				case ok && refused.Type == web.InvalidRequest:
					return usageErrorf("%s %s", id.kind, line(refused.Detail))
				case err != nil && !ok:
					return err
				case err == nil:
					id.value.SetString(whole)
				}
			}
			if id.kind == "run" {
				run = id.value.String()
			}
		}
		return nil
	})
}

// findID returns the id that begins like short, as the API finds it. A call is one of run's.
func (s *session) findID(ctx context.Context, kind, short, run string) (string, error) {
	switch kind {
	case "run":
		r, err := s.loadHead(ctx, short)
		return r.ID, err
	case "approval":
		a, err := s.loadApproval(ctx, short)
		return a.ID, err
	}
	r, err := s.loadRun(ctx, run)
	var fits []string
	for _, c := range r.Calls {
		if strings.HasPrefix(c.ID, short) {
			fits = append(fits, c.ID)
		}
	}
	switch {
	case len(fits) == 0 || slices.Contains(fits, short):
		return short, err
	case len(fits) == 1:
		return fits[0], err
	}
	return "", usageErrorf("call %s: more than one id begins like this: %s", line(short),
		line(strings.Join(fits[:min(len(fits), 5)], ", ")))
}
