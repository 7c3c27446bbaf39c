package scenario

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// Recorded is what a store has of the runs of one tenant.
type Recorded interface {
	Entries(ctx context.Context, run string) ([]run.Entry, error) // all of a run's journal
	Blob(ctx context.Context, digest string) ([]byte, error)
}

// Export writes a scenario that plays a run again: with the definition that it was pinned to, the replies of its models
// as scripts, the results of its tools as fakes, the decisions and answers of people as lines, and what it came to as
// want.json. With redact, words of texts are replaced, each by the same one everywhere. known is as in LoadWithOptions.
//
// The scenario is played before it is returned. A run that a scenario cannot say, or that comes to something else when
// it is played, is an error that says why.
func Export(ctx context.Context, from Recorded, id string, redact bool, known agentfile.Options) ([]byte, error) {
	x := &exporter{ctx: ctx, from: from, agents: map[string]*recordedAgent{}, children: map[string][]outcome{}}
	if redact {
		kept := map[string]bool{"user": true, "group": true}
		x.words = &redactor{kept: kept, as: map[string]string{}, next: map[string]int{}}
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

// exporter makes one scenario.
type exporter struct {
	ctx   context.Context
	from  Recorded
	words *redactor // nil = texts stay

	agents   map[string]*recordedAgent // by folder: "", agents/NAME/, or agents/NAME/CALL/ of further runs
	lines    []recordedLine
	children map[string][]outcome // by agent, in the order of the calls
	parked   []time.Time          // when runs began to wait
	problems []error
}

// recordedAgent is what the files of one agent are made of.
type recordedAgent struct {
	digest     string // of the definition as it was at the start
	definition agent.Definition
	replies    []reply
	results    map[string][]resultForm // by tool
	unsure     map[string]bool         // tools that do not know what became of a call
}

// recordedLine is a line of people.jsonl and when it was.
type recordedLine struct {
	at time.Time
	lineForm
}

// reply is a line of model.jsonl.
type reply struct {
	Text  string                `json:"text,omitempty"`
	Calls []agentCall           `json:"calls,omitempty"`
	Empty bool                  `json:"empty,omitempty"`
	Error agent.ModelErrorClass `json:"error,omitempty"`
	Stop  string                `json:"stop,omitempty"`
	Usage *usage                `json:"usage,omitempty"`
	Notes bool                  `json:"notes,omitempty"`
}

type agentCall struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type usage struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
}

// outcome is what a run came to, as want.json says it.
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

// cannot notes something that a scenario cannot say.
func (x *exporter) cannot(format string, args ...any) {
	x.problems = append(x.problems, fmt.Errorf(format, args...))
}

func (x *exporter) export(id string) ([]byte, error) {
	entries, started, err := x.load(id)
	if err != nil {
		return nil, err
	}
	start, seed := started, run.AgentState{}
	var then any
	var before *recording
	if from := started.From; from != nil {
		earlier, first, err := x.load(from.Run)
		if err != nil {
			return nil, err
		}
		if first.From != nil || first.Definition != started.Definition {
			return nil, fmt.Errorf("it began from run %s, which began from another or ran under another definition: a scenario "+
				"says two runs of one definition", from.Run)
		}
		if before, err = x.record(run.AgentState{}, earlier, first, ""); err != nil {
			return nil, err
		}
		if seed, then, err = x.follow(before, earlier, started); err != nil {
			return nil, err
		}
		start = first
	}
	main, err := x.record(seed, entries, started, "")
	if err != nil {
		return nil, err
	}
	files := []txtar.File{{Name: inputFile, Data: encode(x.start(start))}}
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
	people := x.people()
	want := main.outcome(x)
	want.Children = x.children
	files = append(files, txtar.File{Name: peopleFile, Data: people}, txtar.File{Name: wantFile, Data: encode(want)})
	if len(x.problems) > 0 {
		return nil, errors.Join(x.problems...)
	}
	about := fmt.Sprintf("Run %s of %s, as it was.\n", id, started.Agent)
	return txtar.Format(&txtar.Archive{Comment: []byte(about), Files: files}), nil
}

// people returns people.jsonl: the lines in order, each behind the time that people took for it.
func (x *exporter) people() (out []byte) {
	slices.SortStableFunc(x.lines, func(a, b recordedLine) int { return a.at.Compare(b.at) })
	slices.SortFunc(x.parked, time.Time.Compare)
	var since time.Time // when the newest line was, or all began to wait for this one
	for _, l := range x.lines {
		for len(x.parked) > 0 && x.parked[0].Before(l.at) {
			if x.parked[0].After(since) {
				since = x.parked[0]
			}
			x.parked = x.parked[1:]
		}
		if took := l.at.Sub(since).Truncate(time.Second); l.At == nil && l.Do != "expire" && !since.IsZero() && took > 0 {
			out = append(out, encode(lineForm{Do: "wait", Text: took.String()})...)
		}
		since = l.at
		out = append(out, encode(l.lineForm)...)
	}
	return out
}

// follow returns what a run is folded from that began from another, and its then.json.
func (x *exporter) follow(before *recording, entries []run.Entry, s run.RunStarted) (run.AgentState, any, error) {
	if s.From.Kind == run.OriginContinues {
		return run.Seed(before.state), x.start(s), nil
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
					return run.Seed(past), map[string]string{"fork": name}, nil
				}
			}
		}
	}
	return past, nil, fmt.Errorf("it is a fork of run %s behind entry %d: a scenario forks at the first event of a type",
		s.From.Run, s.From.Seq)
}

// addStubs writes the agents that others name and that never ran: nothing asks them.
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

// encode returns a value as a line of JSON. Nothing here fails to marshal.
func encode(v any) []byte {
	line, err := jsonx.MarshalVerbatim(v)
	if err != nil {
		panic("scenario: " + err.Error())
	}
	return append(bytes.ReplaceAll(line, []byte{0x7f}, []byte(`\u007f`)), '\n')
}

// load reads a run's journal and its first fact.
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

// start returns the body of the request that starts the run.
func (x *exporter) start(s run.RunStarted) any {
	body := struct {
		Message       []run.UserBlock `json:"message,omitempty"`
		Input         json.RawMessage `json:"input,omitempty"`
		Subject       string          `json:"subject,omitempty"`
		AccessControl string          `json:"accessControl,omitempty"`
	}{Input: x.json(s.Input), Subject: x.text(s.Subject), AccessControl: x.text(s.AccessControl)}
	if s.Input == nil {
		body.Message = x.blocks(s.Messages)
	}
	if body.Subject == "" && len(s.By) > 0 { // who is kept from approving an own call
		body.Subject = x.text(s.By[0])
	}
	return body
}

func (x *exporter) blocks(said []run.UserBlock) []run.UserBlock {
	list := slices.Clone(said)
	for i, b := range list {
		switch b := b.Block.(type) {
		case run.Text:
			list[i].Block = run.Text{Text: x.text(b.Text)}
		case run.Media:
			list[i].Block = x.media(b)
		}
	}
	return list
}

// maxMedia is how many bytes a file has at most, in base64, that stands in a scenario.
const maxMedia = 128 << 10

func (x *exporter) media(m run.Media) run.Media {
	if x.words != nil {
		return run.Media{Name: x.text(m.Name), MediaType: m.MediaType, Data: "eA=="} // no model looks at it
	}
	if m.Blob == "" {
		return m
	}
	data, err := x.from.Blob(x.ctx, m.Blob)
	if err != nil {
		x.cannot("file %q: %w", m.Name, err)
	}
	m.Blob, m.Data = "", base64.StdEncoding.EncodeToString(data)
	if len(m.Data) > maxMedia {
		x.cannot("file %q has %d bytes: a scenario holds files of at most %d", m.Name, len(data), maxMedia/4*3)
	}
	return m
}

// content returns a text that stands in the journal or in a blob.
func (x *exporter) content(text, blob string) string {
	if blob != "" {
		data, err := x.from.Blob(x.ctx, blob)
		if err != nil {
			x.cannot("a long result: %w", err)
		}
		text = string(data)
	}
	return text
}

// agentFiles returns the files of one agent.
func (x *exporter) agentFiles(folder string) []txtar.File {
	a := x.agents[folder]
	pinned, err := json.MarshalIndent(a.definition, "", "  ")
	if err != nil {
		x.cannot("the definition of %s: %w", a.definition.Name, err)
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
		if a.unsure[t.Name] {
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

// agentOf returns what the files of a folder are made of.
func (x *exporter) agentOf(digest, folder string) (*recordedAgent, error) {
	if a := x.agents[folder]; a != nil && a.digest == digest {
		return a, nil
	}
	a := &recordedAgent{digest: digest, results: map[string][]resultForm{}, unsure: map[string]bool{}}
	data, err := x.from.Blob(x.ctx, digest)
	if err == nil {
		err = run.ReadStored("definition", data, &a.definition)
	}
	x.agents[folder] = a
	return a, err
}

// localise takes out of a definition what is not said of an agent in a scenario: servers, whose tools become fakes,
// folders, and what an agent has of those that delegate to it, which it gets again.
func (d *recordedAgent) localise(folder string) {
	def := &d.definition
	def.MCP, def.Folder, def.Below = nil, "", nil
	if folder != "" {
		def.Ceilings, def.Delegators = nil, nil
	}
	for i := range def.Tools {
		t := &def.Tools[i]
		if t.Root = ""; t.Kind == agent.KindMCP {
			t.Kind, t.MCP = agent.KindInternal, nil
		}
	}
}

// recording is one run as it is read.
type recording struct {
	*recordedAgent
	x      *exporter
	name   string // of the agent whose lines name it; "" = the main run
	folder string
	state  run.AgentState

	entry    run.Entry       // that is being read
	before   run.AgentState  // that entry
	replied  bool            // the entry before has a reply
	entered  map[string]bool // calls whose tool is, or was, under way
	expired  map[string]bool // waits that a line has expired
	asked    map[string]run.PermissionRequested
	executed map[string]int
	undoes   bool // the run takes back a call of the one before
	loose    bool // the run was cancelled in the middle of something: what became of its calls is chance
}

// record reads a run, folded from seed, and those that its calls are.
func (x *exporter) record(seed run.AgentState, entries []run.Entry, s run.RunStarted, folder string) (
	*recording, error,
) {
	a, err := x.agentOf(s.Definition, folder)
	if err != nil {
		return nil, err
	}
	if x.words != nil {
		x.words.keep(a.definition)
	}
	r := &recording{
		recordedAgent: a, x: x, folder: folder, state: seed, entered: map[string]bool{}, expired: map[string]bool{},
		asked: map[string]run.PermissionRequested{}, executed: map[string]int{},
	}
	if folder != "" {
		r.name = s.Agent
	}
	if a.definition.Orchestrator.Enabled {
		x.cannot("agent %s plans: the journal does not have what its planner said", s.Agent)
	}
	for _, e := range entries {
		r.entry, r.before = e, r.state
		draft := run.NewDraft(r.state, e.Writer, e.Time)
		for _, ev := range e.Events {
			if err := r.read(&draft.State, ev); err != nil {
				return nil, err
			}
			if err := draft.Add(ev); err != nil {
				return nil, err
			}
		}
		if r.state, err = run.ApplyEntry(r.state, e); err != nil {
			return nil, err
		}
		r.replied = slices.ContainsFunc(e.Events, func(ev run.Event) bool {
			_, ok := ev.(run.Replied)
			return ok
		})
	}
	if r.state.Status == run.RunRunning {
		x.cannot("run %s is going on: export it when it waits or has ended", s.Run)
	}
	if len(r.definition.MCP) > 0 && !r.state.Listed {
		x.cannot("the servers of %s were not listed", s.Agent)
	}
	a.localise(folder)
	return r, r.recordChildren()
}

// recordChildren reads the runs that the run's calls are.
func (r *recording) recordChildren() error {
	x := r.x
	for _, c := range r.state.Calls() {
		if c.Child == "" {
			continue
		}
		entries, started, err := x.load(c.Child)
		if errors.Is(err, errNoBeginning) && !c.Open() { // it was refused
			continue
		}
		if err != nil {
			return err
		}
		r.executed[c.Tool]++
		folder := agentsFolder + started.Agent + "/"
		if x.agents[folder] != nil {
			folder += c.ID + "/"
		}
		at := len(x.children[started.Agent])
		x.children[started.Agent] = append(x.children[started.Agent], outcome{})
		child, err := x.record(run.AgentState{}, entries, started, folder)
		if err != nil {
			return err
		}
		x.children[started.Agent][at] = child.outcome(x)
	}
	return nil
}

// outcome returns what the run came to.
func (r *recording) outcome(x *exporter) outcome {
	o := outcome{Status: r.state.Status, Reason: r.state.Reason, Executed: r.executed}
	if out, err := policy.OutputView(&r.state); err == nil && !r.state.History {
		o.Output = exact(x.json(out))
	}
	if r.loose {
		o.Executed = nil
		return o
	}
	for _, c := range r.state.Waits() {
		o.Waiting = append(o.Waiting, waitOutcome{c.ID, c.Wait.For})
	}
	for _, q := range r.state.OpenRequests() {
		o.Waiting = append(o.Waiting, waitOutcome{q.First(), run.ForApproval})
	}
	calls := r.state.Calls()
	for _, c := range calls[max(0, len(calls)-200):] { // as many as want.json is compared with
		o.Calls = append(o.Calls, callOutcome{c.ID, c.Tool, c.Status, c.Reason})
	}
	return o
}

// exact writes a JSON value so that it matches itself alone: a string that begins as a pattern becomes a pattern of it.
func exact(raw json.RawMessage) json.RawMessage {
	return eachString(raw, func(s string) string {
		if strings.HasPrefix(s, "~") {
			return "~^" + regexp.QuoteMeta(s) + "$"
		}
		return s
	})
}

// read records what a fact says. s is the state before it.
func (r *recording) read(s *run.AgentState, ev run.Event) error {
	switch e := ev.(type) {
	case run.ToolsListed:
		return r.pinAgain(e.Definition)
	case run.UndoOrdered:
		r.undoes = true
		r.line(lineForm{Do: "undo", Call: e.Of, By: r.who(run.Voice{By: e.By})}, "")
	case run.PlanEvent:
	case run.Replied:
		r.readReply(e)
	case run.Evicted:
		if e.Requests > 0 {
			r.replies = append(r.replies, reply{Text: r.x.text(e.Summary), Notes: true})
		}
	case run.CallClaimed:
		r.readClaim(s, e)
	case run.CallFinished:
		r.readResult(s, e)
	case run.LateResult:
		r.readResult(s, run.CallFinished{Call: e.Call, Ran: true, IsError: e.IsError, Reason: run.WhyToolError,
			Content: e.Content, Blob: e.Blob, Media: e.Media, Patch: e.Patch, Entered: e.Entered})
	case run.CallSuspended:
		r.readSuspension(s, e)
	case run.LateSuspended:
		r.readSuspension(s, run.CallSuspended{Call: e.Call, Ran: true, Ticket: e.Ticket, For: run.ForInput})
	case run.CallUnknown:
		r.readUnknown(s, e)
	case run.CallCancelled:
		r.readExpiry(s, e.Call)
	case run.ToolsDisabled:
		r.x.cannot("server %s changed its tool %s while the run went on", e.Server, e.Tool)
	case run.Parked:
		r.x.parked = append(r.x.parked, r.entry.Time)
	case run.PermissionRequested:
		r.asked[e.Approval] = e
	case run.PermissionAnswered:
		if e.Expired {
			r.readExpiry(s, r.asked[e.Approval].Tools[0].Calls[0])
		}
	case run.PermissionChecked:
		if len(e.Standing) > 0 {
			r.x.cannot("it used a standing grant that people gave in another run")
		}
	case run.InputReceived:
		r.readInput(e)
	case run.DecisionKept:
		r.line(lineForm{Do: r.verb(e.Action), Call: e.Target, Result: r.answer(e.Result), Note: r.x.text(e.Note), Via: e.Via,
			By: r.who(run.Voice{By: e.By, Groups: e.Groups})}, r.moment())
	case run.Decided:
		r.readDecision(e)
	case run.Answered:
		r.readAnswer(s, e)
	case run.Finished:
		r.readEnd(s, e)
	}
	return nil
}

// pinAgain reads the definition that has the tools of the servers.
func (r *recording) pinAgain(digest string) error {
	data, err := r.x.from.Blob(r.x.ctx, digest)
	if err != nil {
		return err
	}
	r.definition = agent.Definition{}
	return run.ReadStored("definition", data, &r.definition)
}

// line adds a line about the run. at is its trigger, "" = it is queued.
func (r *recording) line(l lineForm, at string) {
	if l.Agent = r.name; at != "" {
		l.At = &at
	}
	r.x.lines = append(r.x.lines, recordedLine{r.entry.Time, l})
}

// moment returns the trigger of what people did while the run did not wait, and "" while it waited.
func (r *recording) moment() string {
	requests := len(r.replies)
	switch {
	case r.before.Status == run.RunWaiting:
		return ""
	case requests == 0:
		return "start"
	default:
		return fmt.Sprintf("inference:%d", requests)
	}
}

// decided returns the trigger of a decision: people may decide about one call while others, or a model, are at work.
func (r *recording) decided() string {
	if r.before.Status == run.RunWaiting {
		return ""
	}
	if r.replied {
		return r.moment()
	}
	for _, c := range r.before.Live {
		if t, ok := r.definition.Tool(c.Tool); ok && !t.AnsweredLater() && (c.Status == run.StatusNew ||
			c.Status == run.StatusRunning) {
			return "executing:" + c.ID
		}
	}
	return ""
}

func (r *recording) readReply(e run.Replied) {
	x, line := r.x, reply{Text: r.x.text(e.Text)}
	for _, c := range e.Calls {
		line.Calls = append(line.Calls, agentCall{c.ID, c.Name, x.json(c.Input)})
	}
	line.Empty = line.Text == "" && len(line.Calls) == 0
	if e.Stop != "stop" && e.Stop != "tool_calls" && (r.definition.CutText != agent.CutTextNotice || line.Text == "") {
		line.Stop = e.Stop
	}
	if u := e.Usage; u.Total() > 0 {
		line.Usage = &usage{u.Input + u.CacheRead + u.CacheWrite, u.Output}
	}
	r.replies = append(r.replies, line)
}

// readClaim records that a call goes out, and what was read of its precondition before.
func (r *recording) readClaim(s *run.AgentState, e run.CallClaimed) {
	c, _ := s.Call(e.Call)
	if t, _ := r.definition.Tool(c.Tool); t.AnsweredLater() {
		if t.Kind != agent.KindAgent {
			r.executed[c.Tool]++
		}
		return
	}
	r.entered[e.Call] = true
	if c.Checked != nil {
		r.readChecked(c, *c.Checked)
	}
}

// readChecked records what a precondition gave. The runtime numbers its readings by how often people were asked.
func (r *recording) readChecked(c run.Call, k run.Checked) {
	if t, _ := r.definition.Tool(c.Tool); t.Precondition != nil && len(t.Precondition.Compare) > 0 {
		r.x.cannot("call %s depends on a part of what %s gives: the journal has that part alone", c.ID, k.Tool)
	}
	f := resultForm{Call: fmt.Sprintf("%s-precondition-%d", c.ID, c.Asks)}
	text := r.x.text(k.Content)
	if f.Text = &text; k.IsError {
		f.Text, f.Error = nil, &text
	}
	r.results[k.Tool] = append(r.results[k.Tool], f)
}

// result records one execution of a call's tool.
func (r *recording) result(c run.Call, f resultForm) {
	f.Call = c.ID
	r.results[c.Tool] = append(r.results[c.Tool], f)
	r.executed[c.Tool]++
	r.entered[c.ID] = false
}

func (r *recording) readResult(s *run.AgentState, e run.CallFinished) {
	c, _ := s.Call(e.Call)
	t, _ := r.definition.Tool(c.Tool)
	switch {
	case e.Reason == run.WhyToolChanged:
		r.x.cannot("the server of call %s changed its tool", c.ID)
		return
	case e.Reason == run.WhyPrecondition && t.Precondition != nil:
		r.results[t.Precondition.Tool] = append(r.results[t.Precondition.Tool],
			resultForm{Call: fmt.Sprintf("%s-precondition-%d", c.ID, c.Asks), Fails: new(string)})
		return
	case !e.Ran && !r.entered[e.Call]:
		r.readExpiry(s, e.Call)
		return
	case !slices.ContainsFunc(r.definition.Tools, func(t agent.ToolSpec) bool { return t.Name == c.Tool }):
		return // the runtime itself answers it
	}
	if e.Whole != nil {
		e.Blob = e.Whole.Blob
	}
	text := r.x.text(r.x.content(e.Content, e.Blob))
	for range e.Entered - 1 { // the attempts before the last
		r.result(c, resultForm{Fails: new(string)})
	}
	f := resultForm{Text: &text}
	for _, p := range e.Patch {
		f.Patch = append(f.Patch, patchForm{&p.Path, r.x.json(p.Value)})
	}
	switch {
	case e.Reason == run.WhyTimeout && e.IsError:
		f.Sleep = overtime(t)
	case e.IsError && e.Entered > 1:
		f = resultForm{Fails: &text}
	case e.IsError:
		f = resultForm{Error: &text}
	}
	if len(e.Media) > 1 {
		r.x.cannot("call %s gave %d files: a scenario says one", c.ID, len(e.Media))
	}
	for _, m := range e.Media {
		m = r.x.media(m)
		f.Media = &m
	}
	r.result(c, f)
}

// overtime is longer than a tool may take.
func overtime(t agent.ToolSpec) string {
	return (cmp.Or(t.Timeout, 5*time.Minute) + time.Second).String()
}

func (r *recording) readSuspension(s *run.AgentState, e run.CallSuspended) {
	c, _ := s.Call(e.Call)
	if e.Checked != nil {
		r.readChecked(c, *e.Checked)
	}
	if e.Ticket == nil || e.Gate || !e.Ran && !r.entered[e.Call] {
		return
	}
	ticket := *e.Ticket
	if r.x.words != nil {
		r.x.words.keep(ticket.ResponseSchema)
	}
	ticket.Message, ticket.Parameters = r.x.text(ticket.Message), r.x.json(ticket.Parameters)
	ticket.Pending.Arguments = r.x.json(ticket.Pending.Arguments)
	for range e.Entered - 1 {
		r.result(c, resultForm{Fails: new(string)})
	}
	r.result(c, resultForm{Suspend: &ticket})
}

// readUnknown records an execution of which nobody knows what became: in a scenario it takes too long.
func (r *recording) readUnknown(s *run.AgentState, e run.CallUnknown) {
	c, _ := s.Call(e.Call)
	t, _ := r.definition.Tool(c.Tool)
	r.unsure[c.Tool] = true
	r.result(c, resultForm{Text: new(string), Sleep: overtime(t)})
}

// readExpiry records that a call waited in vain. What was asked at the same time for the same time expires with it.
func (r *recording) readExpiry(s *run.AgentState, call string) {
	c, _ := s.Call(call)
	var since, until time.Time
	if c.Wait != nil {
		since, until = c.Wait.Since, c.Wait.Expires
	}
	for _, q := range s.OpenRequests() {
		if q.Approval == c.Request {
			since, until = q.Since, q.Expires
		}
	}
	if until.IsZero() || until.After(r.entry.Time) {
		return
	}
	wait := fmt.Sprint(c.Inference, until.Sub(since).Round(time.Second))
	if r.expired[wait] {
		return
	}
	r.expired[wait] = true
	r.line(lineForm{Do: "expire", Call: call}, "")
}

func (r *recording) readInput(e run.InputReceived) {
	var text []string
	for _, b := range e.Blocks {
		t, ok := b.Block.(run.Text)
		if !ok {
			r.x.cannot("a message that came later has files")
			continue
		}
		text = append(text, r.x.text(t.Text))
	}
	if e.Starts {
		return
	}
	if len(text) > 1 {
		r.x.cannot("a message that came later has %d parts: a scenario says one", len(text))
	}
	r.line(lineForm{Do: "message", Text: strings.Join(text, "\n"), By: r.who(run.Voice{By: e.By})}, r.moment())
}

// verb returns the word of people.jsonl for an action.
func (r *recording) verb(a run.DecisionAction) string {
	switch a {
	case run.ActionApprove, run.ActionDeny:
		return string(a)
	case run.ActionCancel:
		return "cancel_call"
	case run.ActionFail:
		return "answer"
	default:
		r.x.cannot("the policy was changed by a deployment while people were asked")
		return ""
	}
}

// answer returns what people answered to a tool's question; nil where they only agreed.
func (r *recording) answer(result json.RawMessage) json.RawMessage {
	if string(result) == "true" {
		return nil
	}
	return r.x.json(result)
}

// readDecision records a decision: a line for everybody who took part.
func (r *recording) readDecision(e run.Decided) {
	if e.Early != "" { // its line stands where it was kept
		return
	}
	voices := map[string]run.Voice{}
	for _, v := range e.Voices {
		voices[v.By] = v
	}
	voice := func(by string) run.Voice {
		v := voices[by]
		v.By = by
		return v
	}
	calls := []string{e.Call}
	if e.Call == "" {
		calls = nil
		for _, t := range r.asked[e.Approval].Tools {
			if slices.Contains(e.Tools, t.Tool) {
				calls = append(calls, t.Calls[0])
			}
		}
	}
	last := lineForm{Do: r.verb(e.Action), Result: r.answer(e.Result), Note: r.x.text(e.Note)}
	if e.Action == run.ActionFail {
		why := cmp.Or(last.Note, "failed")
		last.Note, last.Error = "", &why
	}
	editor := cmp.Or(e.Editor, e.By)
	for _, call := range calls {
		add := func(l lineForm, by string) {
			v := voice(by)
			if l.Call, l.By = call, r.who(v); l.Do != "answer" {
				l.Via = r.via(call, v)
			}
			r.line(l, r.decided())
		}
		c, _ := r.before.Call(call)
		edits := e.Args != nil && (c.Wait == nil || c.Wait.For != run.ForInput) // arguments may be an answer, too
		if edits {
			edit := lineForm{Do: "edit", Args: r.x.json(e.Args)}
			if editor == e.By {
				edit.Note = last.Note
			}
			add(edit, editor)
		}
		for _, by := range e.With {
			if !edits || by != editor {
				add(lineForm{Do: last.Do}, by)
			}
		}
		if !edits || editor != e.By {
			add(last, e.By)
		}
	}
}

// who returns a person as a line names them. The journal does not always have their groups; then they are in all that
// the agent asks.
func (r *recording) who(v run.Voice) json.RawMessage {
	if v.Groups == nil {
		var all []string
		eachString(encode(append(slices.Clone(r.definition.Ceilings), r.definition.Permission)), func(s string) string {
			if strings.HasPrefix(s, "group:") {
				all = append(all, s)
			}
			return s
		})
		v.Groups = append(all, localUser.Groups...)
	}
	slices.Sort(v.Groups)
	p, err := policy.ParsePrincipal(strings.Join(append([]string{v.By}, slices.Compact(v.Groups)...), ","))
	if err != nil { // a service
		return nil
	}
	return bytes.TrimSpace(encode(r.x.text(p.String())))
}

// via returns the channel of a decision. Where the journal does not have it, it is one that the rule allows.
func (r *recording) via(call string, v run.Voice) run.Via {
	c, _ := r.before.Call(call)
	for _, rule := range r.definition.Permission.Rules {
		matches, err := path.Match(rule.Tool, c.Tool)
		if v.Via == "" && err == nil && matches && len(rule.Via) > 0 && !slices.Contains(rule.Via, run.ViaAPI) {
			return rule.Via[0]
		}
	}
	return v.Via
}

// readAnswer records what a service answered, or what a person or the tool itself said of an unknown outcome.
func (r *recording) readAnswer(s *run.AgentState, e run.Answered) {
	c, _ := s.Call(e.Call)
	text := r.x.text(r.x.content(e.Content, e.Blob))
	switch {
	case c.Child != "" || e.Used != nil, e.Slot == 0 && e.Rerun:
		return // the other run says it; or the call goes on after a crash
	case e.Slot == 0:
		if r.entered[e.Call] {
			f := resultForm{Text: &text}
			if e.IsError {
				f = resultForm{Error: &text}
			}
			r.result(c, f)
		}
		return
	case len(e.Media) > 0 || len(e.Patch) > 0:
		r.x.cannot("the answer to call %s has files or changes the shared state", e.Call)
	}
	l := lineForm{Do: "answer", Call: e.Call, Rerun: e.Rerun}
	switch {
	case e.Rerun:
	case e.IsError:
		l.Error = &text
	default:
		l.Result = bytes.TrimSpace(encode(text))
	}
	voices := map[string]run.Voice{}
	for _, v := range e.Voices {
		voices[v.By] = v
	}
	for _, by := range append(slices.Clone(e.With), e.By) {
		v := voices[by]
		v.By = by
		l.By = r.who(v)
		at := ""
		if c.Service && c.Status != run.StatusSuspended {
			at = r.moment()
		}
		r.line(l, at)
	}
}

// readEnd records a cancellation and the request to a model that led to the end.
func (r *recording) readEnd(s *run.AgentState, e run.Finished) {
	if e.Requests > 0 {
		class := agent.ModelServer
		if e.Error != nil {
			for _, c := range agent.ModelErrorClasses() {
				if strings.Contains(e.Error.Message, ": "+string(c)+": ") {
					class = c
				}
			}
		}
		r.replies = append(r.replies, reply{Error: class})
	}
	ended := slices.ContainsFunc(r.entry.Events, func(ev run.Event) bool { // a denial has, and not a person
		_, decided := ev.(run.Decided)
		return decided
	})
	if e.Reason != run.ReasonCancelled || ended || r.name != "" && !strings.HasPrefix(e.By, "user:") {
		return
	}
	at := ""
	if r.before.Status != run.RunWaiting {
		r.loose = true
		at = fmt.Sprintf("inference:%d", len(r.replies)+1)
		for _, c := range s.Live { // what is under way: calls that may be repeated are not claimed
			t, ok := r.definition.Tool(c.Tool)
			if !ok || t.AnsweredLater() || c.Status != run.StatusNew && c.Status != run.StatusRunning {
				continue
			}
			r.result(c, resultForm{Text: new(string)})
			if at[0] != 'e' {
				at = "executing:" + c.ID
			}
			if r.definition.Executor == agent.ExecutorSequential {
				break
			}
		}
		if at[0] != 'e' {
			r.replies = append(r.replies, reply{Empty: true})
		}
	}
	r.line(lineForm{Do: "cancel_run", By: r.who(run.Voice{By: e.By})}, at)
}
