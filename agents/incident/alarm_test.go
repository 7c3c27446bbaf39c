package incident_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents/incident"
	"github.com/countersign/countersign/pkg/agent"
)

func TestAlarmIsReadToTheModel(t *testing.T) {
	input, err := os.ReadFile("input.json")
	require.NoError(t, err)
	in := agent.BuildInput{System: "You answer alarms.", Input: input, MessagesWanted: true}
	out, err := incident.Alarm(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "You answer alarms.", out.System)
	require.Len(t, out.Messages, 1)
	require.Equal(t, `The alarm incident-checkout-errors went off at 2026-02-13T14:09:12Z in eu-central-1.
Service: checkout
Metric: errors_percent
What it is for: More than 5 % of checkouts fail
Why now: Threshold Crossed: 3 datapoints [18.4 (13/02/26 14:08:00), 18.1 (13/02/26 14:07:00), 17.9 (13/02/26 14:06:00)] were greater than the threshold (5.0).`,
		out.Messages[0].Block.(agent.Text).Text)

	in.MessagesWanted = false
	out, err = incident.Alarm(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, out.Messages, "the run has begun")
	in.MessagesWanted, in.Input = true, nil
	out, err = incident.Alarm(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, out.Messages, "what a person said is the message")
}

// What is no alarm ends the run with an error that says what was wanted and repeats nothing.
func TestNoAlarm(t *testing.T) {
	for _, input := range []string{`{}`, `{"alarm":{}}`, `{"alarm":"secret"}`, `[]`, `"secret"`} {
		_, err := incident.Alarm(t.Context(), agent.BuildInput{Input: json.RawMessage(input), MessagesWanted: true})
		require.EqualError(t, err, "alarm: want the detail of a CloudWatch alarm under that key", input)
	}
	// An alarm on a metric expression has metrics without a metricStat, and one without a description has none.
	out, err := incident.Alarm(t.Context(), agent.BuildInput{MessagesWanted: true, Input: json.RawMessage(`{"alarm":{"alarmName":"a","configuration":{"metrics":[{"id":"e","expression":"m1/m2"}]}}}`)})
	require.NoError(t, err)
	require.NotContains(t, out.Messages[0].Block.(agent.Text).Text, "Service:")
	require.Equal(t, 2, len(strings.Split(out.Messages[0].Block.(agent.Text).Text, "\n")))
}

func TestOrderIsChecked(t *testing.T) {
	_, err := incident.NewOrder(json.RawMessage(`{"deploys.rollback":["deploys.list"]}`))
	require.NoError(t, err)
	for _, config := range []string{``, `{}`, `[]`, `{"deploys.rollback":"deploys.list"}`, `{"a":["b"]} x`} {
		_, err := incident.NewOrder(json.RawMessage(config))
		require.EqualError(t, err, `want an object of lists of tools, as {"deploys.rollback": ["deploys.list"]}`, config)
	}
}
