package asl

import (
	"encoding/json"
	"strconv"
)

// contextObject is what $$ stands for, made once an attempt.
func (x *execution) contextObject() any {
	if x.object == nil {
		x.object = x.newContextObject()
	}
	return x.object
}

func (x *execution) newContextObject() any {
	execution := map[string]any{
		"Id": x.arn, "Name": x.rec.Name, "Input": x.input, "StartTime": formatTime(x.rec.StartDate),
		"RoleArn": x.engine.RoleARN, "RedriveCount": jsonInt(x.rec.RedriveCount),
	}
	if x.rec.RedriveCount > 0 {
		execution["RedriveTime"] = formatTime(x.rec.RedriveDate)
	}
	object := map[string]any{
		"Execution":    execution,
		"State":        map[string]any{"Name": x.at, "EnteredTime": formatTime(x.entered), "RetryCount": jsonInt(x.retryCount)},
		"StateMachine": map[string]any{"Id": x.engine.ARN, "Name": x.engine.name},
	}
	if x.token != "" {
		object["Task"] = map[string]any{"Token": x.token}
	}
	return object
}

func jsonInt(n int) json.Number { return json.Number(strconv.Itoa(n)) }
