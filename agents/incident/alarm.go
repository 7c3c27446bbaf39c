package incident

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
)

// AlarmBuilder is the name of the context builder.
const AlarmBuilder = "alarm"

// alarmEvent is what the rule for alarms in template.yaml makes of an event: the detail of a CloudWatch alarm that
// changed its state.
type alarmEvent struct {
	Region string `json:"region"`
	Time   string `json:"time"`
	Alarm  struct {
		AlarmName string `json:"alarmName"`
		State     struct {
			Reason string `json:"reason"`
		} `json:"state"`
		Configuration struct {
			Description string `json:"description"`
			Metrics     []struct {
				MetricStat struct {
					Metric struct {
						Name       string            `json:"name"`
						Dimensions map[string]string `json:"dimensions"`
					} `json:"metric"`
				} `json:"metricStat"`
			} `json:"metrics"`
		} `json:"configuration"`
	} `json:"alarm"`
}

// alarmedService is the dimension that says which service an alarm is about.
const alarmedService = "Service"

// Alarm is the context builder: it tells the model what the alarm says, in five lines instead of a page of JSON. A run
// that a person starts with a message begins with that message.
func Alarm(_ context.Context, in agent.BuildInput) (agent.BuildOutput, error) {
	out := agent.BuildOutput{System: in.System}
	if in.Input == nil || !in.MessagesWanted {
		return out, nil
	}
	var a alarmEvent
	if err := json.Unmarshal(in.Input, &a); err != nil || a.Alarm.AlarmName == "" {
		return agent.BuildOutput{}, errors.New("alarm: want the detail of a CloudWatch alarm under that key")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The alarm %s went off at %s in %s.\n", a.Alarm.AlarmName, a.Time, a.Region)
	for _, m := range a.Alarm.Configuration.Metrics {
		if name := m.MetricStat.Metric.Dimensions[alarmedService]; name != "" {
			fmt.Fprintf(&b, "Service: %s\nMetric: %s\n", name, m.MetricStat.Metric.Name)
		}
	}
	if d := a.Alarm.Configuration.Description; d != "" {
		fmt.Fprintf(&b, "What it is for: %s\n", d)
	}
	fmt.Fprintf(&b, "Why now: %s", a.Alarm.State.Reason)
	out.Messages = []agent.BuildMessage{{Block: agent.Text{Text: b.String()}}}
	return out, nil
}
