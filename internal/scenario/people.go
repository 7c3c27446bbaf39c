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
	"github.com/countersign/countersign/internal/store"
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
	l.by = localUser
	if l.By != nil { // one user and any number of groups, separated by commas or as a list
		var names []string
		if json.Unmarshal(l.By, &names) != nil || len(names) == 0 {
			names = []string{textOf(l.By)}
		}
		if l.by, err = policy.ParsePrincipal(strings.Join(names, ",")); err != nil {
			return "by", err.Error()
		}
	}
	if l.Do == "wait" {
		if l.wait, err = agentfile.ParseDuration(l.Text); err != nil {
			return "text", err.Error()
		}
	}
	if l.At != nil {
		event, target, _ := strings.Cut(*l.At, ":")
		n, err := strconv.Atoi(target)
		switch {
		case *l.At == "start", event == "executing" && target != "":
		case event == "inference" && err == nil && n > 0:
			target = strconv.Itoa(n)
		default:
			return "at", fmt.Sprintf("got %q, want start, inference:N or executing:CALL", *l.At)
		}
		l.trigger = trigger{event, target, l.Agent}
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

// peopleQueue holds the lines of people.jsonl that are still to come: a queue that goes on whenever the runs wait, and
// lines with a trigger.
type peopleQueue struct {
	queued    []line
	triggered []line
	busy      bool   // a queued line is being performed
	expiring  string // the request or the service's call that a line has expired; empty = none
}

// actAt performs the lines of a trigger, each once, and reports whether one of them changes the run.
func (s *simulation) actAt(at trigger) (acted bool) {
	for {
		i := slices.IndexFunc(s.people.triggered, func(l line) bool { return l.trigger == at })
		if i < 0 {
			return acted
		}
		l := s.people.triggered[i]
		s.people.triggered = slices.Delete(s.people.triggered, i, i+1)
		s.performLine(l)
		acted = acted || !l.Refused
	}
}

// onIdle runs when no task can go on before the clock moves. It starts the next action or ends the simulation; false
// lets the clock move.
func (s *simulation) onIdle() bool {
	if s.people.busy || !s.started {
		return false
	}
	runs, err := s.loadRunTree()
	if err != nil {
		s.addFailure("run", err.Error(), "a run")
		return s.endSimulation()
	}
	if !s.isProgressing(runs) && s.injector.ReleaseZombies() {
		return true
	}
	rec, throttled := s.findThrottledRun(runs)
	throttled = throttled && s.injector.LiveInvocations() == 0
	if throttled && len(rec.scripted.model.Leftover()) == 0 { // the models never answer again
		return s.endSimulation()
	}
	if throttled || s.needsSweep(runs) {
		s.act(s.sweepLater)
		return true
	}
	if runs[0].State.Status == run.RunDone {
		return s.onRunDone(runs)
	}
	switch {
	case !s.isResting(runs[0].Loaded):
		return false
	case s.isDisturbed() && s.injector.LiveInvocations() > 0: // an abandoned invocation still runs
		return false
	case slices.ContainsFunc(runs, func(rec recordedRun) bool {
		return s.isResting(rec.Loaded) && rec.scripted.settleUnknownOutcome(rec.State.Waits())
	}):
		return true
	case len(s.people.queued) > 0:
		return s.actNext(runs)
	default:
		return s.areAllResting(runs) && s.isParked(runs) && s.endSimulation()
	}
}

// onRunDone is onIdle for a main run that has ended.
func (s *simulation) onRunDone(runs []recordedRun) bool {
	switch {
	case s.injector.LiveInvocations() > 0, slices.ContainsFunc(runs, func(rec recordedRun) bool { return !s.isOver(rec) }):
		return false
	case s.scenario.then != nil && s.continues == "":
		s.act(s.startThenRun)
		return true
	case len(s.people.queued) > 0 && s.people.queued[0].Do == "undo":
		return s.actNext(runs)
	case s.hasDueWork(): // reminders and escalations wait for the clock
		return false
	default:
		return s.endSimulation()
	}
}

func (s *simulation) areAllResting(runs []recordedRun) bool {
	return !slices.ContainsFunc(runs, func(rec recordedRun) bool { return !s.isResting(rec.Loaded) && !s.isOver(rec) })
}

// actNext performs the first queued line if all runs are resting.
func (s *simulation) actNext(runs []recordedRun) bool {
	if !s.areAllResting(runs) {
		return false
	}
	l := s.people.queued[0]
	_, ok := findRunOfAgent(runs, l.Agent)
	if !ok && !s.InvariantsOnly {
		return s.endSimulation() // compareOutcome reports the unused line
	}
	if s.people.queued = s.people.queued[1:]; !ok {
		return s.onIdle()
	}
	s.act(func() { s.performLine(l) })
	return true
}

func (s *simulation) endSimulation() bool {
	s.endSignal.Notify()
	return true
}

// isResting reports whether a run waits, its inbox is empty and none of its waits is about to expire.
func (s *simulation) isResting(l store.Loaded) bool {
	return l.State.Status == run.RunWaiting && len(l.Inbox) == 0 &&
		!slices.ContainsFunc(l.State.Waits(), func(w run.Call) bool {
			return s.people.expiring != "" && (w.Wait.Approval == s.people.expiring || w.ID == s.people.expiring)
		}) && !slices.ContainsFunc(l.State.OpenRequests(),
		func(r run.PermissionRequest) bool { return r.Approval == s.people.expiring })
}

// act performs an action as a task of its own. The queue stops until the action is done.
func (s *simulation) act(act func()) {
	s.people.busy = true
	s.clock.Go(func() {
		act()
		s.people.busy = false
	})
}

func (s *simulation) isOver(rec recordedRun) bool {
	return rec.State.Status == run.RunDone && !s.isExecuting(rec)
}

// isParked reports whether the main run has stored its task token, if it waits. In a disturbed simulation every waiting
// run must have.
func (s *simulation) isParked(runs []recordedRun) bool {
	return !slices.ContainsFunc(runs, func(rec recordedRun) bool {
		if rec.State.Run != s.run && !s.isDisturbed() || rec.State.Status != run.RunWaiting {
			return false
		}
		h, err := s.head(rec.State.Run)
		return err == nil && h.Token == ""
	})
}

// performLine performs a line, with retries, and checks whether the product took or refused it as the line expects.
// A retry repeats the first request unchanged.
func (s *simulation) performLine(l line) {
	sr, err := s.scriptedRunForLine(l)
	var act action
	if err == nil {
		act, err = sr.lineAction(l)
	}
	if err == nil {
		err = s.retry(strings.TrimSpace(l.Do+" "+l.Call), act)
		if s.InvariantsOnly && err != nil && !isRefusal(err) {
			s.addViolation("people", fmt.Sprintf("%s %s: %v", l.Do, l.Call, err), "taken or refused")
		}
	}
	at := fmt.Sprintf("%s:%d: %s", s.scenario.archive, l.number, l.Do)
	switch refused := isRefusal(err); {
	case err == nil && l.Refused:
		s.addFailure(at, "taken", "refused")
	case refused && !l.Refused:
		s.addFailure(at, "refused: "+err.Error(), "taken")
	case err != nil && !refused:
		s.addFailure(at, err.Error(), "taken or refused")
	}
}
