package repotest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/observe"
)

// alarmFile is what the template's rule makes of an alarm that went off.
const alarmFile = "step/events/event-alarm.json"

func incidentFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "agents", "incident", name))
	require.NoError(t, err)
	return b
}

// alarmEvent is the event as CloudWatch sends it.
func alarmEvent(t *testing.T) string {
	t.Helper()
	return string(incidentFile(t, "alarm.json"))
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
	require.NoError(t, json.Unmarshal(strictly[map[string]json.RawMessage](t, alarmFile)["state"], &state))
	require.JSONEq(t, string(state["input"]), string(incidentFile(t, "input.json")))
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
