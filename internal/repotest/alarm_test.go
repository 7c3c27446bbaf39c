package repotest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// alarmFile is what the template's rule makes of an alarm that went off.
const alarmFile = "step/events/event-alarm.json"

var alarmRun = agent.RunID(tenant, "incident", "2dde0eb1-528b-d2d5-9ca6-6d590caf2329")

func incidentFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(sampleRoot, "agents", "incident", name))
	require.NoError(t, err)
	return b
}

// alarmEvent is the event as CloudWatch sends it.
func alarmEvent(t *testing.T) string {
	t.Helper()
	return string(incidentFile(t, "alarm.json"))
}

// alarmed makes the model the one that answers alarms.
func (w *world) alarmed() {
	one := func(id, name, input string) agent.Reply {
		return agent.Reply{Model: "m", Calls: []agent.ReplyCall{{ID: id, Name: name, Input: json.RawMessage(input)}}}
	}
	w.replies = []agent.Reply{
		one("c1", "deploys_rollback", `{"service":"checkout","to":"v41","reason":"An alarm is on."}`),
		one("c2", "metrics_query", `{"service":"checkout","metric":"errors_percent"}`),
		one("c3", "deploys_list", `{"service":"checkout"}`),
		one("c4", "deploys_rollback", `{"service":"checkout","to":"v41","reason":"18 % of requests fail on v42."}`),
		one("c5", "page_human", `{"service":"checkout","summary":"Rolled back."}`),
		{Model: "m", Text: "Rolled back."},
	}
}

// Emit keeps what services are asked.
func (w *world) Emit(_ context.Context, e policy.Outgoing) error {
	w.emitted = append(w.emitted, e)
	return nil
}

// The rule takes alarms that go off and whose names begin as AlarmPrefix says: none that is over, and none of this stack's own.
func TestAlarmsThatStartNothing(t *testing.T) {
	for name, change := range map[string][2]string{
		"the alarm is over":           {`"value": "ALARM"`, `"value": "OK"`},
		"nobody knows":                {`"value": "ALARM"`, `"value": "INSUFFICIENT_DATA"`},
		"an alarm of the stack's own": {`"alarmName": "incident-checkout-errors"`, `"alarmName": "countersign-dev-ExecutionsFailed-1A2B"`},
		"another source":              {`"source": "aws.cloudwatch"`, `"source": "countersign.requests"`},
		"another kind of event":       {"CloudWatch Alarm State Change", "CloudWatch Alarm Configuration Change"},
	} {
		var event map[string]any
		text := alarmEvent(t)
		require.Contains(t, text, change[0], name)
		require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(text, change[0], change[1])), &event))
		require.False(t, newRule(t, "AlarmRule").matches(event), name)
	}
}

// What `countersign run incident --input @agents/incident/input.json` starts is what the event starts.
func TestInputOfTheAlarm(t *testing.T) {
	var state map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(decode(t, alarmFile)["state"], &state))
	require.JSONEq(t, string(state["input"]), string(incidentFile(t, "input.json")))
}

// on gives the run to the function its route names, until it waits or has ended.
func (w *world) on(r runtime.Route) runtime.Route {
	w.t.Helper()
	for r.Next == runtime.NextStep || r.Next == runtime.NextTools {
		function := map[string]string{runtime.NextStep: "step", runtime.NextTools: "tool"}[r.Next]
		state, err := json.Marshal(r)
		require.NoError(w.t, err)
		out, err := w.functions[function].Invoke(context.Background(), function, fmt.Appendf(nil, `{"execution":"x","name":%q,"state":%s}`, w.state(r.Run).Owner, state))
		require.NoError(w.t, err)
		r = runtime.Route{}
		require.NoError(w.t, json.Unmarshal(out, &r))
	}
	return r
}

// waited keeps the task token of a run that waits, has what it waits for decided by act, and is what the woken execution does next.
func (w *world) waited(r runtime.Route, act func()) runtime.Route {
	w.t.Helper()
	require.Equal(w.t, runtime.NextWait, r.Next)
	owner, woken := w.state(r.Run).Owner, len(w.woken)
	state, err := json.Marshal(r)
	require.NoError(w.t, err)
	_, err = w.functions["approve"].Invoke(context.Background(), "approve", fmt.Appendf(nil, `{"execution":"x","name":%q,"token":"t%d","state":%s}`, owner, woken, state))
	require.NoError(w.t, err)
	act()
	require.Len(w.t, w.woken, woken+1, "the execution is woken")
	out, err := w.functions["step"].Invoke(context.Background(), "step", fmt.Appendf(nil, `{"execution":"x","name":%q,"state":%s}`, owner, state))
	require.NoError(w.t, err)
	r = runtime.Route{}
	require.NoError(w.t, json.Unmarshal(out, &r))
	return w.on(r)
}

// The sample alarm through the handlers and within their roles: delivered twice it is one run; a rollback before the agent has looked is
// refused and nobody is asked; the one behind it waits for the people on call, and operators may not approve it; then a person is woken
// over the bus, answers, and the run ends.
func TestAlarmToItsEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.alarmed()
		first := requireNext(t, runtime.NextTools, w.feed(alarmFile))
		again := strings.ReplaceAll(string(readSample(t, alarmFile)), `"name": "2dde`, `"name": "again-2dde`)
		out, err := w.functions["step"].Step(context.Background(), []byte(again))
		require.NoError(t, err)
		require.Equal(t, first.Run, requireNext(t, runtime.NextDone, out).Run)

		r := w.on(first)
		require.Equal(t, []string{"metrics.query", "deploys.list"}, w.entered)
		early := w.callOf(alarmRun, "c1")
		require.Equal(t, run.StatusFailed, early.Status)
		require.Contains(t, early.Result.Content, "Look first: call metrics_query and deploys_list before this.")
		list, _, err := approval.List(t.Context(), w.table, tenant, approval.Query{Status: approval.Pending})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, []string{"c4"}, list[0].Calls)
		require.Equal(t, []string{"group:oncall"}, list[0].Approvers)

		r = w.waited(r, func() {
			require.ErrorIs(t, w.decide(list[0].ID, "group:operators"), approval.ErrForbidden)
			require.NoError(t, w.decide(list[0].ID, "group:oncall"))
		})
		require.Equal(t, []string{"metrics.query", "deploys.list", "deploys.rollback"}, w.entered)
		require.Len(t, w.emitted, 1)
		require.Equal(t, []string{"page.human", alarmRun + "/c5"}, []string{w.emitted[0].Type, w.emitted[0].ID})

		r = w.waited(r, func() {
			in := runtime.Inputs{Ports: w.ports, Definitions: runtime.PinnedDefinitions(w.ports.Blobs), Waits: &runtime.Waits{Ports: w.ports}}
			require.NoError(t, in.Answer(t.Context(), runtime.Answer{Tenant: tenant, Run: alarmRun, Call: "c5", Content: "I mend v42."}))
		})
		require.Equal(t, runtime.NextDone, r.Next)
		s := w.state(alarmRun)
		require.Equal(t, run.ReasonNaturalEnd, s.Reason)
		require.Equal(t, `"Rolled back."`, string(s.Output))
	})
}

// TestDashboard reads the dashboard as CloudWatch does: every metric is of a resource of the stack, and our own are those
// that alarms watch.
func TestDashboard(t *testing.T) {
	p := project(t, nil)
	body, err := p.Resolve(p.Template.Get("Resources", "OperationsDashboard", "Properties", "DashboardBody"), p.Deployed(nil))
	require.NoError(t, err)
	var doc struct {
		Widgets []struct {
			Type       string
			Properties struct {
				Title, Region string
				Metrics       [][]any
			}
		}
	}
	text := fmt.Sprint(body)
	require.NotContains(t, text, "${")
	require.NoError(t, json.Unmarshal([]byte(text), &doc), text)
	require.Len(t, doc.Widgets, 7)
	own := map[string]bool{}
	for _, w := range doc.Widgets {
		require.Equal(t, "eu-central-1", w.Properties.Region)
		var before []string
		for _, m := range w.Properties.Metrics {
			var metric []string
			for i, part := range m {
				word, isText := part.(string)
				if !isText {
					continue // options
				}
				if word == "." {
					word = before[i]
				}
				metric = append(metric, word)
			}
			require.Len(t, metric, 4, w.Properties.Title)
			if metric[0] == observe.Namespace {
				require.Equal(t, observe.Dimension, metric[2])
				own[metric[1]] = true
			}
			before = metric
		}
	}
	for _, name := range observe.AlarmMetrics() {
		require.True(t, own[name], "the dashboard does not show %s", name)
	}
}
