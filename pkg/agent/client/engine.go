package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	core "github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/pkg/agent"
)

// Options of Open. The zero value and nil are valid.
type Options struct {
	// Trouble is told of steps that failed and are tried again, such as a tool's lost connection; nil = nobody is.
	Trouble func(function string, err error)
	// DrainFor is how long Engine.Close waits for calls that are under way; 0 = 20 s. What is cut off is carried on by the
	// next Open.
	DrainFor time.Duration
}

// Engine runs agents in this program, in one process and with its state in one folder. The state machine, the handlers
// and the promises are those of a deployment; only one process at a time has the folder. Safe for concurrent use.
type Engine struct {
	home   *local.Home
	feed   *web.Feed
	pipe   *local.Pipe
	server *http.Server
	drain  time.Duration
}

// ErrInUse is the error of Open where another process has the folder.
var ErrInUse = local.ErrInUse

// Open opens the folder dir, or makes it, and goes on with the runs that were open when it was closed. Models, tools
// and secrets are found as the command line finds them: bedrock and Lambda with the credentials that the AWS SDK finds,
// openai with the key in OPENAI_API_KEY, secrets in dir and in the environment. Nobody is sent a message about
// requests: list them with Client.Approvals.
//
// The error is ErrInUse where another process has the folder.
func Open(dir string, r *agent.Registry, o *Options) (*Engine, error) {
	if o == nil {
		o = &Options{}
	}
	c := clock.System()
	clients := &local.AWS{}
	remotes, err := local.Remotes(dir, os.Getenv, c, clients)
	if err != nil {
		return nil, fmt.Errorf("open engine %s: %w", dir, err)
	}
	e := &Engine{feed: web.NewFeed(c), pipe: local.NewPipe(), drain: cmp.Or(o.DrainFor, 20*time.Second)}
	model := func(m core.ModelSpec) (runtime.Model, error) { return local.Adapter(m, dir, os.Getenv, clients, nil) }
	e.home, err = local.Open(dir, r, model, local.Config{
		Sink: e.feed, Trouble: o.Trouble, Clock: c, Remotes: remotes, Functions: clients,
		Embedder: local.Embedder{Dir: dir, Getenv: os.Getenv, From: clients},
	})
	if err != nil {
		return nil, fmt.Errorf("open engine %s: %w", dir, err)
	}
	b := e.home.Backend()
	b.Agents, b.Feed = r, e.feed
	b.Caller = func(req *http.Request) (web.Caller, error) {
		who, err := policy.ParsePrincipal(req.Header.Get(web.AsHeader))
		return web.Caller{Tenant: local.Tenant, Principal: who}, err
	}
	e.server = &http.Server{Handler: local.FinishChanges(web.APIHandler(b)), ReadHeaderTimeout: time.Minute}
	c.Go(func() {
		if err := e.server.Serve(e.pipe); !errors.Is(err, http.ErrServerClosed) && o.Trouble != nil {
			o.Trouble("api", err)
		}
	})
	if err := b.Ready(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("open engine %s: %w", dir, err), e.Close())
	}
	return e, nil
}

// Client makes requests in the name of a person and the groups that the program knows them to be in, such as
// "user:ana,group:finance". The program has authenticated them: nobody checks it again.
func (e *Engine) Client(as string) *Client { return web.NewClient(e.pipe.Dial, as) }

// Wait waits until a run has ended or waits for people, and returns it without messages and calls. While another
// agent's run works on a call of it, it goes on. A run that needs an agent or a tool which this program does not have
// goes on in another program: bound ctx.
func (e *Engine) Wait(ctx context.Context, run string) (Run, error) {
	c := e.Client("user:engine")
	defer c.Close()
	return wait(ctx, c, run)
}

func wait(ctx context.Context, c *Client, run string) (Run, error) {
	after := ""
	for {
		r, err := c.RunWithoutMessages(ctx, run)
		if err != nil {
			return r, err
		}
		if r.Resting() {
			if answered, err := waitBelow(ctx, c, r); err != nil || !answered {
				return r, err
			}
		}
		err = c.Follow(ctx, run, after, func(ev Event) error {
			after = ev.ID
			if ev.Type == "parked" || ev.Type == "finished" {
				return errSeen
			}
			return nil
		})
		if err != nil && !errors.Is(err, errSeen) {
			return Run{}, err
		}
	}
}

// waitBelow waits for the runs that work on calls of a run, and reports whether one has ended: its answer is on its
// way. It does not wait where people are asked about a call of the run itself.
func waitBelow(ctx context.Context, c *Client, r Run) (answered bool, err error) {
	if slices.ContainsFunc(r.Waiting, func(w Waiting) bool { return w.Approval != "" }) {
		return false, nil
	}
	for _, w := range r.Waiting {
		if w.Run == "" {
			continue
		}
		below, err := wait(ctx, c, w.Run)
		if err != nil || below.Status == agent.RunDone {
			return true, err
		}
	}
	return false, nil
}

var errSeen = errors.New("the run parked or finished")

// Close begins nothing more, waits for what is under way as long as Options.DrainFor says, ends the contexts of what
// goes on, and closes the folder. It waits for hooks that do not return at their context's end.
func (e *Engine) Close() error {
	ctx, cancel := clock.System().WithTimeout(context.Background(), e.drain)
	defer cancel()
	_ = e.home.Engine.Drain(ctx) // what is cut off is carried on when the folder is opened again
	e.feed.Close()
	err := e.server.Shutdown(ctx) // requests under way are answered
	if errors.Is(err, context.DeadlineExceeded) {
		err = e.server.Close() // or cut off
	}
	return errors.Join(err, e.home.Close())
}
