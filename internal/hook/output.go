package hook

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/run"
)

// CheckOutput says what is wrong with an output that is JSON and fits its schema; "" = nothing. An agent names it with
// `output: {format: json, check: NAME}`. What is wrong is sent back to the model, like a schema's error: it costs an
// interaction, and the run ends by its limit where the model does not learn.
//
// An error, or a panic, says that the output could not be checked, and ends the run, with the code internal. The
// context's own error ends nothing: the output is checked again. It may be called again for the same output, so it
// should have no effects. Safe for concurrent use.
type CheckOutput func(ctx context.Context, in OutputInput) (wrong string, err error)

// OutputInput is what a CheckOutput may go by. It must not be changed.
type OutputInput struct {
	Tenant, Run, Agent     string
	Subject, AccessControl string
	Input                  json.RawMessage // what the run was started with; nil = a message
	State                  json.RawMessage // the run's shared state
	Output                 json.RawMessage // one JSON value, compact
}

// maxWrong bounds what a CheckOutput says to the model, in bytes.
const maxWrong = 4 << 10

const phaseOutput run.Phase = "check_output"

// Checked asks the check of that name about an output. Errors are *Error or the context's.
func (s Set) Checked(ctx context.Context, name string, of *run.AgentState, output json.RawMessage) (wrong string, err error) {
	check := s.Outputs[name]
	if check == nil {
		return "", &Error{name, phaseOutput, errMissing}
	}
	err = callSafely(func() (err error) {
		wrong, err = check(ctx, OutputInput{
			Tenant: of.Tenant, Run: of.Run, Agent: of.Agent, Subject: of.Subject, AccessControl: of.AccessControl,
			Input: of.Input, State: of.SharedState(), Output: output,
		})
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", &Error{name, phaseOutput, err}
	default:
		return strings.ToValidUTF8(wrong[:min(len(wrong), maxWrong)], ""), nil
	}
}

// OutputNames lists the output checks, sorted.
func (s Set) OutputNames() []string { return slices.Sorted(maps.Keys(s.Outputs)) }
