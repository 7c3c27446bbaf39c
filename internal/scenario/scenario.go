// Package scenario runs scenarios. A scenario is one txtar archive with an agent, the scripts of its model and its
// people, and the wanted outcome (docs/scenarios.md).
//
// A simulation runs the deployed state machine and handlers in memory. Models, tools, people and channels are fakes.
// One deterministic scheduler and a virtual clock make every simulation of a scenario leave the same trace.
//
//	s, err := scenario.Load("refund.txtar", data)    // strict: file, line and key of every problem
//	r := s.Run(scenario.Options{})                   // compare the run with want.json
//	c := s.Crash(0)                                  // the same with a crash at every call of a port
//
// Faults (package fault) and interventions disturb a simulation at calls of ports. Invariants are checked in every
// disturbed simulation. The wanted outcome is compared unless a disturbance may change it.
//
// # Under a crash, beside what docs/scenarios.md says of crashes
//
//   - Retries take time, so use patterns for instants.
//   - With `reconcile: false`, people settle unknown outcomes. If only the crash made the outcome unknown, an approver
//     settles it from the effect log, and the request is not compared. The number of executions is then an upper bound,
//     since the crash may have kept the call from its tool. The result comes after those of its round known before.
//   - A crash may lose a model request during which a person acted (`"at": "inference:N"`). The action then precedes
//     the retry of that request. Such a simulation has diverged: it must come to rest and is not compared.
package scenario

import (
	"cmp"
	"encoding/json"
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// Scenario is a valid archive. Runs do not change it, and it is safe for concurrent use.
type Scenario struct {
	Name        string // the archive's file name without directory and extension
	Description string // the text before the first file

	*problems                    // of the archive, which has none once it is loaded
	options    agentfile.Options // hooks and tools that the agent may name
	agent      agent.Definition
	start      startInput
	redeployed *agent.Definition // the definition from a line deploy on; nil = no other
	then       *startInput       // continues or forks the run once it has ended; nil = nothing does
	tools      []toolScript      // those of MCP servers come last
	servers    []server
	script     *script.Script
	people     []line
	directory  *directory // of people.yaml; nil = no channel reaches anybody
	notifies   bool       // it has channels, reminders or escalations
	want       want

	calls     map[string]*Scenario // of an agent: runs that have their own script, by the call each carries out
	delegates map[string]*Scenario // the other agents, each with its definition, tools and script
	children  map[string][]want    // the wanted values of their runs, by agent
}

// Load reads an archive. name is the file name for messages. The error lists every problem with the archive's line and
// the key.
func Load(name string, data []byte) (*Scenario, error) {
	return LoadWithOptions(name, data, agentfile.Options{})
}

// LoadWithOptions is Load for a scenario whose agent may name code and registered tools. Registered tools do not run:
// tools.yaml has their results.
func LoadWithOptions(name string, data []byte, options agentfile.Options) (*Scenario, error) {
	s := &Scenario{Name: strings.TrimSuffix(path.Base(name), path.Ext(name)), problems: &problems{archive: name},
		options: options}
	var files map[string]section
	s.Description, files = s.openArchive(data)
	if s.err() != nil {
		return nil, s.err()
	}
	s.loadAgent(files[agentFile])
	s.loadTools(files)
	s.loadServers(files)
	s.start = loadStart(files[inputFile], defaultKey)
	if f, ok := files[thenFile]; ok {
		s.then = new(loadStart(f, thenKey))
	}
	s.loadScript(files[modelFile])
	s.loadDelegates(files)
	if f, ok := files[nowFile]; ok {
		// The definition that a line deploy puts in place. Its tools stay those of the first.
		then := &Scenario{problems: s.problems, options: s.options}
		then.loadAgent(f)
		then.agent.Tools, then.servers = s.agent.Tools, s.servers
		then.lockServers(f)
		s.redeployed = &then.agent
	}
	s.people = loadPeople(files[peopleFile])
	for _, l := range s.people {
		if _, ok := s.delegates[l.Agent]; l.Agent != "" && !ok {
			s.at(l.number, "agent", "got %q, want an agent of %s", l.Agent, agentsFolder)
		}
		if l.Do == "deploy" && s.redeployed == nil {
			s.at(l.number, "do", "got deploy, want it with %s", nowFile)
		}
	}
	s.loadDirectory(files)
	s.notifies = s.directory != nil || slices.ContainsFunc(s.Agents(), func(d agent.Definition) bool {
		return slices.ContainsFunc(d.Permission.Rules, func(r agent.Rule) bool { return r.Remind > 0 || r.Escalate != nil })
	})
	s.want, s.children = loadWant(files[wantFile], slices.Sorted(maps.Keys(s.delegates)))
	if err := s.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Agents returns the definitions of the scenario: first the main run's agent, then its delegates by name.
func (s *Scenario) Agents() []agent.Definition {
	all := []agent.Definition{s.agent}
	for _, name := range slices.Sorted(maps.Keys(s.delegates)) {
		all = append(all, s.delegates[name].agent)
	}
	return all
}

// loadAgent reads the definition. Models and providers are optional, since the script replies in any case.
func (s *Scenario) loadAgent(f section) {
	if f.pinned {
		if err := jsonx.ReadStored("definition", f.data, &s.agent); err != nil {
			f.bad("", "%v", err)
		}
		return
	}
	opt := s.options
	opt.Dir, opt.AllowUnknownTools, opt.ModelOptional = "", true, true
	d, err := agentfile.Parse(s.archive, f.padded(), opt)
	if err != nil {
		s.add(err)
		return
	}
	models := []*agent.ModelSpec{&d.Model, d.Orchestrator.Planner, d.Orchestrator.Router}
	for i := range d.Model.Fallbacks {
		models = append(models, &d.Model.Fallbacks[i])
	}
	for _, m := range models {
		if m != nil && m.Provider == "" {
			m.Provider, m.File = "script", modelFile
		}
	}
	s.agent = d
}

// loadTools reads the tools with their results into the definition. A tool of tools.yaml replaces the one of that name
// in agent.yaml.
func (s *Scenario) loadTools(files map[string]section) {
	f, ok := files[toolsFile]
	if ok {
		known := func(name string) (agent.ToolSpec, bool) { return s.agent.Tool(name) }
		options := agentfile.Options{Tools: known, AllowUnknownTools: true}
		list, err := agentfile.ParseTools(s.archive, f.padded(), options, "results", "reconcile")
		if err != nil {
			s.add(err)
			return
		}
		for _, t := range list {
			c := s.loadToolScript(t)
			if have, ok := known(c.spec.Name); ok && have.Kind.Remote() && !reflect.DeepEqual(have, c.spec) {
				s.at(t.Line, t.Key, "got more of %s, want its name and results alone: %s says what it is", have.Name, agentFile)
			}
			s.tools = append(s.tools, c)
			i := slices.IndexFunc(s.agent.Tools, func(have agent.ToolSpec) bool { return have.Name == c.spec.Name })
			if i < 0 {
				s.agent.Tools = append(s.agent.Tools, c.spec)
				continue
			}
			s.agent.Tools[i] = c.spec
		}
	}
	if s.err() != nil {
		return
	}
	for _, t := range s.agent.Tools {
		if !t.AnsweredLater() && !slices.ContainsFunc(s.tools, func(c toolScript) bool { return c.spec.Name == t.Name }) {
			files[agentFile].bad("tools", "got %s, want it in %s with its results", t.Name, toolsFile)
		}
	}
	if !ok {
		f = files[agentFile]
	}
	// Check the agent with its tools, and report each problem by itself.
	err := s.agent.Check()
	found, isList := errors.AsType[agent.Problems](err)
	if err != nil && !isList {
		f.bad("", "%v", err)
	}
	for _, p := range found {
		f.bad(p.Path, "%s", p.Text)
	}
}

func (s *Scenario) loadScript(f section) {
	var err error
	s.script, err = script.Parse(s.archive, f.padded())
	s.add(err)
}

// startInput is input.json or then.json: the body of POST /v1/runs without agent and continues.
type startInput struct {
	Message       json.RawMessage `json:"message,omitempty"`
	Input         json.RawMessage `json:"input,omitempty"`
	Key           string          `json:"key,omitempty"`
	Continues     string          `json:"continues,omitempty"`
	Subject       string          `json:"subject,omitempty"`
	AccessControl string          `json:"accessControl,omitempty"`
	// then.json: fork at the entry of the first event of this type; "" = continue from the end
	Fork string `json:"fork,omitempty"`

	blocks []run.UserBlock // of Message
}

// The default idempotency keys make the run ids the same every time.
const (
	defaultKey = "scenario"
	thenKey    = "scenario-then"
)

// loadStart reads input.json or then.json. A fork stands only in then.json, without a message or input, and at an
// existing event type.
func loadStart(f section, key string) startInput {
	var s startInput
	if !f.decodeLine(f.data, 0, &s) {
		return startInput{}
	}
	s.Key = cmp.Or(s.Key, key)
	if s.Continues != "" {
		f.bad("continues", "got a run, want none: %s goes on with the run of %s", thenFile, inputFile)
	}
	switch {
	case s.Fork == "":
	case key != thenKey:
		f.bad("fork", "got a fork, want none: %s may branch off the run of %s", thenFile, inputFile)
	case s.Message != nil || s.Input != nil:
		f.bad("fork", "got a message or input beside it, want none: a fork begins with what its parent has")
	case !slices.Contains(run.EventTypes(), s.Fork):
		f.bad("fork", "got %q, want the type of an event", s.Fork)
	}
	if s.Fork != "" {
		return s
	}
	if s.Message != nil {
		var err error
		if s.blocks, err = policy.ParseMessage(s.Message); err != nil {
			f.bad("message", "%v", err)
			return s
		}
	}
	if _, err := policy.StartMessages(s.blocks, s.Input); err != nil {
		f.bad("", "%v", err)
	}
	return s
}

// loadDelegates reads the agents of agents/, and checks that delegation between all agents is possible.
func (s *Scenario) loadDelegates(files map[string]section) {
	s.delegates = map[string]*Scenario{}
	folders := map[string]bool{}
	for file := range files {
		folders[delegateOf(file)] = true
	}
	delete(folders, "")                                        // files of the main agent
	for _, folder := range slices.Sorted(maps.Keys(folders)) { // NAME stands before NAME/CALL
		name, call, isCall := strings.Cut(folder, "/")
		own := map[string]section{}
		for _, f := range delegateFiles {
			if sec, ok := files[agentsFolder+folder+"/"+f]; ok {
				own[f] = sec
			} else if sec, ok := files[agentsFolder+name+"/"+f]; ok && f == agentFile {
				own[f] = sec
			} else if f != toolsFile && f != pinnedFile {
				s.at(1, agentsFolder+folder+"/"+f, "got no such file, want it")
				return
			}
		}
		d := &Scenario{Name: s.Name, problems: s.problems, options: s.options}
		d.loadAgent(own[agentFile])
		d.loadTools(own)
		d.loadScript(own[modelFile])
		if d.agent.Name != "" && d.agent.Name != name {
			own[agentFile].bad("name", "got %q, want %q as its folder", d.agent.Name, name)
		}
		if !isCall {
			d.calls, s.delegates[name] = map[string]*Scenario{}, d
		} else if of := s.delegates[name]; of != nil {
			of.calls[call] = d
		}
	}
	if s.err() != nil {
		return
	}
	names := append(slices.Collect(maps.Keys(s.delegates)), s.agent.Name)
	find := func(name string) (*agent.Definition, bool) {
		if d, ok := s.delegates[name]; ok {
			return &d.agent, true
		}
		return &s.agent, name == s.agent.Name
	}
	if err := agent.CheckAgents(names, find); err != nil {
		files[agentFile].bad("", "%v", err)
	}
}

// Failure is one difference from the wanted values, or one broken invariant. Path is one into want.json, or a file and
// line.
type Failure = script.Mismatch

// Result is the outcome of one simulation.
type Result struct {
	Failures []Failure    // broken invariants, then differences; none = it passed
	Calls    []fault.Call // of ports, in order: the points for faults and interventions
	Diverged bool         // a crash lost a model request during which a person acted, so nothing is compared

	Ineffective int        // interventions that found nothing to do
	Sweeps      int        // sweeps without which nothing would have moved
	Boundaries  []Boundary // states in which a handler began alone after the last disturbance
	Pruned      bool       // it reached a known state, and ended there

	// Effects are, under Options.InvariantsOnly, those that must not be repeated: run, call, tool and arguments, sorted.
	Effects []string

	// Runs is the run of want.json and those that it delegated to, each after its parent, if they were compared. Under
	// Options.InvariantsOnly it is every run, and the earlier run comes first.
	Runs []Run
}

// Run is one run of a scenario, as the journal has it.
type Run struct {
	Seed    run.AgentState // the state from which its journal is folded
	State   run.AgentState // at the end of it
	Journal []run.Entry
}

// Boundary is a state of the simulation in which a handler begins alone.
type Boundary struct {
	Call        int      // the number of its first call of a port
	Fingerprint [16]byte // of the state, regardless of random ids and instants
}

// Options configures a simulation. The zero value runs the scenario as written.
type Options struct {
	Faults        []fault.Point                   // injected at calls of ports
	Interventions []Intervention                  // made before calls of ports
	IsKnownState  func(fingerprint [16]byte) bool // true ends the simulation at the boundary; nil = no state is known

	// Warm lets functions cache the runs that they have read, step and tool each in a process of its own. A crash does
	// not empty the caches. A fingerprint does not include them: do not combine Warm with IsKnownState.
	Warm bool

	// InvariantsOnly checks invariants and compares nothing with want.json, for programs whose outcome is not known. An
	// exhausted script ends the run, and lines that find nothing to do are no failures. An action must still be either
	// taken or refused.
	InvariantsOnly bool
}

// CrashFailure is a simulation with a crash that failed.
type CrashFailure struct {
	At       fault.Call
	Kind     fault.Kind
	Failures []Failure
}

// CrashResult is the outcome of a scenario as written and with crashes.
type CrashResult struct {
	Plain    Result
	Points   int // calls of ports in the plain run
	Runs     int // simulations with a crash
	Diverged int // of these, diverged ones: they only had to come to rest
	Failures []CrashFailure
}

// CrashesInTests returns the number of crashes for each scenario of a test: few, or 0 = all, as in `make crash`.
func CrashesInTests(few int) int {
	if os.Getenv("COUNTERSIGN_CRASHES") == "all" {
		return 0
	}
	return few
}

// Crash runs the scenario as written to count its calls of ports, and then once for each call and each kind of crash.
// With most > 0 it makes at most that many crashes, spread evenly and always the same ones. If the plain run fails,
// there are no crashes.
func (s *Scenario) Crash(most int) CrashResult {
	r := CrashResult{Plain: s.Run(Options{})}
	if len(r.Plain.Failures) > 0 {
		return r
	}
	r.Points = len(r.Plain.Calls)
	kinds := fault.Crashes()
	all := r.Points * len(kinds)
	if most <= 0 || most > all {
		most = all
	}
	offset := crc32.ChecksumIEEE([]byte(s.Name)) // scenarios crash at different places
	for i := range most {
		n := (int(offset%uint32(all)) + i*all/most) % all
		at, kind := r.Plain.Calls[n/len(kinds)], kinds[n%len(kinds)]
		r.Runs++
		got := s.Run(Options{Faults: []fault.Point{{Call: at.Number, Kind: kind}}})
		if got.Diverged {
			r.Diverged++
		}
		if len(got.Failures) > 0 {
			r.Failures = append(r.Failures, CrashFailure{At: at, Kind: kind, Failures: got.Failures})
		}
	}
	return r
}
