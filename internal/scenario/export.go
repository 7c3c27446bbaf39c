package scenario

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// Recorded is what a store has of the runs of one tenant.
type Recorded interface {
	Entries(ctx context.Context, run string) ([]run.Entry, error) // all of a run's journal
	Blob(ctx context.Context, digest string) ([]byte, error)
}

// Export writes a scenario that plays a run again. It has the definition that the run was pinned to, the replies of its
// models as scripts, the results of its tools as fakes, the decisions and answers of people as lines, and the outcome
// as want.json. With redact, words of texts are replaced, each by the same one everywhere. known is as in
// LoadWithOptions.
//
// The scenario is played before it is returned. If a scenario cannot express the run, or plays it differently, the
// error says why.
func Export(ctx context.Context, from Recorded, id string, redact bool, known agentfile.Options) ([]byte, error) {
	x := &exporter{ctx: ctx, from: from, agents: map[string]*recordedAgent{}, children: map[string][]outcome{},
		recorded: map[string]*recording{}}
	if redact {
		kept := map[string]bool{"user": true, "group": true, "true": true, "false": true, "null": true,
			// the tags of thinking and of calls as text
			"thinking": true, "tool": true, "server": true, "name": true, "arguments": true}
		x.redactor = &redactor{kept: kept, replacements: map[string]string{}, counts: map[string]int{}}
	}
	data, err := x.export(id)
	if err != nil {
		return nil, fmt.Errorf("export run %s as a test: %w", id, err)
	}
	s, err := LoadWithOptions(id+".txtar", data, known)
	if err != nil {
		return nil, fmt.Errorf("export run %s as a test: it makes no scenario: %w", id, err)
	}
	if failures := s.Run(Options{}).Failures; len(failures) > 0 {
		text := make([]string, min(5, len(failures)))
		for i := range text {
			text[i] = failures[i].String()
		}
		return nil, fmt.Errorf("export run %s as a test: the scenario does not play what the run did: %s", id,
			strings.Join(text, "; "))
	}
	return data, nil
}

type exporter struct {
	*redactor // nil = texts stay
	ctx       context.Context
	from      Recorded

	agents   map[string]*recordedAgent // by folder: "", agents/NAME/, or agents/NAME/CALL/ of further runs
	lines    []recordedLine
	recorded map[string]*recording // runs that carry out calls, by id
	children map[string][]outcome  // by agent, in the order of the calls
	parked   []time.Time           // when runs began to wait
	problems []error
}

// recordedAgent is the content of one agent's files.
type recordedAgent struct {
	digest       string // of the definition as it was at the start
	definition   agent.Definition
	replies      []script.Line
	results      map[string][]resultForm // by tool
	unreconciled map[string]bool         // tools that could not tell the outcome of a call
}

type recordedLine struct {
	at time.Time
	lineForm
}

// outcome is the outcome of a run in the form of want.json.
type outcome struct {
	Status   run.RunStatus        `json:"status"`
	Reason   run.Reason           `json:"reason,omitempty"`
	Output   json.RawMessage      `json:"output,omitempty"`
	Waiting  []waitOutcome        `json:"waiting,omitempty"`
	Calls    []callOutcome        `json:"calls,omitempty"`
	Executed map[string]int       `json:"executed,omitempty"`
	Children map[string][]outcome `json:"children,omitempty"`
}

type waitOutcome struct {
	Call string      `json:"call"`
	For  run.WaitFor `json:"for"`
}

type callOutcome struct {
	ID     string         `json:"id"`
	Tool   string         `json:"tool"`
	Status run.CallStatus `json:"status"`
	Reason run.CallReason `json:"reason,omitempty"`
}

// addProblem records, once, something that a scenario cannot express.
func (x *exporter) addProblem(format string, args ...any) {
	problem := fmt.Errorf(format, args...)
	if !slices.ContainsFunc(x.problems, func(p error) bool { return p.Error() == problem.Error() }) {
		x.problems = append(x.problems, problem)
	}
}

func (x *exporter) export(id string) ([]byte, error) {
	entries, started, err := x.load(id)
	if err != nil {
		return nil, err
	}
	if by := started.Parent; by != nil {
		return nil, fmt.Errorf("it is below run %s: export that, which plays it, too", by.Root)
	}
	start, seed := started, run.AgentState{}
	var then *startInput
	var before *recording
	var people []byte
	if from := started.From; from != nil {
		earlier, first, err := x.load(from.Run)
		if err != nil {
			return nil, err
		}
		if first.From != nil || first.Definition != started.Definition {
			return nil, fmt.Errorf("it began from run %s, which began from another or ran under another definition: a scenario "+
				"says two runs of one definition", from.Run)
		}
		if before, err = x.recordRun(run.AgentState{}, earlier, first, ""); err != nil {
			return nil, err
		}
		if before.state.Status != run.RunDone {
			return nil, fmt.Errorf("it began from run %s, which has not ended, and a scenario begins its second run when the "+
				"first has: decide what that run waits for, or cancel it, and export again", from.Run)
		}
		people = x.encodePeople() // the second run begins when the first has ended, even if people decided about both
		if seed, then, err = x.loadSecondRun(before, earlier, started); err != nil {
			return nil, err
		}
		start = first
	}
	main, err := x.recordRun(seed, entries, started, "")
	if err != nil {
		return nil, err
	}
	files := []txtar.File{{Name: inputFile, Data: encode(x.newStartInput(start))}}
	x.addChildren(main)
	if before != nil {
		for name, n := range before.executed {
			main.executed[name] += n
		}
	}
	if then != nil && !main.undoes {
		files = append(files, txtar.File{Name: thenFile, Data: encode(then)})
	}
	x.addStubs()
	for _, folder := range slices.Sorted(maps.Keys(x.agents)) {
		files = append(files, x.agentFiles(folder)...)
	}
	people = append(people, x.encodePeople()...)
	want := main.outcome()
	want.Children = x.children
	files = append(files, txtar.File{Name: peopleFile, Data: people}, txtar.File{Name: wantFile, Data: encode(want)})
	if len(x.problems) > 0 {
		return nil, errors.Join(x.problems...)
	}
	about := fmt.Sprintf("Run %s of %s, as it was.\n", id, started.Agent)
	return txtar.Format(&txtar.Archive{Comment: []byte(about), Files: files}), nil
}

// encodePeople returns the lines of people.jsonl since it was last called: in order, each after a wait as long as
// people took.
func (x *exporter) encodePeople() (out []byte) {
	slices.SortStableFunc(x.lines, func(a, b recordedLine) int { return a.at.Compare(b.at) })
	slices.SortFunc(x.parked, time.Time.Compare)
	var since time.Time // time of the previous line, or of the later moment at which the runs began to wait
	for _, l := range x.lines {
		for len(x.parked) > 0 && x.parked[0].Before(l.at) {
			if x.parked[0].After(since) {
				since = x.parked[0]
			}
			x.parked = x.parked[1:]
		}
		waits := l.At == nil && l.Do != "expire" && l.Do != "undo" // an undo comes once the run has ended
		if took := l.at.Sub(since).Truncate(time.Second); waits && !since.IsZero() && took > 0 {
			out = append(out, encode(lineForm{Do: "wait", Text: took.String()})...)
		}
		since = l.at
		out = append(out, encode(l.lineForm)...)
	}
	x.lines, x.parked = nil, nil
	return out
}

// loadSecondRun returns the state that a run began with, if it began from another run, and its then.json.
func (x *exporter) loadSecondRun(before *recording, entries []run.Entry, s run.RunStarted) (
	run.AgentState, *startInput, error,
) {
	for range before.failed - 1 { // the last line is that of all further attempts, and now replies follow it
		before.replies = append(before.replies, before.replies[len(before.replies)-1])
	}
	if s.From.Kind == run.OriginContinues {
		return run.Seed(before.state), x.newStartInput(s), nil
	}
	past, err := run.Fold(run.AgentState{}, entries[:s.From.Seq+1])
	if err != nil {
		return past, nil, err
	}
	seen := map[string]bool{}
	for _, e := range entries[:s.From.Seq+1] {
		for _, ev := range e.Events {
			if name := run.EventType(ev); !seen[name] {
				if seen[name] = true; e.Seq == s.From.Seq {
					return run.Seed(past), &startInput{Fork: name}, nil
				}
			}
		}
	}
	return past, nil, fmt.Errorf("it is a fork of run %s behind entry %d: a scenario forks at the first event of a type",
		s.From.Run, s.From.Seq)
}

// addStubs adds the agents that others name but that never ran. Their models are never asked.
func (x *exporter) addStubs() {
	for again := true; again; {
		again = false
		for _, a := range slices.Collect(maps.Values(x.agents)) {
			for _, t := range a.definition.Tools {
				if t.Agent == nil || x.agents[agentsFolder+t.Agent.Agent+"/"] != nil ||
					t.Agent.Agent == x.agents[""].definition.Name {
					continue
				}
				stub := &recordedAgent{definition: x.agents[""].definition}
				stub.definition.Name, stub.definition.Tools = t.Agent.Agent, nil
				stub.definition.Permission.Rules, stub.definition.Permission.ApprovalTool = nil, ""
				x.agents[agentsFolder+t.Agent.Agent+"/"] = stub
				again = true
			}
		}
	}
}

// encode returns a value as a line of JSON. Every value of this package can be marshaled.
func encode(v any) []byte {
	line, err := jsonx.MarshalVerbatim(v)
	if err != nil {
		panic("scenario: " + err.Error())
	}
	return append(bytes.ReplaceAll(line, []byte{0x7f}, []byte(`\u007f`)), '\n')
}

// load reads a run's journal and its first event.
func (x *exporter) load(id string) ([]run.Entry, run.RunStarted, error) {
	entries, err := x.from.Entries(x.ctx, id)
	if err != nil {
		return nil, run.RunStarted{}, err
	}
	if len(entries) > 0 && len(entries[0].Events) > 0 {
		if started, ok := entries[0].Events[0].(run.RunStarted); ok {
			return entries, started, nil
		}
	}
	return nil, run.RunStarted{}, errNoBeginning
}

var errNoBeginning = errors.New("its journal has no beginning")

func (x *exporter) newStartInput(s run.RunStarted) *startInput {
	body := &startInput{Input: x.json(s.Input), Subject: x.text(s.Subject), AccessControl: x.text(s.AccessControl)}
	if s.Input == nil && len(s.Messages) > 0 {
		blocks := slices.Clone(s.Messages)
		for i, b := range blocks {
			switch b := b.Block.(type) {
			case run.Text:
				blocks[i].Block = run.Text{Text: x.text(b.Text)}
			case run.Media:
				blocks[i].Block = x.media(b)
			}
		}
		body.Message = bytes.TrimSpace(encode(blocks))
	}
	if body.Subject == "" && len(s.By) > 0 { // four eyes keeps this person from approving
		body.Subject = x.text(s.By[0])
	}
	return body
}

// maxMedia is the largest size of a file in a scenario, in bytes of base64.
const maxMedia = 128 << 10

func (x *exporter) media(m run.Media) run.Media {
	if x.redactor != nil {
		return run.Media{Name: x.text(m.Name), MediaType: m.MediaType, Data: "eA=="} // no model reads it
	}
	if m.Blob == "" {
		return m
	}
	data, err := x.from.Blob(x.ctx, m.Blob)
	if err != nil {
		x.addProblem("file %q: %w", m.Name, err)
	}
	m.Blob, m.Data = "", base64.StdEncoding.EncodeToString(data)
	if len(m.Data) > maxMedia {
		x.addProblem("file %q has %d bytes: a scenario holds files of at most %d", m.Name, len(data), maxMedia/4*3)
	}
	return m
}

// content returns a text of the journal, or of the blob that holds it.
func (x *exporter) content(text, blob string) string {
	if blob == "" {
		return text
	}
	data, err := x.from.Blob(x.ctx, blob)
	if err != nil {
		x.addProblem("a long result: %w", err)
	}
	return string(data)
}

func (x *exporter) agentFiles(folder string) []txtar.File {
	a := x.agents[folder]
	pinned, err := json.MarshalIndent(a.definition, "", "  ")
	if err != nil {
		x.addProblem("the definition of %s: %w", a.definition.Name, err)
	}
	var replies, tools bytes.Buffer
	for _, r := range a.replies {
		replies.Write(encode(r))
	}
	for _, t := range a.definition.Tools {
		if t.AnsweredLater() {
			continue
		}
		fmt.Fprintf(&tools, "- name: %s\n", t.Name)
		if a.unreconciled[t.Name] {
			tools.WriteString("  reconcile: false\n")
		}
		for i, r := range a.results[t.Name] {
			if i == 0 {
				tools.WriteString("  results:\n")
			}
			fmt.Fprintf(&tools, "    - %s", encode(r))
		}
	}
	files := []txtar.File{{Name: folder + modelFile, Data: replies.Bytes()}}
	if strings.Count(folder, "/") < 3 { // no other run of that agent
		files = append(files, txtar.File{Name: folder + pinnedFile, Data: append(pinned, '\n')})
	}
	if tools.Len() > 0 {
		files = append(files, txtar.File{Name: folder + toolsFile, Data: tools.Bytes()})
	}
	return files
}

// readDefinition reads a definition that a run was pinned to.
func (x *exporter) readDefinition(digest string, d *agent.Definition) error {
	data, err := x.from.Blob(x.ctx, digest)
	if err != nil {
		return err
	}
	*d = agent.Definition{}
	return jsonx.ReadStored("definition", data, d)
}
