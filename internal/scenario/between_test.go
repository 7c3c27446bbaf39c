package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

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
