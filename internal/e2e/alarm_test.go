package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// incidentModel is a model that looks and rolls back. The conversation alone determines its next reply.
func incidentModel(t *testing.T) *standins.Bedrock {
	t.Helper()
	turns := []standins.Block{
		standins.ToolUse("t1", "metrics_query", `{"service":"checkout","metric":"errors_percent"}`),
		standins.ToolUse("t2", "deploys_list", `{"service":"checkout"}`),
		standins.ToolUse("t3", "deploys_rollback", `{"service":"checkout","to":"v41","reason":"18 % of checkouts fail since v42."}`),
		standins.Text("Rolled back."),
	}
	return newModel(t, func(r standins.BedrockRequest) standins.Turn {
		results := strings.Count(string(r.Body), `"toolResult"`)
		return standins.Reply{Blocks: turns[results : results+1], Usage: standins.Usage{Input: 100, Output: 20}}
	})
}

// An alarm of CloudWatch starts a run of the incident agent by the template's rule, delivered three times one run. The
// rollback waits for the people on call and for nobody else.
func TestAlarmStartsTheResponder(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	d := deploy(t, incidentModel(t), func(d *deployment) {
		d.bus.Deliveries, d.env = 3, []string{"INCIDENT_STATE=" + state}
	})
	raw, err := os.ReadFile("../../agents/incident/alarm.json")
	require.NoError(t, err)
	var alarm struct{ Detail json.RawMessage }
	require.NoError(t, json.Unmarshal(raw, &alarm))
	calm := json.RawMessage(strings.ReplaceAll(string(alarm.Detail), `"ALARM"`, `"OK"`))
	d.bus.Put(t.Context(), "aws.cloudwatch", "CloudWatch Alarm State Change", calm)
	id := d.bus.Put(t.Context(), "aws.cloudwatch", "CloudWatch Alarm State Change", alarm.Detail)
	runID := agent.RunID(eventTenant, "incident", id)

	s := d.waitFor(eventTenant, runID, isParked)
	require.NoDirExists(t, state, "nothing is done before a person says so")
	wait := s.Waits()[0].Wait.Approval
	_, err = d.client(eventTenant, "ana", "operators").Decide(t.Context(), wait, web.Verdict{Action: approval.Approve})
	requireProblem(t, err, 403, web.NotAllowed)
	ben := d.client(eventTenant, "ben", "oncall")
	page, err := ben.Runs(t.Context(), web.RunQuery{})
	require.NoError(t, err)
	require.Len(t, page.Items, 1, "three deliveries, and an alarm that is over")
	d.approve(ben, s)
	s = d.waitFor(eventTenant, runID, isDone)
	require.Equal(t, run.ReasonNaturalEnd, s.Reason, "%+v", s.Error)
	require.Equal(t, `"Rolled back."`, string(s.Output))
	kept, err := os.ReadDir(state)
	require.NoError(t, err)
	require.Len(t, kept, 1, "rolled back once")
	require.Empty(t, d.bus.Undelivered())
	d.waitAtRest()
}
