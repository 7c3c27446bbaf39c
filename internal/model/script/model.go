package script

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// WantError is a scenario failure: a request that is not what the script wants, that is malformed, or that no line is
// left for. Got and Want are for people and may hold parts of the request.
type WantError struct {
	File     string
	Line     int // the script's line; one past the last when it ran out
	Mismatch     // Path is where in the request, e.g. messages[0].seenCount
}

func (e *WantError) Error() string {
	return fmt.Sprintf("%s:%d: %s: got %s, want %s", e.File, e.Line, e.Path, e.Got, e.Want)
}

// Model answers requests from a script. It is safe for concurrent use.
type Model struct {
	// OnDelta, if not nil, is told of a reply before Generate returns it: reasoning, text in the line's chunks, else
	// whole, and calls. Set it before the first request.
	OnDelta agent.OnDelta

	script   *Script
	mu       sync.Mutex
	used     map[int]bool // by line number
	failures []WantError
	last     map[string]asked // by run: the newest request for a reply
	before   map[reply]int    // requests for it until it was last given up
}

// reply is one that a run is owed, and asked one of the requests for it.
type (
	reply struct {
		run       string
		inference int64
	}
	asked struct {
		reply
		attempt int
	}
)

// New makes a model of a script. It keeps no position but behind replies that were given up: two models of one script
// give the same replies.
func New(s *Script) *Model {
	return &Model{script: s, used: map[int]bool{}, last: map[string]asked{}, before: map[reply]int{}}
}

// Generate answers with the line of the request's inference and attempt. A context that is done is returned as its
// error. Any other error is an *agent.ModelError: of the line's own class, or ModelInvalid, wrapping a *WantError that
// Failures lists as well. Usage on an error line is not reported: a failed call has none. What a line has said before
// it was cut is the error's Partial.
func (m *Model) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if err := ctx.Err(); err != nil {
		return agent.Reply{}, err
	}
	r.Attempt = m.Attempt(r)
	l, ok := m.script.lineFor(r)
	if !ok {
		got := fmt.Sprintf("a request for inference %d", r.Inference)
		if r.Lifecycle == run.LifecycleNotes {
			got = fmt.Sprintf("a request for notes before inference %d", r.Inference)
		}
		return agent.Reply{},
			m.recordFailures(r, m.script.end, []Mismatch{{Path: "model.jsonl", Got: got, Want: "no more requests"}})
	}
	found := malformed(r.Messages)
	if l.Model != "" && l.Model != r.Model.ID {
		found = append(found, Mismatch{Path: "model", Got: r.Model.ID, Want: l.Model})
	}
	different, err := differences(l.Want, r)
	if err != nil {
		different = []Mismatch{{Path: "request", Got: err.Error(), Want: "a request that is JSON"}}
	}
	if found = append(found, different...); len(found) > 0 {
		return agent.Reply{}, m.recordFailures(r, l.number, found)
	}
	m.mu.Lock()
	m.used[l.number] = true
	if r.Lifecycle != run.LifecycleNotes {
		m.last[r.Run] = asked{reply{r.Run, r.Inference}, r.Attempt}
	}
	m.mu.Unlock()
	m.stream(r, l)
	if l.Error == "" && !l.Cut {
		return l.reply(r), nil
	}
	failed := &agent.ModelError{
		Class: l.Error, Model: name(r), Message: fmt.Sprintf("scripted error, %s:%d", m.script.file, l.number),
	}
	if l.Cut { // a connection error breaks the reply off
		failed.Class, failed.Partial = agent.ModelConnection, policy.KeepInterrupted(l.reply(r))
	}
	return agent.Reply{}, failed
}

// Attempt is the number of a request among all for its reply, those before the reply was last given up included.
func (m *Model) Attempt(r agent.Request) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Lifecycle == run.LifecycleNotes {
		return r.Attempt
	}
	return r.Attempt + m.before[reply{r.Run, r.Inference}]
}

// GiveUp says that a run's newest reply was given up: its model was busy, or failed. The next request for it, of that
// run or of one that goes on from it, is answered from the line behind those that were used: else it would fail for
// ever.
func (m *Model) GiveUp(run, next string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.last[run]; ok {
		m.before[reply{next, r.inference}] = r.attempt + 1
	}
}

// recordFailures records the failures and returns the first one as the call's error.
func (m *Model) recordFailures(r agent.Request, number int, found []Mismatch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[number] = true
	for _, f := range found {
		e := WantError{m.script.file, number, f}
		if !slices.Contains(m.failures, e) { // a request repeated after a crash fails the same way
			m.failures = append(m.failures, e)
		}
	}
	message := fmt.Sprintf("%s:%d: request is not what the script wants", m.script.file, number)
	return &agent.ModelError{Class: agent.ModelInvalid, Model: name(r), Message: message,
		Cause: &WantError{m.script.file, number, found[0]}}
}

func (m *Model) stream(r agent.Request, l line) {
	if m.OnDelta == nil {
		return
	}
	send := func(d agent.Delta) {
		if d.Text != "" {
			m.OnDelta(r, d)
		}
	}
	for _, b := range l.reasoning {
		send(agent.Delta{Kind: agent.DeltaReasoning, Text: b.Text})
	}
	pieces := l.Chunks
	if pieces == nil {
		pieces = []string{l.text}
	}
	for _, piece := range pieces {
		send(agent.Delta{Kind: agent.DeltaText, Text: piece})
	}
	for i, c := range l.calls {
		send(agent.Delta{Kind: agent.DeltaCall, Text: string(c.Input), Place: i, Call: c.ID, Name: c.Name})
	}
}

func (l line) reply(r agent.Request) agent.Reply {
	stop := cmp.Or(l.Stop, "stop")
	if len(l.calls) > 0 {
		stop = cmp.Or(l.Stop, "tool_calls")
	}
	reply := agent.Reply{Model: name(r), Text: l.text, Calls: slices.Clone(l.calls), StopReason: stop,
		Reasoning: slices.Clone(l.reasoning)}
	if l.Usage != nil {
		reply.Usage = run.Usage{Input: l.Usage.Input, Output: l.Usage.Output}
	}
	reply.Truncated = stop == "length" || stop == "max_tokens"
	for i := range reply.Reasoning {
		reply.Reasoning[i].Provider, reply.Reasoning[i].Model = "script", name(r)
	}
	return reply
}

// name is the id of the model that answers: the one asked for, else script.
func name(r agent.Request) string { return cmp.Or(r.Model.ID, "script") }

// Failures lists what went wrong so far, each thing once, in order of first appearance. Empty means that all requests
// were as wanted.
func (m *Model) Failures() []WantError {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.failures)
}

// Leftover lists the numbers of the lines that no request has reached, in order.
func (m *Model) Leftover() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	var left []int
	for i, block := range m.script.blocks {
		for _, l := range slices.Concat(m.script.notes[i], block) {
			if !m.used[l.number] {
				left = append(left, l.number)
			}
		}
	}
	return left
}

type toolView struct {
	Name        string          `json:"name"` // model-facing
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// differences lists where r is not what want wants. An error means that r cannot be written as JSON.
func differences(want json.RawMessage, r agent.Request) ([]Mismatch, error) {
	if len(want) == 0 {
		return nil, nil
	}
	r = r.Prompted()
	messages := make([]map[string]any, len(r.Messages))
	for i, m := range r.Messages {
		content, err := run.MarshalBlock(m.Block)
		if err != nil {
			return nil, fmt.Errorf("write message %d: %w", i, err)
		}
		messages[i] = map[string]any{"role": m.Role, "seenCount": m.Seen(r.Inferences), "content": json.RawMessage(content)}
	}
	v := map[string]any{"system": r.System, "messages": messages, "tools": viewTools(want, r.Tools),
		"lifecycle": r.Lifecycle, "exhausted": r.Exhausted}
	if r.Turn != "" { // words before the newest user turn, which no message holds
		v["turn"] = r.Turn
	}
	if r.Output.JSON {
		output := map[string]any{"format": "json"}
		if len(r.Output.Schema) > 0 {
			output["schema"] = r.Output.Schema
		}
		v["output"] = output
	}
	got, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	return Match(want, got), nil
}

// viewTools shows each tool as want speaks of it: as an object where it has an object in that place, else as its name.
func viewTools(want json.RawMessage, specs []agent.ToolSpec) []any {
	var w struct {
		Tools json.RawMessage `json:"tools"`
	}
	var wanted []json.RawMessage
	// A tools that is no list is Match's to report.
	if json.Unmarshal(want, &w) != nil || json.Unmarshal(w.Tools, &wanted) != nil {
		wanted = nil
	}
	views := make([]any, len(specs))
	for i, t := range specs {
		if views[i] = t.ModelName(); i < len(wanted) && bytes.HasPrefix(wanted[i], []byte("{")) {
			views[i] = toolView{t.ModelName(), t.Description, t.Schema}
		}
	}
	return views
}

// malformed lists what no provider would take: a tool_result without its tool_use before it, a tool_use without exactly
// one result, a result that does not stand behind the turn of its tool_use.
func malformed(messages []run.Message) []Mismatch {
	var found []Mismatch
	wrong := func(message int, want, format string, args ...any) {
		found = append(found, Mismatch{fmt.Sprintf("messages[%d]", message), fmt.Sprintf(format, args...), want})
	}
	type use struct {
		id                string
		at, turn, results int
	}
	uses := map[string]*use{}
	var order []*use
	turn := 0 // the model's, counted: its words behind a user's begin another one
	for i, m := range messages {
		if m.Role == run.RoleAssistant && i > 0 && messages[i-1].Role == run.RoleUser {
			turn++
		}
		switch b := m.Block.(type) {
		case run.ToolUse:
			if uses[b.ID] != nil {
				wrong(i, "ids that are unique", "tool_use %q a second time", b.ID)
				continue
			}
			uses[b.ID] = &use{id: b.ID, at: i, turn: turn}
			order = append(order, uses[b.ID])
		case run.ToolResult:
			u := uses[b.ID]
			if u == nil {
				wrong(i, "its tool_use before it", "tool_result %q", b.ID)
				continue
			}
			if u.turn != turn {
				wrong(i, "it behind the turn of its tool_use", "tool_result %q behind another turn", b.ID)
			}
			u.results++
		}
	}
	for _, u := range order {
		if u.results != 1 {
			wrong(u.at, "exactly one result", "tool_use %q with %d results", u.id, u.results)
		}
	}
	return found
}
