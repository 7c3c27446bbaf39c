package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/registry"
	webpages "github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// liveAgents is the agents that dev serves: the registered ones, and those of the current directory, which are read
// again after a file of them was saved. Runs keep the definition that they were started with. An agent whose file
// cannot be loaded starts no run until it can. Safe for concurrent use.
type liveAgents struct {
	p *program // its registry has the registered agents alone

	mu     sync.Mutex
	saved  string // what localFilesState was when the files were read
	known  *registry.Registry
	broken map[string][]webpages.AgentProblem // by agent
}

// current returns the agents as their files are now.
func (l *liveAgents) current() (known *registry.Registry, broken map[string][]webpages.AgentProblem) {
	saved := localFilesState()
	l.mu.Lock()
	defer l.mu.Unlock()
	if saved == l.saved {
		return l.known, l.broken
	}
	known, problems := l.p.loadLocalAgents()
	if l.saved != "" {
		l.p.logEvent("reload", "agents were saved: %s", strings.Join(known.Agents(), ", "))
		l.p.logSkippedAgents(problems)
	}
	l.saved, l.known, l.broken = saved, known, map[string][]webpages.AgentProblem{}
	for _, problem := range problems {
		var in *agentFileError
		if errors.As(problem, &in) {
			l.broken[agentNameOf(in.file)] = describeProblems(in.file, in.error)
			continue
		}
		files, _ := localAgentFiles() // the problem is one of all of them together
		for _, file := range files {
			l.broken[agentNameOf(file)] = append(l.broken[agentNameOf(file)], describeProblems(file, problem)...)
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

// nameLine is the line of a file that names its agent.
var nameLine = regexp.MustCompile(`(?m)^name:[ \t]*["']?([a-z0-9-]+)`)

// agentNameOf returns the name of the agent of a file that may be broken: the file's, else its folder's.
func agentNameOf(file string) string {
	text, _ := os.ReadFile(file) // a file that cannot be read names nobody
	if found := nameLine.FindSubmatch(text); found != nil && agent.ValidAgentName(string(found[1])) {
		return string(found[1])
	}
	folder, err := filepath.Abs(filepath.Dir(file))
	if name := filepath.Base(folder); err == nil && agent.ValidAgentName(name) {
		return name
	}
	return "agent"
}

// describeProblems returns what is wrong with a file, each with the line that it is about.
func describeProblems(file string, err error) []webpages.AgentProblem {
	var listed agentfile.Problems
	if !errors.As(err, &listed) {
		return []webpages.AgentProblem{{File: file, Text: err.Error()}}
	}
	text, _ := os.ReadFile(file) // without its text the problem stands alone
	lines := strings.Split(string(text), "\n")
	var all []webpages.AgentProblem
	for _, p := range listed {
		problem := webpages.AgentProblem{File: p.File, Line: p.Line, Key: p.Key, Text: p.Text}
		if p.Line > 0 && p.Line <= len(lines) {
			problem.Source = strings.TrimRight(lines[p.Line-1], "\r")
		}
		all = append(all, problem)
	}
	return all
}

// Agent implements api.Agents.
func (l *liveAgents) Agent(name string) (*agent.Definition, bool) {
	known, broken := l.current()
	if broken[name] != nil {
		return nil, false
	}
	return known.Agent(name)
}

// Agents implements api.Agents.
func (l *liveAgents) Agents() []string {
	known, broken := l.current()
	return slices.DeleteFunc(known.Agents(), func(name string) bool { return broken[name] != nil })
}

// Unfit returns why an agent cannot start; "" = it can, or is unknown.
func (l *liveAgents) Unfit(name string) string {
	problems := l.Broken()[name]
	if len(problems) == 0 {
		return ""
	}
	p := problems[0]
	if p.Line == 0 {
		return fmt.Sprintf("agent %s cannot be loaded: %s", name, p.Text)
	}
	return fmt.Sprintf("agent %s cannot be loaded: %s:%d: %s: %s", name, p.File, p.Line, p.Key, p.Text)
}

// Broken returns what is wrong with the agents that cannot be loaded, by agent.
func (l *liveAgents) Broken() map[string][]webpages.AgentProblem {
	_, broken := l.current()
	return broken
}
