package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"
	"golang.org/x/term"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/registry"
)

// Main runs the command line of this process over a registry and exits. The first Ctrl-C stops following and lets
// running calls finish; runs stay as they are. The second Ctrl-C kills the process.
func Main(r *registry.Registry) {
	p := &program{
		registry: r, clock: clock.System(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv,
		arg0:     os.Args[0],
		terminal: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())), storeTimeout: 10 * time.Second,
	}
	p.colour = p.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if p.terminal && term.IsTerminal(int(os.Stdout.Fd())) {
		p.zone = time.Local
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	p.clock.Go(func() {
		<-signals
		signal.Stop(signals)
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
	for _, a := range args { // usage errors respect --json, too
		p.json = p.json || a == "--json"
	}
	parsed, err := parser.Parse(args)
	if helped {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, usageErrorf("%v; see %s --help", err, p.commandName())
	}
	// Values may begin with a hyphen, so kong accepts the end of the line as a value. An empty value must not mean all:
	// `revoke --digest ""` would revoke every grant.
	for _, f := range parsed.Flags() {
		if v := reflect.Indirect(f.Target); f.Set && !f.IsBool() && v.Kind() == reflect.String && v.String() == "" {
			return nil, false, usageErrorf("--%s: got nothing, want a value; see %s --help", f.Name, p.commandName())
		}
	}
	if _, err := policy.ParsePrincipal(g.As); g.As != "" && err != nil {
		return nil, false, usageErrorf("--as: %v", err)
	}
	p.command, p.home, p.json, p.as, p.idArgs = parsed.Selected().Name, g.Home, g.JSON, g.As, idArgsOf(parsed)
	if p.home == "" {
		p.home = p.getenv("COUNTERSIGN_HOME")
	}
	if p.home == "" {
		p.home = defaultHome
	}
	c, ok := parsed.Selected().Target.Addr().Interface().(command)
	if !ok {
		return nil, false, fmt.Errorf("%s does nothing", parsed.Command())
	}
	return c, false, nil
}
