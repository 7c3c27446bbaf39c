package scenario

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/agentfile"
	"github.com/countersign/countersign/pkg/agent/hook"
	"github.com/countersign/countersign/pkg/agent/script"
)

// Scenario is an archive that was read without complaint. It does not change by being run and is safe for concurrent use.
type Scenario struct {
	Name    string // the archive's file name without directory and extension
	Promise string // the text before the first file

	archive string
	known   agentfile.Options // what the agent may name
	hooks   hook.Set
	agent   agent.Definition
	start   start
	then    *start // what goes on with the run once it has ended; nil = nothing does
	tools   []canned
	script  *script.Script
	people  []line
	want    want
}

// Load reads an archive. name is its file's, for messages. The error is everything that is wrong, a line a
// problem, each with the archive's line and the key.
func Load(name string, data []byte) (*Scenario, error) { return LoadWith(name, data, hook.Set{}) }

// LoadWith is Load of a scenario whose agent may name code.
func LoadWith(name string, data []byte, code hook.Set) (*Scenario, error) {
	return LoadKnowing(name, data, agentfile.Options{Hooks: code})
}

// LoadKnowing is Load of a scenario whose agent may name code, and tools that have code: of these, tools.yaml gives the results alone.
// What they would do is not done.
func LoadKnowing(name string, data []byte, known agentfile.Options) (*Scenario, error) {
	s := &Scenario{Name: strings.TrimSuffix(path.Base(name), path.Ext(name)), archive: name, known: known, hooks: known.Hooks}
	var ps problems
	var files map[string]section
	s.Promise, files = open(name, data, &ps)
	if ps.err() != nil {
		return nil, ps.err()
	}
	s.loadAgent(files[agentFile], &ps)
	s.loadTools(files, &ps)
	s.start = loadStart(files[inputFile], defaultKey, &ps)
	if f, ok := files[thenFile]; ok {
		then := loadStart(f, thenKey, &ps)
		s.then = &then
	}
	s.loadScript(files[modelFile], &ps)
	s.people = loadPeople(files[peopleFile], &ps)
	s.want = loadWant(files[wantFile], &ps)
	if err := ps.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Agent is the definition whose runs the scenario tells of.
func (s *Scenario) Agent() agent.Definition { return s.agent }

// loadAgent reads the definition. Its models may be missing or lack a provider: the script answers in any case.
func (s *Scenario) loadAgent(f section, ps *problems) {
	opt := s.known
	opt.Dir, opt.AllowUnknownTools, opt.ModelOptional = "", true, true
	d, err := agentfile.Parse(s.archive, f.padded(), opt)
	if err != nil {
		ps.add(err)
		return
	}
	if d.Model.Provider == "" {
		d.Model.Provider, d.Model.File = "script", modelFile
	}
	others := []*agent.ModelSpec{d.Orchestrator.Planner, d.Orchestrator.Router}
	for i := range d.Model.Fallbacks {
		others = append(others, &d.Model.Fallbacks[i])
	}
	for _, m := range others {
		if m != nil && m.Provider == "" {
			m.Provider, m.File = "script", modelFile
		}
	}
	s.agent = d
}

// loadTools reads the canned tools and puts them into the definition. One that agent.yaml has, too, is laid over it in its place.
func (s *Scenario) loadTools(files map[string]section, ps *problems) {
	f, ok := files[toolsFile]
	if ok {
		s.readTools(f, ps)
	}
	if len(ps.found) > 0 {
		return
	}
	for _, t := range s.agent.Tools {
		if t.Kind != agent.KindService && !slices.ContainsFunc(s.tools, func(c canned) bool { return c.spec.Name == t.Name }) {
			ps.add(files[agentFile].problem(0, "tools", "got "+t.Name+", want it in "+toolsFile+" with its results"))
		}
	}
	if err := s.agent.Check(); err != nil {
		ps.add(f.problem(0, "", err.Error()))
	}
}

func (s *Scenario) readTools(f section, ps *problems) {
	known := func(name string) (agent.ToolSpec, bool) { return s.agent.Tool(name) }
	list, err := agentfile.ParseTools(s.archive, f.padded(), agentfile.Options{Tools: known, AllowUnknownTools: true}, "results", "reconcile")
	if err != nil {
		ps.add(err)
		return
	}
	for _, t := range list {
		c := loadCanned(s.archive, t, ps)
		s.tools = append(s.tools, c)
		i := slices.IndexFunc(s.agent.Tools, func(have agent.ToolSpec) bool { return have.Name == c.spec.Name })
		if i < 0 {
			s.agent.Tools = append(s.agent.Tools, c.spec)
			continue
		}
		s.agent.Tools[i] = c.spec
	}
}

func (s *Scenario) loadScript(f section, ps *problems) {
	var err error
	s.script, err = script.Parse(s.archive, f.padded())
	ps.add(err)
}

// start is input.json or then.json: the body of POST /v1/runs without agent and continues.
type start struct {
	message       []agent.UserBlock
	input         json.RawMessage
	key           string
	subject       string
	accessControl string
}

// defaultKey makes the run's id the same every time.
const (
	defaultKey = "scenario"
	thenKey    = "scenario-then"
)

func loadStart(f section, key string, ps *problems) start {
	var form struct {
		Message       json.RawMessage `json:"message"`
		Input         json.RawMessage `json:"input"`
		Key           string          `json:"key"`
		Continues     string          `json:"continues"`
		Subject       string          `json:"subject"`
		AccessControl string          `json:"accessControl"`
	}
	if err := f.decode(f.data, 0, &form); err != nil {
		ps.add(err)
		return start{}
	}
	s := start{input: form.Input, key: form.Key, subject: form.Subject, accessControl: form.AccessControl}
	if s.key == "" {
		s.key = key
	}
	if form.Continues != "" {
		ps.add(f.problem(f.at("continues"), "continues", "got a run, want none: "+thenFile+" goes on with the run of "+inputFile))
	}
	if form.Message != nil {
		var err error
		if s.message, err = agent.ParseMessage(form.Message); err != nil {
			ps.add(f.problem(f.at("message"), "message", err.Error()))
			return s
		}
	}
	if _, err := agent.StartMessages(s.message, s.input); err != nil {
		ps.add(f.problem(0, "", err.Error()))
	}
	return s
}
