package scenario

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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
	lineForm
	number  int     // of the line in the archive
	trigger trigger // zero = the line is queued
	by      policy.Principal
	wait    time.Duration
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
	Agent   string          `json:"agent,omitempty"` // whose run the line is about; "" = the main run
	At      *string         `json:"at,omitempty"`
	Call    string          `json:"call,omitempty"`
	By      json.RawMessage `json:"by,omitempty"`
	Args    json.RawMessage `json:"args,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"` // answer, approve: the answer to a tool's question; nil = none
	Error   *string         `json:"error,omitempty"`  // answer: an error
	Rerun   bool            `json:"rerun,omitempty"`  // answer: run it again
	Note    string          `json:"note,omitempty"`
	Text    string          `json:"text,omitempty"`
	Refused bool            `json:"refused,omitempty"` // the product must refuse the action
	Via     run.Via         `json:"via,omitempty"`     // the channel of a decision

	Grant *agent.GrantBounds `json:"grant,omitempty"` // the bounds of a grant; nil = those of the policy
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

func loadPeople(f section) []line {
	var list []line
	for n, raw := range bytes.Split(f.data, []byte("\n")) {
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		l := line{number: f.before + n + 1}
		if !f.decodeLine(raw, n, &l.lineForm) {
			continue
		}
		if key, text := l.parse(); text != "" {
			f.at(l.number, key, "%s", text)
			continue
		}
		list = append(list, l)
	}
	return list
}

// parse checks the keys of a line and parses their values. If one is invalid, text describes the problem.
func (l *line) parse() (key, text string) {
	if key, text = l.check(); text != "" {
		return key, text
	}
	l.Via = cmp.Or(l.Via, agent.ViaAPI)
	var err error
	if l.by, err = parsePrincipal(l.By); err != nil {
		return "by", err.Error()
	}
	if l.Do == "wait" {
		if l.wait, err = agentfile.ParseDuration(l.Text); err != nil {
			return "text", err.Error()
		}
	}
	if l.At != nil {
		if l.trigger, err = parseTrigger(*l.At); err != nil {
			return "at", err.Error()
		}
		l.trigger.agent = l.Agent
	}
	return "", ""
}

// check finds missing keys and keys that do not belong to the action.
func (f lineForm) check() (key, text string) {
	keys, ok := lineKeys[f.Do]
	if !ok {
		return "do", fmt.Sprintf("got %q, want one of %s", f.Do, strings.Join(slices.Sorted(maps.Keys(lineKeys)), ", "))
	}
	isSet := map[string]bool{
		"call": f.Call != "", "args": f.Args != nil, "result": f.Result != nil, "error": f.Error != nil, "rerun": f.Rerun,
		"note": f.Note != "", "text": f.Text != "", "grant": f.Grant != nil, "via": f.Via != "",
	}
	answers := 0
	for _, key := range slices.Sorted(maps.Keys(isSet)) {
		if isSet[key] && !slices.Contains(keys, key) && !slices.Contains(keys, strings.ToUpper(key)) {
			return key, "does not go with " + f.Do
		}
		if isSet[key] && slices.Contains([]string{"result", "error", "rerun"}, key) {
			answers++
		}
	}
	for _, key := range keys {
		if low := strings.ToLower(key); low != key && !isSet[low] {
			return low, "got nothing, " + f.Do + " wants it"
		}
	}
	if f.Via != "" && !slices.Contains(agent.Vias(), f.Via) {
		return "via", fmt.Sprintf("got %.40q, want one of %v", f.Via, agent.Vias())
	}
	if f.Do == "answer" && answers != 1 {
		return "result", "want exactly one of result, error and rerun"
	}
	return "", ""
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
