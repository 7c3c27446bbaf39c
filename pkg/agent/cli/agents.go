package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// agentFile is where a directory holds its agent.
const agentFile = "agent.yaml"

// loadLocalAgents returns the registry with the agents of the current directory: ./agent.yaml and
// ./agents/*/agent.yaml. They replace registered agents of the same name. Agents that cannot be loaded are left out
// and listed in problems. All commands that may resume runs load the same agents.
func (p *program) loadLocalAgents() (known *registry.Registry, problems []error) {
	files, err := localAgentFiles()
	if err != nil {
		return p.registry, []error{err}
	}
	var found []agent.Definition
	for _, f := range files {
		d, err := p.loadAgent(f, agentOverrides{})
		if err != nil {
			problems = append(problems, &agentFileError{f, err})
			continue
		}
		found = append(found, *d)
	}
	if known, err = p.registry.With(found...); err != nil {
		return p.registry, append(problems, fmt.Errorf("%w; in %s", err, strings.Join(files, ", ")))
	}
	return known, problems
}

// localAgentFiles returns the agent files of the current directory.
func localAgentFiles() ([]string, error) {
	files, err := filepath.Glob(filepath.Join("agents", "*", agentFile))
	if err != nil {
		return nil, fmt.Errorf("look for agents: %w", err)
	}
	if _, err := os.Stat(agentFile); err == nil {
		files = append([]string{agentFile}, files...)
	}
	return files, nil
}

// agentFileError says that the agent of a file cannot be loaded.
type agentFileError struct {
	file string
	error
}

func (e *agentFileError) Unwrap() error { return e.error }

// logSkippedAgents logs the local agents that cannot be loaded.
func (p *program) logSkippedAgents(problems []error) {
	for _, problem := range problems {
		p.logLine("countersign: an agent is left out: %s", lines(problem.Error()))
	}
}

// agentOverrides holds the command's flags that replace settings of an agent.
type agentOverrides struct {
	model string // --model; "" = the agent's
	dir   string // --dir; "" = the tools' own roots
}

// loadAgent finds the agent that an argument names: a directory, a file or a registered agent. The error lists all
// problems of a file.
func (p *program) loadAgent(arg string, c agentOverrides) (*agent.Definition, error) {
	d, err := p.findAgent(arg, c)
	if err != nil {
		return nil, err
	}
	if c.model != "" {
		m, err := overrideModel(d.Model, c.model)
		if err != nil {
			return nil, err
		}
		*d = d.Throughout(m) // no fallbacks; delegated agents use it too
	}
	if c.dir != "" { // confines every tool to the folder, and starts the programs of MCP servers there
		root, err := filepath.Abs(c.dir)
		if err != nil {
			return nil, usageErrorf("--dir: %v", err)
		}
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return nil, usageErrorf("--dir: %s is not a directory", c.dir)
		}
		*d = d.Within(root) // delegated agents too
	}
	if err := d.Check(); err != nil {
		return nil, usageErrorf("agent %s: %w", arg, err)
	}
	if _, err := p.newModel(d.Model, nil); err != nil {
		return nil, usageErrorf("agent %s: model: %v", arg, err)
	}
	return d, nil
}

// withModel returns an agent that runs can be started of, with another model.
func (p *program) withModel(name, model string) (*agent.Definition, error) {
	d, known := p.agents().Agent(name)
	if !known {
		return nil, fmt.Errorf("there is no agent %s", line(name))
	}
	m, err := overrideModel(d.Model, model)
	if err != nil {
		return nil, err
	}
	own := d.Throughout(m)
	if _, err := p.newModel(own.Model, nil); err != nil {
		return nil, err
	}
	return &own, nil
}

func (p *program) findAgent(arg string, c agentOverrides) (*agent.Definition, error) {
	info, err := os.Stat(arg)
	switch {
	case err == nil && info.IsDir():
		return p.readAgent(filepath.Join(arg, agentFile), c)
	case err == nil:
		return p.readAgent(arg, c)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, usageErrorf("read agent: %v", err)
	}
	all, _ := p.loadLocalAgents()
	if d, ok := all.Agent(arg); ok {
		own := *d // copied, so that the registry's definition does not change
		own.Tools = append([]agent.ToolSpec(nil), d.Tools...)
		own.MCP = append([]agent.MCPServer(nil), d.MCP...)
		return &own, nil
	}
	known := strings.Join(all.Agents(), ", ")
	if known == "" {
		known = "none"
	}
	return nil, usageErrorf("unknown agent %s: no such file or directory, and not registered; registered: %s",
		line(arg), known)
}

// readAgent reads an agent.yaml and the mcp.lock that belongs to it.
func (p *program) readAgent(file string, c agentOverrides) (*agent.Definition, error) {
	d, err := p.readAgentFile(file, c)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, usageErrorf("read agent: %v", err)
	}
	lock, err := findLock(dir)
	if err != nil {
		return nil, usageErrorf("%w", err)
	}
	lock.Apply(d)
	return d, nil
}

// readAgentFile reads an agent.yaml without mcp.lock. Paths in the file are relative to the file.
func (p *program) readAgentFile(file string, c agentOverrides) (*agent.Definition, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, usageErrorf("read agent: %v", err)
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, usageErrorf("read agent: %v", err)
	}
	opt := p.registry.Options()
	opt.Dir, opt.ModelOptional = dir, c.model != ""
	d, err := agentfile.Parse(file, data, opt)
	if err != nil {
		return nil, usageErrorf("%w", err)
	}
	if d.Model.File != "" && !filepath.IsAbs(d.Model.File) {
		d.Model.File = filepath.Join(dir, d.Model.File)
	}
	return &d, nil
}

// findLock reads the mcp.lock of an agent's folder, else of its parent. It returns nil if there is none.
func findLock(dir string) (*registry.Lock, error) {
	for _, at := range []string{dir, filepath.Dir(dir)} {
		lock, err := registry.ReadLock(os.DirFS(at))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		if lock != nil {
			return lock, nil
		}
	}
	return nil, nil
}
