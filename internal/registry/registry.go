// Package registry is what a deployment is made of: agents and tools by name. The package agents of a user's module
// builds one, and every main is one line over it.
package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// Registry holds agents and tools. Build it first, then share it: it is safe for concurrent reading only.
type Registry struct {
	set    *tool.Set
	agents map[string]agentReader
	hooks  hook.Set
	hooked bool
	lock   *Lock           // of AddFS
	files  map[string]bool // the agents that AddFS added
	lost   []error         // why files cannot be read that do not even say whose they are
}

// agentReader gives an agent. That of a file reads it when the agent is first needed.
type agentReader func() (*agent.Definition, error)

// New makes a registry of the given tools. Two tools of the same name, as registered or as models see it, are an error.
func New(tools ...tool.Tool) (*Registry, error) {
	set, err := tool.NewSet(tools...)
	if err != nil {
		return nil, fmt.Errorf("register tools: %w", err)
	}
	return &Registry{set: set, agents: map[string]agentReader{}, files: map[string]bool{}}, nil
}

// Must is New for a package variable; it panics if New fails.
func Must(r *Registry, err error) *Registry {
	if err != nil {
		panic(err)
	}
	return r
}

// Add adds an agent that is built in Go. The mcp.lock of an earlier AddFS holds for it as well. A definition that Check
// refuses, or a second one of a name, is an error.
func (r *Registry) Add(d agent.Definition) error {
	if d.Preset == "" {
		return fmt.Errorf("register agent %s: want what its Resolve returns, with the preset's defaults", d.Name)
	}
	if err := d.Check(); err != nil {
		return fmt.Errorf("register agent %s: %w", d.Name, err)
	}
	for key, schema := range map[string]json.RawMessage{"input": d.Input.Schema, "output": d.Output.Schema} {
		if schema == nil {
			continue
		}
		if _, err := tool.Compile(schema); err != nil {
			return fmt.Errorf("register agent %s: %s.schema: %w", d.Name, key, err)
		}
	}
	if err := r.hooks.Check(&d); err != nil {
		return fmt.Errorf("register agent %s: %w", d.Name, err)
	}
	if r.agents[d.Name] != nil {
		return fmt.Errorf("register agent %s: the name is taken", d.Name)
	}
	d.HooksVersion = r.hooks.Version
	r.lock.Apply(&d)
	find := func(name string) (*agent.Definition, bool) {
		if name == d.Name { // d is not registered yet
			return &d, true
		}
		return r.Agent(name)
	}
	if err := agent.CheckCircle(&d, find); err != nil {
		return fmt.Errorf("register %w", err)
	}
	r.agents[d.Name] = func() (*agent.Definition, error) { return &d, nil }
	return nil
}

// Check reports what is wrong with the registered agents: files that cannot be read, Go tools that are not there, and
// an agent that another one asks and that is not there, or that has no prices where its caller counts money. Tests and
// `countersign doctor` call it.
func (r *Registry) Check() error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(r.agents)) {
		d, err := r.agents[name]()
		problems = append(problems, err)
		if err != nil {
			continue
		}
		for _, t := range d.Tools {
			if _, ok := r.set.Lookup(t.Name); !ok && t.Kind == agent.KindInternal {
				problems = append(problems, fmt.Errorf("agent %s: tool %s is none of NewRegistry's", name, t.Name))
			}
		}
	}
	problems = append(problems, r.lost...)
	if err := agent.CheckAgents(r.Agents(), r.Agent); err != nil {
		problems = append(problems, fmt.Errorf("registered agents: %w", err))
	}
	return errors.Join(problems...)
}

// Hook is the code that agents may name beside tools. It comes once, before the agents, whose definitions record its
// version.
func (r *Registry) Hook(code hook.Set) error {
	if len(r.agents) > 0 || r.hooked {
		return errors.New("register code of agents: want it once, before the agents")
	}
	r.hooks, r.hooked = code, true
	return nil
}

// Hooks returns the code that agents may name.
func (r *Registry) Hooks() hook.Set { return r.hooks }

// With is a registry of the same tools whose agents are r's and these; where a name is in both, it is the new one. Two
// of these of the same name, and a definition that Check refuses, are errors. R stays as it is.
func (r *Registry) With(agents ...agent.Definition) (*Registry, error) {
	out := &Registry{
		set: r.set, agents: map[string]agentReader{}, hooks: r.hooks, files: maps.Clone(r.files), lost: r.lost,
	}
	for _, d := range agents {
		if err := out.Add(d); err != nil {
			return nil, err
		}
	}
	own := maps.Clone(out.agents)
	maps.Copy(out.agents, r.agents)
	maps.Copy(out.agents, own)
	for _, name := range out.Agents() {
		d, _ := out.Agent(name)
		if err := agent.CheckCircle(d, out.Agent); err != nil {
			return nil, fmt.Errorf("register agents: %w", err)
		}
	}
	return out, nil
}

// AddFS adds every agent whose agent.yaml lies in fsys, at whatever depth, with the tools of MCP servers that the file
// mcp.lock at its root pins. A file is read when its agent is first needed, so that one which is wrong stops no other
// agent: see Unfit and Check. A tree without any agent.yaml is an error: the pattern that embedded it has missed them.
func (r *Registry) AddFS(fsys fs.FS) error {
	lock, err := ReadLock(fsys)
	if err != nil {
		return fmt.Errorf("register agents: %w", err)
	}
	if lock != nil {
		r.lock = lock
	}
	found := false
	err = fs.WalkDir(fsys, ".", func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() != agentFile {
			return err
		}
		found = true
		return r.addFile(fsys, file)
	})
	if err == nil && !found {
		err = fmt.Errorf("there is no %[1]s among the files: is it where //go:embed looks, such as */%[1]s?", agentFile)
	}
	if err != nil {
		return fmt.Errorf("register agents: %w", err)
	}
	return nil
}

func (r *Registry) addFile(fsys fs.FS, file string) error {
	text, err := fs.ReadFile(fsys, file)
	if err != nil {
		return err
	}
	stated, lock := NameIn(text), r.lock
	read := sync.OnceValues(func() (*agent.Definition, error) {
		d, err := r.Read(fsys, file)
		if err == nil && stated != "" && stated != d.Name {
			err = fmt.Errorf("%s: name: got %s and %s, want one", file, d.Name, stated)
		}
		d.HooksVersion = r.hooks.Version
		lock.Apply(&d)
		return &d, err
	})
	name := stated
	if name == "" { // as in a file of one line: it has to be read
		d, err := read()
		if err != nil {
			r.lost = append(r.lost, err)
			return nil
		}
		name = d.Name
	}
	if r.agents[name] != nil { // it is not known which of them is meant
		taken := fmt.Errorf("%s: name: got %s, which is that of another agent", file, name)
		read = func() (*agent.Definition, error) { return nil, taken }
	}
	r.agents[name], r.files[name] = read, true
	return nil
}

var nameLine = regexp.MustCompile(`(?m)^name:[ \t]*["']?([a-z0-9-]+)["']?[ \t]*(?:#|\r?$)`)

// NameIn returns the agent's name in the text of its file, which may be wrong otherwise; "" = none is found.
func NameIn(text []byte) string {
	if found := nameLine.FindSubmatch(text); found != nil && agent.ValidAgentName(string(found[1])) {
		return string(found[1])
	}
	return ""
}

// agentFile is the name of a file that defines an agent.
const agentFile = "agent.yaml"

// Read reads one agent file with this registry's tools, and registers nothing.
func (r *Registry) Read(fsys fs.FS, file string) (agent.Definition, error) {
	data, err := fs.ReadFile(fsys, file)
	if err != nil {
		return agent.Definition{}, fmt.Errorf("read agent: %w", err)
	}
	opt := r.Options()
	if opt.Files, err = fs.Sub(fsys, path.Dir(path.Clean(file))); err != nil {
		return agent.Definition{}, fmt.Errorf("read agent: %w", err)
	}
	return agentfile.Parse(path.Clean(file), data, opt)
}

// Options are what an agent file may refer to.
func (r *Registry) Options() agentfile.Options {
	specs := r.set.Specs()
	spec := func(name string) (agent.ToolSpec, bool) {
		for _, t := range specs {
			if t.Name == name {
				return t, true
			}
		}
		return agent.ToolSpec{}, false
	}
	return agentfile.Options{Tools: spec, Registered: specs, Hooks: r.hooks}
}

// Agent finds an agent's current definition.
func (r *Registry) Agent(name string) (*agent.Definition, bool) {
	if read := r.agents[name]; read != nil {
		if d, err := read(); err == nil {
			return d, true
		}
	}
	return nil, false
}

// Unfit returns why an agent is not among Agents; "" = it is, or none of that name is registered. A file that cannot be
// read and does not say whose it is may be that of any agent that is not registered.
func (r *Registry) Unfit(name string) string {
	err := errors.Join(r.lost...)
	if read := r.agents[name]; read != nil {
		_, err = read()
	}
	if err == nil {
		return ""
	}
	return fmt.Sprintf("agent %s cannot be loaded: %v", name, err)
}

// Agents lists the names of the agents that can be read, sorted.
func (r *Registry) Agents() []string {
	names := slices.Sorted(maps.Keys(r.agents))
	return slices.DeleteFunc(names, func(name string) bool { return r.Unfit(name) != "" })
}

// BuiltInGo lists the names of the agents that no file defines, sorted.
func (r *Registry) BuiltInGo() []string {
	return slices.DeleteFunc(r.Agents(), func(name string) bool { return r.files[name] })
}

// Tools returns the registered tools.
func (r *Registry) Tools() *tool.Set { return r.set }
