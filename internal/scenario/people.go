package scenario

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// line is a line of people.jsonl: an action of a person or a service.
type line struct {
	number  int     // of the line in the archive
	trigger trigger // zero = the line is queued
	do      string
	agent   string // whose run the line is about; "" = the main run
	call    string
	by      policy.Principal
	args    json.RawMessage
	result  json.RawMessage // answer, approve: the answer to a tool's question; nil = none
	failure *string         // answer: an error
	rerun   bool            // answer: run it again
	note    string
	text    string
	refused bool // the product must refuse the action

	wait time.Duration

	via run.Via // the channel of a decision

	grant *agent.GrantBounds // the bounds of a grant; nil = those of the policy
}

// trigger is the moment at which a line outside the queue acts.
type trigger struct {
	event  string // start, inference, executing
	target string // inference: the number of the request; executing: the call
	agent  string // whose run it is about; "" = the one that the story is about
}

// lineForm is a line as it is written.
type lineForm struct {
	Do      string          `json:"do"`
	Agent   string          `json:"agent"`
	At      *string         `json:"at"`
	Call    string          `json:"call"`
	By      json.RawMessage `json:"by"`
	Args    json.RawMessage `json:"args"`
	Result  json.RawMessage `json:"result"`
	Error   *string         `json:"error"`
	Rerun   bool            `json:"rerun"`
	Note    string          `json:"note"`
	Text    string          `json:"text"`
	Refused bool            `json:"refused"`
	Via     run.Via         `json:"via"`

	Grant *agent.GrantBounds `json:"grant"`
}

// lineKeys has the keys that each action takes besides do, agent, at, by and refused. Keys in upper case are required.
var lineKeys = map[string][]string{
	"approve":     {"CALL", "result", "note", "grant", "via"},
	"deny":        {"CALL", "note", "via"},
	"edit":        {"CALL", "ARGS", "note", "grant", "via"},
	"cancel_call": {"CALL", "note", "via"},
	"answer":      {"CALL", "result", "error", "rerun", "via"},
	"expire":      {"CALL"},
	"wait":        {"TEXT"},
	"deploy":      {},
	"message":     {"TEXT"},
	"cancel_run":  {"note"},
	"undo":        {"CALL"},

	"ask":   {"CALL", "NOTE"},
	"reply": {"CALL", "NOTE"},
}

func loadPeople(f section, ps *problems) []line {
	var list []line
	for n, raw := range bytes.Split(f.data, []byte("\n")) {
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		l, err := f.parseLine(raw, n)
		if err != nil {
			ps.add(err)
			continue
		}
		list = append(list, l)
	}
	return list
}

func (s section) parseLine(raw []byte, n int) (line, error) {
	var form lineForm
	if err := s.decode(raw, n, &form); err != nil {
		return line{}, err
	}
	if p := form.check(); p.Text != "" {
		return line{}, s.problem(n, p.Key, p.Text)
	}
	l := line{
		number: s.before + n + 1, do: form.Do, agent: form.Agent, call: form.Call, args: form.Args, result: form.Result, failure: form.Error, rerun: form.Rerun,
		note: form.Note, text: form.Text, refused: form.Refused,
		grant: form.Grant, via: cmp.Or(form.Via, run.ViaAPI),
	}
	var err error
	if l.by, err = parsePrincipal(form.By); err != nil {
		return line{}, s.problem(n, "by", err.Error())
	}
	if form.Do == "wait" {
		if l.wait, err = agentfile.ParseDuration(form.Text); err != nil {
			return line{}, s.problem(n, "text", err.Error())
		}
	}
	if form.At == nil {
		return l, nil
	}
	if l.trigger, err = parseTrigger(*form.At); err != nil {
		return line{}, s.problem(n, "at", err.Error())
	}
	l.trigger.agent = form.Agent
	return l, nil
}

// check finds missing keys and keys that do not belong to the action.
func (f lineForm) check() agentfile.Problem {
	keys, ok := lineKeys[f.Do]
	if !ok {
		var names []string
		for name := range lineKeys {
			names = append(names, name)
		}
		slices.Sort(names)
		return agentfile.Problem{Key: "do", Text: fmt.Sprintf("got %q, want one of %s", f.Do, strings.Join(names, ", "))}
	}
	for _, key := range f.presentKeys() {
		if !slices.Contains(keys, key) && !slices.Contains(keys, strings.ToUpper(key)) {
			return agentfile.Problem{Key: key, Text: "does not go with " + f.Do}
		}
	}
	for _, key := range keys {
		if key == strings.ToUpper(key) && !slices.Contains(f.presentKeys(), strings.ToLower(key)) {
			return agentfile.Problem{Key: strings.ToLower(key), Text: "got nothing, " + f.Do + " wants it"}
		}
	}
	if f.Via != "" && !slices.Contains(run.Vias(), f.Via) {
		return agentfile.Problem{Key: "via", Text: fmt.Sprintf("got %.40q, want one of %v", f.Via, run.Vias())}
	}
	answers := slices.DeleteFunc(f.presentKeys(), func(key string) bool { return key == "via" })
	if f.Do == "answer" && len(answers) != 2 {
		return agentfile.Problem{Key: "result", Text: "want exactly one of result, error and rerun"}
	}
	return agentfile.Problem{}
}

// presentKeys returns the keys that are set, without those that every action takes.
func (f lineForm) presentKeys() []string {
	var keys []string
	for _, k := range []struct {
		name  string
		isSet bool
	}{
		{"call", f.Call != ""}, {"args", f.Args != nil}, {"result", f.Result != nil}, {"error", f.Error != nil}, {"rerun", f.Rerun},
		{"note", f.Note != ""}, {"text", f.Text != ""},
		{"grant", f.Grant != nil}, {"via", f.Via != ""},
	} {
		if k.isSet {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// localUser acts if a line has no by.
var localUser = policy.Principal{ID: "user:local", Groups: []string{"group:operators"}}

// parsePrincipal parses by: one user and any number of groups, separated by commas or as a list.
func parsePrincipal(raw json.RawMessage) (policy.Principal, error) {
	if raw == nil {
		return localUser, nil
	}
	var names []string
	if json.Unmarshal(raw, &names) == nil && len(names) > 0 {
		return policy.ParsePrincipal(strings.Join(names, ","))
	}
	return policy.ParsePrincipal(textOf(raw))
}

func parseTrigger(s string) (trigger, error) {
	what, of, _ := strings.Cut(s, ":")
	n, err := strconv.Atoi(of)
	switch {
	case s == "start":
		return trigger{event: "start"}, nil
	case what == "inference" && err == nil && n > 0:
		return trigger{event: "inference", target: strconv.Itoa(n)}, nil
	case what == "executing" && of != "":
		return trigger{event: "executing", target: of}, nil
	default:
		return trigger{}, fmt.Errorf("got %q, want start, inference:N or executing:CALL", s)
	}
}
