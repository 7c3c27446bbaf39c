package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

type mcpCommand struct {
	Lock mcpLockCommand `cmd:"" help:"Write the tools of the agents' MCP servers to mcp.lock. Tell what differs."`
}

type mcpLockCommand struct {
	Dir   string `placeholder:"DIR" help:"Folder of the agents and of mcp.lock (default: agents, else this one)."`
	Check bool   `help:"Write nothing; exit 1 if mcp.lock would change."`
}

type lockResult struct {
	File    string       `json:"file"`
	Changes []lockChange `json:"changes"`
	Written bool         `json:"written"`
}

// lockChange is a tool that differs from the existing mcp.lock.
type lockChange struct {
	Server string               `json:"server"` // URL or command
	Tool   string               `json:"tool"`
	What   string               `json:"what"` // new, changed or gone
	Was    *registry.LockedTool `json:"was,omitempty"`
	Is     *registry.LockedTool `json:"is,omitempty"`
}

func (c *mcpLockCommand) run(ctx context.Context, p *program) error {
	dir := c.Dir
	if info, err := os.Stat("agents"); dir == "" && err == nil && info.IsDir() {
		dir = "agents"
	}
	dir = filepath.Clean(dir)
	agents, err := p.loadAgentsToLock(dir)
	if err != nil {
		return err
	}
	lock, useless, err := p.buildLock(ctx, agents)
	if err != nil {
		return err
	}
	text, err := lock.Encode()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, registry.LockFile)
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usageErrorf("%v", err)
	}
	old, err := registry.ReadLock(os.DirFS(dir))
	if err != nil {
		if c.Check {
			return usageErrorf("%s: %w", dir, err)
		}
		p.logLine("countersign: %s: %s", dir, lines(err.Error()))
	}
	doc := lockResult{File: file, Changes: diffLocks(old, lock)}
	for _, d := range doc.Changes { // in full, because a reviewer must see every character
		p.printText("%-8s %s of %s", d.What, line(d.Tool), line(d.Server))
		was, is := describeTool(d.Was), describeTool(d.Is)
		for _, l := range was {
			p.printText("  was    %s", l)
		}
		for _, l := range is {
			p.printText("  is     %s", l)
		}
		if slices.Equal(was, is) {
			p.printText("  only its outputSchema differs")
		}
	}
	switch {
	case bytes.Equal(before, text):
		p.printText("%s is up to date: servers %d", line(file), len(lock.Servers))
	case c.Check:
		p.printText("%s would change; run: %s, and review the difference", line(file),
			p.commandLine("mcp", "lock", "--dir", dir))
		return errors.Join(p.printJSON(doc), exitCode(exitFailed))
	default:
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // it is a source file
			return fmt.Errorf("write %s: %w", file, err)
		}
		doc.Written = true
		p.printText("%s is written: servers %d; review the difference and commit it", line(file), len(lock.Servers))
	}
	return errors.Join(p.printJSON(doc), useless)
}

// loadAgentsToLock reads DIR/agent.yaml and DIR/*/agent.yaml, and adds the registered agents that are built in Go.
func (p *program) loadAgentsToLock(dir string) ([]*agent.Definition, error) {
	var files []string
	for _, pattern := range []string{filepath.Join(dir, agentFile), filepath.Join(dir, "*", agentFile)} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, usageErrorf("--dir: %v", err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return nil, usageErrorf("mcp lock: there is no %s in %s or in a folder of it; --dir names the folder of the agents",
			agentFile, dir)
	}
	var agents []*agent.Definition
	for _, file := range files {
		d, _, err := p.readAgentFile(file, agentOverrides{})
		if err != nil {
			return nil, err
		}
		if err := d.Check(); err != nil {
			return nil, usageErrorf("agent %s: %w", file, err)
		}
		agents = append(agents, d)
	}
	for _, name := range p.registry.BuiltInGo() {
		if d, ok := p.registry.Agent(name); ok &&
			!slices.ContainsFunc(agents, func(o *agent.Definition) bool { return o.Name == name }) {
			agents = append(agents, d)
		}
	}
	return agents, nil
}

// buildLock asks every MCP server of the agents for its tools. useless is the exit code if a server has no tool that
// can be used.
func (p *program) buildLock(
	ctx context.Context, agents []*agent.Definition,
) (lock *registry.Lock, useless, err error) {
	remotes, err := local.Remotes(p.home, p.getenv, p.clock, &p.aws)
	if err != nil {
		return nil, nil, err
	}
	lock = &registry.Lock{Servers: []registry.LockedServer{}}
	for _, d := range agents {
		session := remotes[agent.KindMCP].Open(local.Tenant, d)
		defer session.Close()
		lister, ok := session.(runtime.Lister)
		if !ok {
			return nil, nil, errors.New("this program has no connection to MCP servers")
		}
		for _, m := range d.MCP {
			listed, err := lister.List(ctx, m)
			if err != nil {
				return nil, nil, fmt.Errorf("agent %s: %w", d.Name, err)
			}
			set := run.Map(m.Tools, func(t agent.MCPPattern) string { return t.Match })
			for _, pattern := range slices.Concat(m.Allow, m.Deny, set) {
				has := func(t agent.ServerTool) bool { return agent.MatchTool(pattern, t.Name) }
				if !slices.ContainsFunc(listed.Tools, has) {
					p.logLine("agent %s: server %s lists no tool that %q matches", d.Name, m.Name, pattern)
				}
			}
			for _, left := range listed.Left {
				if m.Wants(left.Name) {
					p.logLine("left out %s of %s: %s", line(left.Name), m.Name, line(left.Why))
				}
			}
			if err := lock.Add(m, listed.Tools); err != nil {
				return nil, nil, fmt.Errorf("agent %s: %w", d.Name, err)
			}
			if !slices.ContainsFunc(listed.Tools, func(t agent.ServerTool) bool { return m.Wants(t.Name) && t.Digest != "" }) {
				p.logLine("countersign: agent %s: server %s: none of its %d tools can be used", d.Name, m.Name,
					len(listed.Tools)+len(listed.Left))
				useless = exitCode(exitFailed)
			}
		}
	}
	return lock, useless, nil
}

func diffLocks(old, lock *registry.Lock) []lockChange {
	type key struct{ server, tool string } // a server's URL or command
	index := func(l *registry.Lock) (order []key, tools map[key]*registry.LockedTool) {
		tools = map[key]*registry.LockedTool{}
		for _, s := range l.Servers {
			for _, t := range s.Tools {
				k := key{s.URL + strings.Join(s.Command, " "), t.Name}
				order, tools[k] = append(order, k), &t
			}
		}
		return order, tools
	}
	was, before := index(cmp.Or(old, &registry.Lock{}))
	is, now := index(lock)
	changes := []lockChange{}
	for _, k := range is {
		switch {
		case before[k] == nil:
			changes = append(changes, lockChange{k.server, k.tool, "new", nil, now[k]})
		case before[k].Digest != now[k].Digest:
			changes = append(changes, lockChange{k.server, k.tool, "changed", before[k], now[k]})
		}
	}
	for _, k := range was {
		if now[k] == nil {
			changes = append(changes, lockChange{k.server, k.tool, "gone", before[k], nil})
		}
	}
	return changes
}

// describeTool returns the lines that describe a tool; none for nil.
func describeTool(t *registry.LockedTool) []string {
	if t == nil {
		return nil
	}
	h := t.Annotations
	lines := []string{quoteText(t.Description), "arguments " + line(string(t.Arguments))}
	if h != (agent.MCPHints{}) {
		lines = append(lines, fmt.Sprintf("annotations title %s, readOnly %t, destructive %t, idempotent %t, openWorld %t",
			quoteText(h.Title), h.ReadOnly, h.Destructive, h.Idempotent, h.OpenWorld))
	}
	return lines
}
