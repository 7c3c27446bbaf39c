package asl

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Description is what can be known of an execution.
type Description struct {
	ExecutionARN    string
	StateMachineARN string
	Name            string
	Status          Status
	Input           json.RawMessage
	Output          json.RawMessage // nil unless it succeeded
	Error           string
	Cause           string
	StartDate       time.Time
	StopDate        time.Time // zero while running
	RedriveCount    int
	RedriveDate     time.Time // zero before the first redrive
	HistoryEvents   int       // see MaxEvents
	Transitions     int       // states entered, retries included: what AWS bills
}

// Describe tells how an execution stands. Errors: InvalidArn, ExecutionDoesNotExist.
func (e *Engine) Describe(_ context.Context, arn string) (Description, error) {
	x, err := e.find(arn)
	if err != nil {
		return Description{}, err
	}
	return x.describe(), nil
}

// List describes the executions that stand like that, all for an empty status, the newest first and those of the same
// instant by name.
func (e *Engine) List(_ context.Context, status Status) []Description {
	e.mu.Lock()
	var found []*execution
	for _, x := range e.executions {
		if x.saved && (status == "" || x.rec.Status == status) {
			found = append(found, x)
		}
	}
	e.mu.Unlock()
	all := make([]Description, len(found))
	for i, x := range found {
		all[i] = x.describe()
	}
	slices.SortFunc(all, func(a, b Description) int {
		if c := b.StartDate.Compare(a.StartDate); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}

func (x *execution) describe() Description {
	r := x.record()
	return Description{
		ExecutionARN: x.arn, StateMachineARN: x.engine.ARN, Name: r.Name, Status: r.Status,
		Input: r.Input, Output: r.Output, Error: r.Error, Cause: r.Cause,
		StartDate: r.StartDate, StopDate: r.StopDate, RedriveCount: r.RedriveCount, RedriveDate: r.RedriveDate,
		HistoryEvents: r.Events, Transitions: r.Transitions,
	}
}

// find is the execution with an ARN.
func (e *Engine) find(arn string) (*execution, error) {
	if parts := strings.Split(arn, ":"); len(parts) != 8 || parts[0] != "arn" || parts[2] != "states" || parts[5] != "execution" {
		return nil, refuse(InvalidArn, "%q is not the ARN of an execution", arn)
	}
	name, ok := strings.CutPrefix(arn, e.prefix)
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.executions[name]
	if !ok || x == nil || !x.saved {
		return nil, refuse(ExecutionDoesNotExist, "execution %s does not exist", arn)
	}
	return x, nil
}
