package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
)

type rehearseCommand struct {
	Runs     []string `arg:"" optional:"" name:"run" id:"run" help:"These runs alone (default: all that are open)."`
	Agent    []string `placeholder:"AGENT" sep:"none" help:"An agent.yaml to deploy for that of its name. Repeatable."`
	Deployed bool     `help:"Read a deployment's table and bucket (COUNTERSIGN_TABLE, COUNTERSIGN_BUCKET)."`
	Tenant   string   `placeholder:"T" help:"Of a deployment: whose runs (default: default)."`
}

func (c *rehearseCommand) run(ctx context.Context, p *program) error {
	agents, err := c.loadAgents(p)
	if err != nil {
		return err
	}
	if c.Tenant != "" && !c.Deployed {
		return usageErrorf("--tenant: want it with --deployed: the store directory has one tenant")
	}
	table, blobs, done, err := c.openStore(p)
	if err != nil {
		return err
	}
	rep := rehearsalReport{Runs: []rehearsedRun{}}
	if table != nil {
		r := rehearsal{
			Table: table, Blobs: blobs, Tenant: cmp.Or(c.Tenant, local.Tenant), Tools: p.registry.Tools(),
			Hooks: p.registry.Hooks(), Agents: agents, Now: p.clock.Now(),
		}
		rep, err = r.All(ctx, c.Runs...)
		if err = errors.Join(err, done()); errors.Is(err, store.ErrNoRun) {
			return usageErrorf("%v", err)
		}
		if err != nil {
			return err
		}
	}
	for _, run := range rep.Runs {
		word := "ok"
		switch {
		case len(run.Breaks) > 0:
			word = "BREAKS"
		case len(run.Changes) > 0:
			word = "CHANGES"
		}
		name := cmp.Or(line(run.Agent), "an unknown agent")
		p.printText("%-8s run %s of %s, %s", word, run.ID, name, run.Status)
		for _, of := range []struct {
			name  string
			lines []string
		}{{"breaks", run.Breaks}, {"changes", run.Changes}, {"next", run.Next}} {
			for _, text := range of.lines {
				p.printText("  %-8s %s", of.name, line(text))
			}
		}
	}
	switch n := len(rep.Runs); {
	case n == 0:
		p.printText("nothing is open")
	case rep.Breaks == 0 && rep.Changes == 0:
		p.printText("%s: nothing would break, and nothing would be otherwise", counted(int64(n), "open run"))
	default:
		p.printText("%s: %d would break, %d would go on otherwise", counted(int64(n), "open run"), rep.Breaks, rep.Changes)
	}
	if err := p.printJSON(rep); err != nil {
		return err
	}
	if rep.Breaks > 0 {
		return exitCode(exitFailed)
	}
	return nil
}

// loadAgents returns the agents of the deployment: the registered ones, replaced by those of --agent.
func (c *rehearseCommand) loadAgents(p *program) (func(name string) (*agent.Definition, bool), error) {
	known, problems := p.loadLocalAgents()
	p.logSkippedAgents(problems)
	named := map[string]*agent.Definition{}
	for _, arg := range c.Agent {
		d, err := p.loadAgent(arg, agentOverrides{})
		if err != nil {
			return nil, err
		}
		if _, twice := named[d.Name]; twice {
			return nil, usageErrorf("--agent: two of them are named %s", d.Name)
		}
		named[d.Name] = d
	}
	return func(name string) (*agent.Definition, bool) {
		if d, ok := named[name]; ok {
			return d, true
		}
		return known.Agent(name)
	}, nil
}

// openStore opens what the rehearsal reads; done closes it. table is nil if nothing has run yet.
func (c *rehearseCommand) openStore(p *program) (table store.Table, blobs store.Blobs, done func() error, err error) {
	if c.Deployed {
		t, b, err := p.openDeployed()
		return t, b, func() error { return nil }, err
	}
	if _, err := os.Stat(filepath.Join(p.home, "store.db")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, nil
	}
	t, err := local.OpenTable(p.home)
	if errors.Is(err, local.ErrInUse) {
		return nil, nil, nil, usageErrorf("rehearse: the store in %s is in use by another process: end it first", p.home)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	b, err := bolt.OpenFolder(filepath.Join(p.home, "blobs"))
	if err != nil {
		return nil, nil, nil, errors.Join(err, t.Close())
	}
	return t, b, t.Close, nil
}

// openDeployed opens the store of the deployment that the environment names.
func (p *program) openDeployed() (store.Table, store.Blobs, error) {
	cfg, err := p.aws.Config()
	if err != nil {
		return nil, nil, usageErrorf("--deployed: %v", err)
	}
	table, blobs, err := lambdafn.Stored(cfg, p.getenv)
	if err != nil {
		return nil, nil, usageErrorf("--deployed: %v", err)
	}
	return table, blobs, nil
}
