package samtest

import (
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/observe/metrics"
)

// Measure is one metric that an alarm watches, its dimensions in short.
type Measure struct{ Namespace, Metric, Dimensions string }

func (m Measure) String() string { return m.Namespace + " " + m.Metric + " of " + m.Dimensions }

// measures are what an alarm watches.
func measures(alarm *Node) []Measure {
	if alarm.Get("MetricName") != nil {
		return []Measure{{alarm.Get("Namespace").String(), alarm.Get("MetricName").String(), dimensions(alarm)}}
	}
	var out []Measure
	for _, m := range alarm.Get("Metrics").Each() {
		if metric := m.Get("MetricStat", "Metric"); metric != nil {
			out = append(out, Measure{metric.Get("Namespace").String(), metric.Get("MetricName").String(), dimensions(metric)})
		}
	}
	return out
}

func dimensions(n *Node) string {
	var parts []string
	for _, d := range n.Get("Dimensions").Each() {
		parts = append(parts, d.Get("Name").String()+"="+d.Get("Value").Short())
	}
	return strings.Join(parts, ",")
}

// watched are the measures that R18 and operations want an alarm on.
func watched(p *Project) []Measure {
	var out []Measure
	for _, name := range metrics.All() {
		out = append(out, Measure{metrics.Namespace, name, metrics.Dimension + "=AgentStateMachine.Name"})
	}
	for _, name := range []string{"ExecutionsFailed", "ExecutionsTimedOut"} {
		out = append(out, Measure{"AWS/States", name, "StateMachineArn=AgentStateMachine"})
	}
	for _, f := range p.Resources(functionType) {
		out = append(out, Measure{"AWS/Lambda", "Errors", "FunctionName=" + f.ID}, Measure{"AWS/Lambda", "Throttles", "FunctionName=" + f.ID})
	}
	for _, q := range p.Resources("AWS::SQS::Queue") {
		out = append(out, Measure{"AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName=" + q.ID + ".QueueName"})
	}
	for _, name := range []string{"ReadThrottleEvents", "WriteThrottleEvents"} {
		out = append(out, Measure{"AWS/DynamoDB", name, "TableName=RunsTable"})
		out = append(out, Measure{"AWS/DynamoDB", name, "TableName=RunsTable,GlobalSecondaryIndexName=lists"})
	}
	for _, op := range []string{"GetItem", "Query", "PutItem", "UpdateItem", "TransactWriteItems"} {
		out = append(out, Measure{"AWS/DynamoDB", "SystemErrors", "TableName=RunsTable,Operation=" + op})
	}
	return append(out,
		Measure{"AWS/Lambda", "Invocations", "FunctionName=SweepFunction"},
		Measure{"AWS/ApiGateway", "5xx", "ApiId=HttpApi"},
	)
}

// alarms says which measures nobody is told of, and which alarms nobody hears or watch what nobody emits.
func alarms(p *Project) []Problem {
	var found []Problem
	want := watched(p)
	var got []Measure
	for _, r := range p.Resources("AWS::CloudWatch::Alarm") {
		for _, m := range measures(r.Properties) {
			got = append(got, m)
			if !slices.Contains(want, m) {
				found = append(found, r.problem(nil, "%s: nobody emits it, or no list here has it", m))
			}
		}
		found = append(found, r.want("AlarmActions", "[AlarmTopic]")...)
		if missing := r.Properties.Get("TreatMissingData").String(); missing != "notBreaching" && r.ID != "SweepMissing" {
			found = append(found, r.problem(nil, "TreatMissingData: want notBreaching: nothing to count is nothing wrong"))
		}
	}
	for _, m := range want {
		if !slices.Contains(got, m) {
			found = append(found, Problem{File: TemplateFile, Of: m.String(), Text: "want an alarm"})
		}
	}
	return found
}
