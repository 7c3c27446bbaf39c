package samtest

import (
	"fmt"
	"slices"
	"strings"
)

// eventStarts says which rules that start runs leave something to the event that is not its own to say, or lose one. The key is the event's
// id, so an event that comes twice is one run; the tenant is EventTenant's; and the queue of what could not be delivered takes it.
func eventStarts(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources("AWS::Events::Rule") {
		for _, t := range r.Properties.Get("Targets").Each() {
			if !p.mayFill(t.Get("DeadLetterConfig", "Arn").Short(), r.ID) {
				found = append(found, r.problem(t, "DeadLetterConfig: want a policy of the queue that takes what %s could not deliver", r.ID))
			}
			if t.Get("Arn").Short() == "AgentStateMachine" {
				found = append(found, startInput(r, t.Get("InputTransformer"))...)
			}
		}
	}
	return found
}

// startInput checks what a rule makes of an event: the input of an execution.
func startInput(r Resource, t *Node) []Problem {
	var found []Problem
	template, paths := t.Get("InputTemplate").Short(), t.Get("InputPathsMap")
	for _, want := range []string{`"key": <id>`, `"tenant": "${EventTenant}"`, `"agent": `} {
		if !strings.Contains(template, want) {
			found = append(found, r.problem(t, "InputTemplate: want %s in it", want))
		}
	}
	if paths.Get("id").Short() != "$.id" {
		found = append(found, r.problem(t, "InputPathsMap: want id: $.id"))
	}
	if r.Properties.Get("EventPattern", "source") == nil || r.Properties.Get("EventPattern", "detail-type") == nil {
		found = append(found, r.problem(t, "EventPattern: want a source and a detail-type"))
	}
	return found
}

// mayFill reports whether a policy of the queue lets a rule put its undelivered events there.
func (p *Project) mayFill(queue, rule string) bool {
	return slices.ContainsFunc(p.Resources("AWS::SQS::QueuePolicy"), func(r Resource) bool {
		if fmt.Sprintf("%s.Arn", r.Properties.Get("Queues").Each()[0].Short()) != queue {
			return false
		}
		return slices.ContainsFunc(r.Properties.Get("PolicyDocument", "Statement").Each(), func(s *Node) bool {
			return slices.ContainsFunc(s.Get("Condition", "ArnEquals", "aws:SourceArn").Each(), func(arn *Node) bool { return arn.Short() == rule+".Arn" })
		})
	})
}
