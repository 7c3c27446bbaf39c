package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/model/openai"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

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
	first := filesByName{}
	for _, f := range files {
		d, err := p.loadAgent(f, agentOverrides{})
		if err == nil {
			err = first.add(d.Name, f)
		}
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

// filesByName are the files of agents by the agent's name.
type filesByName map[string]namedFile

type namedFile struct {
	path string // as typed
	of   fs.FileInfo
}

// add refuses a name that another file has.
func (first filesByName) add(name, file string) error {
	of, err := os.Stat(file)
	if err != nil {
		return err
	}
	if other, known := first[name]; !known {
		first[name] = namedFile{file, of}
	} else if !os.SameFile(other.of, of) {
		return usageErrorf("%s: name: got %s, which is that of %s; want another one", file, name, other.path)
	}
	return nil
}

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

type agentFileError struct {
	file string
	error
}

func (e *agentFileError) Unwrap() error { return e.error }

// agentFilesOf returns the files that a problem of loadLocalAgents is about: one, or all of them together.
func agentFilesOf(problem error) []string {
	var in *agentFileError
	if errors.As(problem, &in) {
		return []string{in.file}
	}
	files, _ := localAgentFiles()
	return files
}

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
		*d = d.WithModelForAll(m) // no fallbacks; delegated agents use it too
	}
	if c.dir != "" { // confines every tool to the folder, and starts the programs of MCP servers there
		root, err := filepath.Abs(c.dir)
		if err != nil {
			return nil, usageErrorf("--dir: %v", err)
		}
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return nil, usageErrorf("--dir: %s is not a directory", c.dir)
		}
		*d = d.ConfinedTo(root) // delegated agents too
	}
	if err := d.Check(); err != nil {
		return nil, usageErrorf("agent %s: %w", arg, err)
	}
	if _, err := p.newModel(d.Model, nil); err != nil {
		return nil, usageErrorf("agent %s: model: %v", arg, err)
	}
	return d, nil
}

func (p *program) withModel(name, model string) (*agent.Definition, error) {
	d, known := p.agents().Agent(name)
	if !known {
		return nil, fmt.Errorf("there is no agent %s", line(name))
	}
	m, err := overrideModel(d.Model, model)
	if err != nil {
		return nil, err
	}
	own := d.WithModelForAll(m)
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
	all, problems := p.loadLocalAgents()
	for _, problem := range problems { // a registered agent of that name is not what its file was written for
		if slices.ContainsFunc(agentFilesOf(problem), func(file string) bool { return agentNameOf(file) == arg }) {
			return nil, usageErrorf("%w", problem)
		}
	}
	if d, ok := all.Agent(arg); ok {
		own := *d // copied, so that the registry's definition does not change
		return &own, nil
	}
	if why := all.Unfit(arg); why != "" {
		return nil, usageErrorf("%s", why)
	}
	return nil, usageErrorf("unknown agent %s: no such file or directory, and not registered; registered: %s",
		line(arg), cmp.Or(strings.Join(all.Agents(), ", "), "none"))
}

// readAgent reads an agent.yaml and the mcp.lock that belongs to it.
func (p *program) readAgent(file string, c agentOverrides) (*agent.Definition, error) {
	d, dir, err := p.readAgentFile(file, c)
	if err != nil {
		return nil, err
	}
	var lock *registry.Lock // that of the agent's folder, else of its parent; nil = neither has one
	for _, at := range []string{dir, filepath.Dir(dir)} {
		if lock, err = registry.ReadLock(os.DirFS(at)); err != nil {
			return nil, usageErrorf("%s: %w", at, err)
		}
		if lock != nil {
			break
		}
	}
	lock.Apply(d)
	return d, nil
}

// readAgentFile reads an agent.yaml without mcp.lock, and returns the folder to which its paths are relative.
func (p *program) readAgentFile(file string, c agentOverrides) (_ *agent.Definition, dir string, err error) {
	data, err := os.ReadFile(file)
	if err == nil {
		dir, err = filepath.Abs(filepath.Dir(file))
	}
	if inside, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*", agentFile)); err != nil && len(inside) > 0 {
		err = fmt.Errorf("%w; want one of %s", err, strings.Join(inside, ", "))
	}
	if err != nil {
		return nil, "", usageErrorf("read agent: %v", err)
	}
	opt := p.registry.Options()
	opt.Dir, opt.ModelOptional = dir, c.model != ""
	d, err := agentfile.Parse(file, data, opt)
	if err != nil {
		return nil, "", usageErrorf("%w", err)
	}
	if d.Model.File != "" && !filepath.IsAbs(d.Model.File) {
		d.Model.File = filepath.Join(dir, d.Model.File)
	}
	return &d, dir, nil
}

// liveAgents is the agents that dev serves: the registered ones, and those of the current directory, which are read
// again after a file of them was saved. Runs keep the definition that they were started with. An agent whose file
// cannot be loaded starts no run until it can. Safe for concurrent use.
type liveAgents struct {
	p *program // its registry has the registered agents alone

	mu     sync.Mutex
	saved  string // what localFilesState was when the files were read
	known  *registry.Registry
	broken map[string][]web.AgentProblem // by agent
}

func (l *liveAgents) current() (known *registry.Registry, broken map[string][]web.AgentProblem) {
	saved := localFilesState()
	l.mu.Lock()
	defer l.mu.Unlock()
	if saved == l.saved {
		return l.known, l.broken
	}
	known, problems := l.p.loadLocalAgents()
	if l.saved != "" {
		l.p.logEvent("reload", "agents were saved: %s", strings.Join(known.Agents(), ", "))
	}
	l.p.logSkippedAgents(problems)
	l.saved, l.known, l.broken = saved, known, map[string][]web.AgentProblem{}
	for _, problem := range problems {
		for _, file := range agentFilesOf(problem) {
			name := agentNameOf(file)
			l.broken[name] = append(l.broken[name], describeProblems(file, problem)...)
		}
	}
	return l.known, l.broken
}

// localFilesState describes the files that the agents of the current directory are read from: when each was written,
// and how long it is. It is never empty.
func localFilesState() string {
	state := "."
	add := func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json", ".lock"}, filepath.Ext(path)) {
			return nil //nolint:nilerr // what cannot be read is not there
		}
		if info, err := e.Info(); err == nil {
			state += fmt.Sprintf("\n%s %d %d", path, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	}
	_ = filepath.WalkDir("agents", add) // add returns no error
	here, _ := os.ReadDir(".")          // a folder that cannot be read has no agents
	for _, e := range here {
		_ = add(e.Name(), e, nil)
	}
	return state
}

// agentNameOf returns the name of the agent of a file that may be broken: the file's, else its folder's.
func agentNameOf(file string) string {
	text, _ := os.ReadFile(file) // a file that cannot be read names nobody
	if name := registry.NameIn(text); name != "" {
		return name
	}
	folder, err := filepath.Abs(filepath.Dir(file))
	if name := filepath.Base(folder); err == nil && agent.ValidAgentName(name) {
		return name
	}
	return "agent"
}

// describeProblems returns what is wrong with a file, each with the line that it is about.
func describeProblems(file string, err error) []web.AgentProblem {
	var listed agentfile.Problems
	if !errors.As(err, &listed) {
		return []web.AgentProblem{{File: file, Text: err.Error()}}
	}
	text, _ := os.ReadFile(file) // without its text the problem stands alone
	lines := strings.Split(string(text), "\n")
	var all []web.AgentProblem
	for _, p := range listed {
		problem := web.AgentProblem{File: p.File, Line: p.Line, Key: p.Key, Text: p.Text}
		if p.Line > 0 && p.Line <= len(lines) {
			problem.Source = strings.TrimRight(lines[p.Line-1], "\r")
		}
		all = append(all, problem)
	}
	return all
}

func (l *liveAgents) Agent(name string) (*agent.Definition, bool) {
	known, broken := l.current()
	if broken[name] != nil {
		return nil, false
	}
	return known.Agent(name)
}

func (l *liveAgents) Agents() []string {
	known, broken := l.current()
	return slices.DeleteFunc(known.Agents(), func(name string) bool { return broken[name] != nil })
}

// Unfit returns why an agent cannot start; "" = it can, or is unknown.
func (l *liveAgents) Unfit(name string) string {
	known, broken := l.current()
	problems := broken[name]
	if len(problems) == 0 {
		return known.Unfit(name)
	}
	p := problems[0]
	if p.Line == 0 {
		return fmt.Sprintf("agent %s cannot be loaded: %s", name, p.Text)
	}
	return fmt.Sprintf("agent %s cannot be loaded: %s:%d: %s: %s", name, p.File, p.Line, p.Key, p.Text)
}

func (l *liveAgents) Broken() map[string][]web.AgentProblem {
	_, broken := l.current()
	return broken
}

// newModel returns the adapter of a model. Its errors say what to do.
func (p *program) newModel(m agent.ModelSpec, onDelta agent.OnDelta) (runtime.Model, error) {
	model, err := local.Adapter(m, p.home, p.getenv, &p.aws, onDelta)
	switch {
	case err != nil:
		return nil, err
	case m.Provider == "openai":
		return modelWithAdvice{model, cmp.Or(m.BaseURL, openai.DefaultBaseURL), p.openaiAdvice(m)}, nil
	case m.Provider == "bedrock":
		return modelWithAdvice{Model: model, advise: bedrockAdvice}, nil
	default:
		return model, nil
	}
}

// overrideModel applies --model to a model and drops its fallbacks. The value is script:FILE, bedrock:MODEL_ID,
// openai:MODEL, openai:MODEL@BASE_URL or demo.
func overrideModel(m agent.ModelSpec, spec string) (agent.ModelSpec, error) {
	provider, rest, _ := strings.Cut(spec, ":")
	m.Provider, m.ID, m.BaseURL, m.Key, m.Options, m.File, m.Fallbacks = provider, rest, "", "", nil, "", nil
	var err error
	switch {
	case spec == "demo":
		m.ID = "stand-in"
	case provider == "script" && rest != "":
		m.ID = ""
		m.File, err = filepath.Abs(rest)
	case provider == "openai" && rest != "":
		if at := strings.LastIndex(rest, "@http"); at >= 0 {
			m.ID, m.BaseURL = rest[:at], rest[at+1:]
		} else if id, url, ok := strings.Cut(rest, "@"); ok { // else OpenAI would get what is meant for another server
			err = usageErrorf("--model: got %q behind the @ of openai:%s, want a URL with http:// or https://", url, id)
		}
	case provider == "bedrock" && rest != "":
	default:
		err = usageErrorf("--model: got %q, want script:FILE, bedrock:MODEL_ID, openai:MODEL@BASE_URL or demo", spec)
	}
	return m, err
}

// modelWithAdvice adds to a provider's errors the URL that was tried and what to do. It is only for people at a
// command line: a deployed function has neither these variables nor --model.
type modelWithAdvice struct {
	runtime.Model
	url    string // the URL; "" = the SDK's choice
	advise advice
}

// advice returns what to do about an error of a class, or about a model that the server does not know; "" = nothing.
type advice func(class agent.ModelErrorClass, unknown bool) string

func (m modelWithAdvice) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	reply, err := m.Model.Generate(ctx, r)
	var failed *agent.ModelError
	if !errors.As(err, &failed) {
		return reply, err
	}
	advised := *failed
	// A run that begins does not wait for a server that is not running or is elsewhere. One that has come farther does.
	if r.Inference == 1 && (failed.Message == "connection refused" || failed.Message == "host name not found") {
		advised.Lasting = true
	}
	if m.url != "" {
		advised.Message = m.url + ": " + advised.Message
	}
	if todo := m.advise(failed.Class, failed.Lasting); todo != "" {
		if local.DemoPlays(r) {
			todo += " --model demo plays this agent without a model"
		}
		advised.Message += " (" + todo + ")"
	}
	return reply, &advised
}

// CountTokens implements runtime.TokenCounter if the adapter does.
func (m modelWithAdvice) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	return runtime.CountWith(ctx, m.Model, r)
}

func (p *program) openaiAdvice(m agent.ModelSpec) advice {
	const keyVariable = local.EnvOpenAIKey
	secret, named := m.KeySecret()
	return func(class agent.ModelErrorClass, unknown bool) string {
		switch {
		case unknown:
			return "does the server have this model, and is this its URL?"
		case class == agent.ModelConnection:
			return "is the server running, and is this its URL?"
		case class == agent.ModelInvalid && !openai.OwnHost(m.BaseURL):
			return "is this the URL of an OpenAI-compatible API, and does the model take tools?"
		case class == agent.ModelAuth && named:
			return "is the secret " + secret + " (" + tool.EnvSecret + secret + " in the environment) the key of this server?"
		case class == agent.ModelAuth && !openai.OwnHost(m.BaseURL):
			return "does it want a key? " + keyVariable + " goes to OpenAI alone; model.key: ${secret:NAME} in agent.yaml " +
				"names another server's, which " + tool.EnvSecret + "NAME in the environment holds."
		case class == agent.ModelAuth && p.getenv(keyVariable) == "":
			return keyVariable + ", which holds the key, is not set."
		case class == agent.ModelAuth:
			return "is the key in " + keyVariable + " one of this server's?"
		default:
			return ""
		}
	}
}

func bedrockAdvice(class agent.ModelErrorClass, unknown bool) string {
	switch {
	case unknown:
		return "is this model offered in the region AWS_REGION?"
	case class == agent.ModelAuth:
		return "Amazon Bedrock needs AWS_REGION and credentials with access to this model: AWS_PROFILE, " +
			"or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
	case class == agent.ModelConnection:
		return "is there a network, and is AWS_REGION a region of Amazon Bedrock?"
	default:
		return ""
	}
}
