package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

var errPanics = errors.New("it panicked")

// permissionBook is a fake permission backend. It outlives every run, and keeps what it is sent until it cleans up.
type permissionBook struct {
	mu       sync.Mutex
	known    map[string]agent.Verdict
	recorded []string         // methods with what they were about, in order
	errs     map[string]error // by method
	reason   string
	says     func(about string) agent.Verdict // in place of what it knows; nil = it says that
}

func (b *permissionBook) record(method, about string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recorded = append(b.recorded, strings.TrimSpace(method+" "+about))
	if errors.Is(b.errs[method], errPanics) {
		panic("secret")
	}
	return b.errs[method]
}

func (b *permissionBook) count(what string) int {
	return len(slices.DeleteFunc(slices.Clone(b.recorded), func(got string) bool { return got != what }))
}

func namesOf(tools []hook.PermissionTool) string {
	var names []string
	for _, t := range tools {
		names = append(names, fmt.Sprintf("%s*%d", t.Spec.Name, len(t.Calls)))
	}
	return strings.Join(names, ",")
}

func (b *permissionBook) Get(_ context.Context, c hook.PermissionContext, tools []hook.PermissionTool) (map[string]agent.Verdict, error) {
	if err := b.record("get", namesOf(tools)); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	got := map[string]agent.Verdict{}
	for _, t := range tools {
		about := c.Subject + "/" + t.Spec.Name
		s := b.known[about]
		if b.says != nil {
			s = b.says(about)
		}
		if s != "" {
			got[t.Spec.Name] = s
		}
	}
	return got, nil
}

func (b *permissionBook) Set(_ context.Context, c hook.PermissionContext, sent hook.PermissionWord) error {
	if err := b.record("set", fmt.Sprintf("%v %v by %s", sent.Granted, sent.Denied, sent.By)); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range sent.Granted {
		b.known[c.Subject+"/"+t] = agent.VerdictAllow
	}
	for _, t := range sent.Denied {
		b.known[c.Subject+"/"+t] = agent.VerdictDeny
	}
	return nil
}

func (b *permissionBook) Request(_ context.Context, _ hook.PermissionContext, tools []hook.PermissionTool) (string, error) {
	return b.reason, b.record("request", namesOf(tools))
}

func (b *permissionBook) Cleanup(_ context.Context, c hook.PermissionContext) error {
	if err := b.record("cleanup", ""); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.known {
		if strings.HasPrefix(key, c.Subject+"/") {
			delete(b.known, key)
		}
	}
	return nil
}

func newBook() *permissionBook {
	return &permissionBook{known: map[string]agent.Verdict{}, errs: map[string]error{}, reason: "to settle the order"}
}

func (b *permissionBook) hooks() hook.Set {
	return hook.Set{Backends: map[string]hook.PermissionBackend{"book": b}}
}

// deskTools are what the scenarios here call: two that ask, and one that does not.
const deskTools = `-- tools.yaml --
- {name: orders.get, kind: internal, effect: read, description: Read., schema: {type: object}, results: [{json: {order: 7}}]}
- {name: refunds.create, kind: internal, effect: non_idempotent, description: Pay., schema: {type: object}, results: [{json: {refund: r1}}]}
- {name: mails.send, kind: internal, effect: non_idempotent, description: Write., schema: {type: object}, results: [{text: sent}]}
`

// newDesk reads a scenario about an agent with these lines of permission.
func newDesk(t *testing.T, permission, model, people, want string) *Scenario {
	t.Helper()
	known := newBook().hooks()
	known.Policies = map[string]hook.Policy{"strict": func(context.Context, hook.PolicyInput) ([]string, error) { return nil, nil }}
	return newDeskWithHooks(t, permission, "", model, people, want, known)
}

// withHooks sets the code that the scenario's agent names.
func withHooks(s *Scenario, code hook.Set) *Scenario {
	s.options.Hooks = code
	return s
}

const bookRules = `  backend: book
  rules:
    - {tool: refunds.create, verdict: ask, approvers: ["user:ana"]}
    - {tool: mails.send, verdict: ask, approvers: ["user:ana"]}
`

// runWithCrashes runs the scenario as it is and with a crash at every call of a port, each time with code of its own.
func runWithCrashes(t *testing.T, s *Scenario, hooks func() hook.Set, after func(t *testing.T, crashed bool)) {
	t.Helper()
	r := withHooks(s, hooks()).Run(Options{})
	require.Empty(t, r.Failures)
	after(t, false)
	for _, c := range r.Calls {
		for _, k := range fault.Crashes() {
			got := withHooks(s, hooks()).Run(Options{Faults: []fault.Point{{Call: c.Number, Kind: k}}})
			require.Empty(t, got.Failures, "%s, %v", k, c)
			after(t, true)
		}
	}
}

// The backend is asked once for a round, about the tools alone that need a permission; hears of every decision; and
// cleans up before the end (presets 4).
func TestPermissionBackend(t *testing.T) {
	s := newDesk(t, bookRules,
		`{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}, {"id": "c2", "name": "orders_get", "input": {}}, {"id": "c3", "name": "mails_send", "input": {}}, {"id": "c4", "name": "refunds_create", "input": {}}]}
{"calls": [{"id": "c5", "name": "refunds_create", "input": {}}, {"id": "c6", "name": "mails_send", "input": {}}]}
{"calls": [{"id": "c7", "name": "orders_get", "input": {}}]}
{"text": "Done."}
`,
		`{"do": "approve", "call": "c1", "by": "user:ana"}
{"do": "deny", "call": "c3", "by": "user:ana"}
`,
		`{"status": "done", "reason": "natural_end", "calls": [{"id": "c1", "reason": "awaiting_permission"}, {"status": "succeeded"}, {"id": "c3", "reason": "awaiting_permission"}, {"reason": "awaiting_permission"}, {"id": "c5", "status": "succeeded"}, {"id": "c6", "status": "failed", "reason": "denied"}, {}],
 "requests": [{"tools": ["refunds.create", "mails.send"], "note": "to settle the order"}], "executed": {"refunds.create": 1, "orders.get": 2}}
`)
	var book *permissionBook
	runWithCrashes(t, s, func() hook.Set { book = newBook(); return book.hooks() }, func(t *testing.T, crashed bool) {
		require.Empty(t, book.known, "it cleaned up")
		require.Equal(t, "cleanup", book.recorded[len(book.recorded)-1])
		if crashed {
			return
		}
		require.Equal(t, []string{
			"get refunds.create*2,mails.send*1", "request refunds.create*2,mails.send*1", "set [refunds.create] [] by user:ana", "set [] [mails.send] by user:ana",
			"get refunds.create*1,mails.send*1", "cleanup",
		}, book.recorded)
	})
}

// A backend knows more than the run: what it approves asks nobody, and what it denies is refused without a request.
func TestPermissionBackendKnows(t *testing.T) {
	for _, mode := range []agent.PermissionMode{agent.ModeBlockAndRetry, agent.ModeSuspendAndReplay} {
		want := `{"status": "done", "calls": [{"id": "c1", "status": "succeeded"}, {"id": "c2", "status": "failed", "reason": "denied"}], "requests": [], "executed": {"refunds.create": 1}}`
		s := newDesk(t, "  mode: "+string(mode)+"\n"+bookRules, `{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}, {"id": "c2", "name": "mails_send", "input": {}}]}
{"text": "Done."}
`, "", want)
		runWithCrashes(t, s, func() hook.Set {
			book := newBook()
			book.known["order 7/refunds.create"], book.known["order 7/mails.send"] = agent.VerdictAllow, agent.VerdictDeny
			return book.hooks()
		}, func(*testing.T, bool) {})
	}
}

// What a backend says of a new round is the last word: one that forgets is asked for again, whatever the run was
// granted before.
func TestPermissionBackendForgets(t *testing.T) {
	s := newDesk(t, bookRules, `{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
{"calls": [{"id": "c2", "name": "refunds_create", "input": {}}]}
{"text": "Done."}
`, `{"do": "approve", "call": "c1", "by": "user:ana"}
{"do": "deny", "call": "c2", "by": "user:ana"}
`, `{"status": "done", "calls": [{"reason": "awaiting_permission"}, {"reason": "awaiting_permission"}], "requests": [{"calls": ["c1"]}, {"calls": ["c2"]}], "executed": {}}`)
	book := newBook()
	book.says = func(string) agent.Verdict { return "" }
	require.Empty(t, withHooks(s, book.hooks()).Run(Options{}).Failures)
}

// A run that waits has not ended: nothing is cleaned up.
func TestPermissionBackendKeepsWhileTheRunWaits(t *testing.T) {
	s := newDesk(t, bookRules, `{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
`, "", `{"status": "waiting"}`)
	book := newBook()
	require.Empty(t, withHooks(s, book.hooks()).Run(Options{}).Failures)
	require.Zero(t, book.count("cleanup"))
}

// An error of the permission service is the run's end, and nothing has run that it was to permit (presets 4). One while
// cleaning up fails a run that would have ended well, and no other.
func TestPermissionBackendFails(t *testing.T) {
	const calls = `{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
`
	const approve = `{"do": "approve", "call": "c1", "by": "user:ana"}
`
	failed := func(what string) string {
		return fmt.Sprintf(`{"status": "done", "reason": "error", "error": {"code": "permission_failed", "message": "~%s.*book: it (is away|panicked)$"}, "executed": {}}`, what)
	}
	for method, c := range map[string]struct{ model, people, want string }{
		"get":     {calls, "", failed("ask permission backend")},
		"request": {calls, "", failed("build a request")},
		"set":     {calls, approve, failed("tell permission backend")},
		"cleanup": {`{"text": "Done."}
`, "", failed("clean up")},
	} {
		for _, err := range []error{errors.New("it is away"), errPanics} {
			t.Run(method+": "+err.Error(), func(t *testing.T) {
				runWithCrashes(t, newDesk(t, bookRules, c.model, c.people, c.want), func() hook.Set {
					book := newBook()
					book.errs[method] = err
					return book.hooks()
				}, func(*testing.T, bool) {})
			})
		}
	}
	t.Run("cleanup of a run that fails", func(t *testing.T) {
		s := newDesk(t, bookRules, `{"error": "auth"}
`, "", `{"status": "done", "error": {"code": "model_failed", "message": "~auth.*; clean up.*it is away"}}`)
		book := newBook()
		book.errs["cleanup"] = errors.New("it is away")
		require.Empty(t, withHooks(s, book.hooks()).Run(Options{}).Failures)
	})
	t.Run("cleanup of a run that is cancelled", func(t *testing.T) {
		s := newDesk(t, bookRules, calls, `{"do": "cancel_run"}
`, `{"status": "done", "reason": "cancelled", "requests": [{"status": "cancelled"}]}`)
		var book *permissionBook
		runWithCrashes(t, s, func() hook.Set { book = newBook(); return book.hooks() }, func(t *testing.T, crashed bool) {
			require.NotZero(t, book.count("cleanup"))
			require.True(t, crashed || book.count("cleanup") == 1)
		})
	})
}

// Where the code is not there that would have to permit something, it is not permitted; a run that needs no permission
// goes on (presets 4).
func TestMissingPermissionCodeFailsClosed(t *testing.T) {
	const pay = `{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
`
	const closed = `{"status": "done", "error": {"code": "permission_failed", "message": "~no such code"}, "calls": [{"status": "cancelled", "executions": 0}], "executed": {}}`
	for name, c := range map[string]struct{ permission, model, want string }{
		"a backend":             {bookRules, pay, closed},
		"a policy":              {"  policy: strict\n", "", `{"status": "done", "error": {"code": "permission_failed", "message": "~no such code"}, "modelCalls": 0}`},
		"a backend nobody asks": {bookRules, `{"calls": [{"id": "c1", "name": "orders_get", "input": {}}]}` + "\n" + `{"text": "Done."}` + "\n", `{"status": "done", "reason": "natural_end"}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDesk(t, c.permission, c.model, "", c.want)
			require.Empty(t, s.Run(Options{}).Failures)
		})
	}
}

// A policy function lists tools that ask beside those that rules name; deny rules win. It speaks when the run begins
// and whenever it is woken, and what it says is in the journal (presets 4).
func TestPermissionPolicy(t *testing.T) {
	s := newDesk(t, `  policy: strict
  approvers: ["user:ana"]
  rules:
    - {tool: mails.send, verdict: deny}
    - {tool: refunds.create, verdict: allow}
`,
		`{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}, {"id": "c2", "name": "mails_send", "input": {}}, {"id": "c3", "name": "orders_get", "input": {}}]}
{"calls": [{"id": "c4", "name": "refunds_create", "input": {}}, {"id": "c5", "name": "orders_get", "input": {}}]}
{"text": "Done."}
`,
		`{"do": "approve", "call": "c1", "by": "user:ana"}
{"do": "deny", "call": "c5", "by": "user:ana"}
`,
		`{"status": "done", "calls": [{"reason": "awaiting_permission"}, {"reason": "denied"}, {"status": "succeeded"}, {"status": "succeeded"}, {"reason": "awaiting_permission"}],
 "requests": [{"tools": ["refunds.create"]}, {"tools": ["orders.get"]}],
 "events": ["run_started", "remembered", "replied", "permission_requested", "call_finished", "call_finished", "call_finished", "parked",
  "resumed", "decided", "remembered", "permission_answered", "replied", "permission_requested", "call_finished", "call_claimed", "call_finished", "parked",
  "resumed", "decided", "remembered", "permission_answered", "replied", "finished"], "executed": {"refunds.create": 1, "orders.get": 1}}
`)
	var inputs []hook.PolicyInput
	policy := func(_ context.Context, in hook.PolicyInput) ([]string, error) {
		inputs = append(inputs, in)
		if len(inputs) > 1 {
			return []string{"refunds_create", "orders.get", "mails.send"}, nil // by either name
		}
		return []string{"refunds.create", "mails_send"}, nil
	}
	require.Empty(t, withHooks(s, hook.Set{Policies: map[string]hook.Policy{"strict": policy}}).Run(Options{}).Failures)
	require.Len(t, inputs, 3)
	require.Equal(t, "desk", inputs[0].Agent)
	require.Equal(t, "order 7", inputs[0].Subject)
	require.Len(t, inputs[0].Tools, 3)
}

// The same list each time comes to the same end wherever the run is interrupted.
func TestPermissionPolicyUnderCrash(t *testing.T) {
	s := newDesk(t, "  policy: strict\n  approvers: [\"user:ana\"]\n",
		`{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
{"calls": [{"id": "c2", "name": "refunds_create", "input": {}}]}
{"text": "Done."}
`, `{"do": "approve", "call": "c1", "by": "user:ana"}
`, `{"status": "done", "reason": "natural_end", "calls": [{"reason": "awaiting_permission"}, {"status": "succeeded"}], "requests": [{"tools": ["refunds.create"]}], "executed": {"refunds.create": 1}}`)
	policy := func(context.Context, hook.PolicyInput) ([]string, error) { return []string{"refunds.create"}, nil }
	runWithCrashes(t, s, func() hook.Set { return hook.Set{Policies: map[string]hook.Policy{"strict": policy}} }, func(*testing.T, bool) {})
}

// A list that cannot be taken at its word lets nothing run.
func TestPermissionPolicyFails(t *testing.T) {
	for name, c := range map[string]struct {
		list []string
		err  error
		says string
	}{
		"an error":     {nil, errors.New("no idea"), "no idea"},
		"unknown tool": {[]string{"refunds.creat"}, nil, `lists .refunds.creat., which is no tool`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDesk(t, "  policy: strict\n", "", "", fmt.Sprintf(`{"status": "done", "error": {"code": "permission_failed", "message": "~strict: .*%s"}, "modelCalls": 0}`, c.says))
			policy := func(context.Context, hook.PolicyInput) ([]string, error) { return slices.Clone(c.list), c.err }
			require.Empty(t, withHooks(s, hook.Set{Policies: map[string]hook.Policy{"strict": policy}}).Run(Options{}).Failures)
		})
	}
}

// newDeskWithHooks is newDesk for an agent with these lines behind its permission and this code.
func newDeskWithHooks(t *testing.T, permission, more, model, people, want string, code hook.Set) *Scenario {
	t.Helper()
	text := "A promise.\n-- agent.yaml --\nname: desk\npreset: arvo\nsystem: You run the desk.\npermission:\n" + permission + more +
		"-- input.json --\n{\"message\": \"Settle order 7.\", \"subject\": \"order 7\"}\n" + deskTools + "-- model.jsonl --\n" + model
	if people != "" {
		text += "-- people.jsonl --\n" + people
	}
	s, err := LoadWithOptions("desk.txtar", []byte(text+"-- want.json --\n"+want), agentfile.Options{Hooks: code})
	require.NoError(t, err)
	return withHooks(s, hook.Set{})
}

// withPlugin is code of one plugin, "p", beside a backend.
func withPlugin(book *permissionBook, p hook.Plugin) hook.Set {
	code := book.hooks()
	code.Plugins = map[string]hook.Factory{"p": func(json.RawMessage) (hook.Plugin, error) { return p, nil }}
	return code
}

// A plugin that fails when a batch parks ends the run as any other end does: the backend cleans up, and nobody is asked
// for a run that is over.
func TestPluginThatFailsAtAPark(t *testing.T) {
	failing := hook.Plugin{RunEnd: func(context.Context, *hook.Moment) error { return errors.New("no more") }}
	for mode, reason := range map[agent.PermissionMode]string{agent.ModeBlockAndRetry: "awaiting_permission", agent.ModeSuspendAndReplay: "cancelled"} {
		requests := `[]`
		if mode == agent.ModeBlockAndRetry { // on record, and closed from the beginning
			requests = `[{"status": "cancelled"}]`
		}
		t.Run(string(mode), func(t *testing.T) {
			s := newDeskWithHooks(t, "  mode: "+string(mode)+"\n"+bookRules, "plugins: [{name: p}]\n", `{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
`, "", `{"status": "done", "reason": "error", "error": {"code": "internal", "message": "~no more"}, "calls": [{"id": "c1", "reason": "`+reason+`"}], "requests": `+requests+`, "executed": {}}`,
				withPlugin(newBook(), failing))
			var book *permissionBook
			runWithCrashes(t, s, func() hook.Set { book = newBook(); return withPlugin(book, failing) }, func(t *testing.T, _ bool) {
				require.NotZero(t, book.count("cleanup"))
			})
		})
	}
}

// An attempt that has begun ends: also one that was woken, in which a plugin stops the run while a call is open, so
// that it parks again.
func TestPluginThatStopsAWokenRunWithOpenCalls(t *testing.T) {
	var begun, ended int
	code := func() hook.Set {
		begun, ended = 0, 0
		return withPlugin(newBook(), hook.Plugin{
			RunStart: func(context.Context, *hook.Moment) error { begun++; return nil },
			RunEnd:   func(context.Context, *hook.Moment) error { ended++; return nil },
			BeforeInference: func(_ context.Context, m *hook.BeforeInference) error {
				if m.Run().Inferences == 1 {
					m.Stop("enough")
				}
				return nil
			},
		})
	}
	s := newDeskWithHooks(t, "  mode: suspend_and_replay\n  rules:\n    - {tool: refunds.create, verdict: ask, approvers: [\"user:ana\"]}\n", "wait: all_suspended\nplugins: [{name: p}]\n",
		`{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
`, `{"do": "message", "text": "And now?"}
`, `{"status": "waiting"}`, code())
	require.Empty(t, withHooks(s, code()).Run(Options{}).Failures)
	require.Equal(t, begun, ended)
}

// The backend hears of a decision that was made early, too.
func TestPermissionBackendHearsOfEarlyDecisions(t *testing.T) {
	var book *permissionBook
	s := newDeskWithHooks(t, "  mode: suspend_and_replay\n  early: keep\n  scope: tool\n"+bookRules, "", `{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
{"text": "Done."}
`, `{"do": "approve", "call": "c1", "by": "user:ana", "at": "inference:1"}
`, `{"status": "done", "reason": "natural_end", "executed": {"refunds.create": 1}}`, newBook().hooks())
	runWithCrashes(t, s, func() hook.Set { book = newBook(); return book.hooks() }, func(t *testing.T, _ bool) {
		require.NotZero(t, book.count("set [refunds.create] [] by user:ana"))
	})
}

// What a backend denies, nobody is asked to approve: neither is the call that takes another back.
func TestPermissionBackendDeniesAnUndo(t *testing.T) {
	s, err := LoadWithOptions("undo.txtar", []byte(`A backend denies an undo.
-- agent.yaml --
name: desk
system: You settle orders.
permission:
  mode: suspend_and_replay
  backend: book
  rules: [{tool: refunds.cancel, verdict: ask, approvers: ["user:ana"]}, {tool: "*", verdict: allow}]
-- input.json --
{"message": "Refund order 7.", "subject": "order 7"}
-- tools.yaml --
- {name: refunds.create, schema: {type: object}, undo: {tool: refunds.cancel}, results: [{text: paid}]}
- {name: refunds.cancel, schema: {type: object}, results: [{text: cancelled}]}
-- model.jsonl --
{"calls": [{"id": "c1", "name": "refunds_create"}]}
{"text": "Refunded."}
-- people.jsonl --
{"do": "undo", "call": "c1", "by": "user:bob"}
-- want.json --
{"status": "done", "reason": "error", "error": {"code": "undo_failed"}, "requests": [], "executed": {"refunds.create": 1},
 "calls": [{"id": "c1"}, {"undoes": "c1", "status": "failed", "reason": "denied"}]}
`), agentfile.Options{Hooks: newBook().hooks()})
	require.NoError(t, err)
	book := newBook()
	book.says = func(about string) agent.Verdict {
		return map[string]agent.Verdict{"order 7/refunds.cancel": agent.VerdictDeny}[about]
	}
	require.Empty(t, withHooks(s, book.hooks()).Run(Options{}).Failures)
}

// A decision on a request for budget is about it alone, made early, too: it grants no tool, and the backend
// hears nothing.
func TestPermissionBackendHearsOfNoBudget(t *testing.T) {
	book := newBook()
	s := newDeskWithHooks(t, "  mode: suspend_and_replay\n  early: keep\n  scope: tool\n  approvers: [\"user:ana\"]\n"+bookRules,
		"limits: {tokens: 5, onBudget: ask}\n", `{"calls": [{"id": "c1", "name": "orders_get", "input": {}}], "usage": {"input": 5, "output": 1}}
{"text": "Done."}
`, `{"do": "approve", "call": "budget-1", "by": "user:ana", "at": "inference:1"}
`, `{"status": "done", "reason": "natural_end", "calls": [{"id": "c1"}, {"id": "budget-1", "status": "succeeded"}]}`, book.hooks())
	require.Empty(t, withHooks(s, book.hooks()).Run(Options{}).Failures)
	require.Equal(t, []string{"cleanup"}, book.recorded)
}

// A fork makes the open calls of several rounds again. What the backend says of their tools holds for each of them.
func TestPermissionBackendDeniesOpenRoundsOfAFork(t *testing.T) {
	book := newBook()
	book.says = func(string) agent.Verdict {
		if strings.Count("\n"+strings.Join(book.recorded, "\n"), "\nget ") > 2 { // from the third round on
			return agent.VerdictDeny
		}
		return ""
	}
	s, err := LoadWithOptions("fork.txtar", []byte(`A backend denies what a fork asks again.
-- agent.yaml --
name: desk
preset: tirea
system: You refund.
permission:
  mode: suspend_and_replay
`+bookRules+`-- input.json --
{"message": "Refund."}
-- then.json --
{"fork": "input_received"}
`+deskTools+`-- model.jsonl --
{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
{"calls": [{"id": "c2", "name": "mails_send", "input": {}}]}
{"text": "Waiting."}
{"text": "Waiting."}
{"text": "Denied."}
-- people.jsonl --
{"do": "message", "text": "And write."}
{"do": "deny", "call": "c1", "by": "user:ana"}
{"do": "deny", "call": "c2", "by": "user:ana"}
-- want.json --
{"status": "done", "requests": [], "calls": [{"reason": "denied"}, {"reason": "denied"}]}
`), agentfile.Options{Hooks: book.hooks()})
	require.NoError(t, err)
	require.Empty(t, s.Run(Options{}).Failures)
}
