package asl

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A definition that the interpreter cannot play is refused, and the error names the state and the key.
func TestRefusals(t *testing.T) {
	deployed, err := os.ReadFile(agentFile)
	require.NoError(t, err)
	replace := func(old, replacement string) string {
		t.Helper()
		require.Contains(t, string(deployed), old)
		return strings.Replace(string(deployed), old, replacement, 1)
	}
	inTask := func(field string) string { return task(`, ` + field) }
	inChoice := func(choice string) string {
		return `{"StartAt": "C", "States": {"C": {"Type": "Choice", "Choices": [` + choice +
			`], "Default": "S"}, "S": {"Type": "Succeed"}}}`
	}
	retry := func(field string) string {
		return inTask(`"Retry": [{"ErrorEquals": ["A"], "IntervalSeconds": 1, "MaxAttempts": 1, "BackoffRate": 1, "MaxDelaySeconds": 1, ` + field + `}]`)
	}
	for _, c := range []struct{ name, definition, want string }{
		{"state type", replace(`"Type": "Succeed"`, `"Type": "Wait"`), `state "Done": Type "Wait" is not supported`},
		{"no state", `{"StartAt": "A", "States": {"A": 1}}`, `States/A": want`},
		{"machine key", replace(`"StartAt"`, `"TimeoutSeconds": 5, "StartAt"`), `TimeoutSeconds`},
		{"JSONata", replace(`"Type": "Succeed"`, `"Type": "Succeed", "QueryLanguage": "JSONata"`),
			`States/Done/QueryLanguage`},
		{"unknown key", inTask(`"InputPath": "$.a"`), `States/T/InputPath`},
		{"key of another type", inTask(`"Default": "S"`), `state "T": Default is not supported`},
		{"key in Retry", retry(`"MaxAttempt": 1`), `Retry/0/MaxAttempt`},
		{"resource", replace(`lambda:invoke"`, `sqs:sendMessage"`),
			`state "Step": Resource arn:aws:states:::sqs:sendMessage is not supported`},
		{"parameter", replace(`"FunctionName"`, `"Qualifier": "1", "FunctionName"`),
			`state "Step": Parameters [FunctionName Payload Qualifier] is not supported`},
		{"parameter missing", replace(`"Name.$": "$.successor",`, ``), `state "Continue": Parameters [Input StateMachineArn] is not supported`},
		{"intrinsic function", replace(`"$.successor"`, `"States.Format('{}', $.run)"`),
			`state "Continue": Parameters.Name.$ "States.Format('{}', $.run)" is not supported`},
		{"path", replace(`"$.successor"`, `"$.runs[0]"`),
			`state "Continue": Parameters.Name.$ "$.runs[0]" is not supported`},
		{"context", replace(`"$$.Execution.Name"`, `"$$.Map.Item"`), `Payload.name.$ "$$.Map.Item" is not supported`},
		{"token elsewhere", replace(`"$$.Execution.Name"`, `"$$.Task.Token"`), `state "Step": Parameters.Payload.name.$`},
		{"list in parameters", replace(`"state.$": "$"`, `"state": []`),
			`state "Step": Parameters.Payload.state is not supported, want no list`},
		{"parameter twice", replace(`"state.$": "$"`, `"state.$": "$", "state": 1`),
			`state "Step": Parameters.Payload.state is not supported, want it with or without`},
		{"OutputPath", inTask(`"OutputPath": "$..a"`), `state "T": OutputPath "$..a" is not supported`},
		{"ResultPath", inTask(`"ResultPath": "$.a.b"`), `state "T": ResultPath "$.a.b" is not supported`},
		{"ResultPath in Catch", inTask(`"Catch": [{"ErrorEquals": ["A"], "ResultPath": "$", "Next": "S"}]`),
			`state "T": Catch[0].ResultPath`},
		{"two timeouts", inTask(`"TimeoutSeconds": 5, "TimeoutSecondsPath": "$.t"`),
			`state "T": TimeoutSeconds is not supported, want either`},
		{"timeout path", inTask(`"TimeoutSecondsPath": "5"`), `state "T": TimeoutSecondsPath "5" is not supported`},
		{"no errors", inTask(`"Catch": [{"ErrorEquals": [], "Next": "S"}]`),
			`state "T": Catch[0].ErrorEquals is not supported, want a list of names`},
		{"backoff", inTask(`"Retry": [{"ErrorEquals": ["A"], "IntervalSeconds": 1, "MaxAttempts": 1, "MaxDelaySeconds": 1}]`), `state "T": Retry[0].IntervalSeconds, MaxAttempts, MaxDelaySeconds or BackoffRate is not`},
		{"jitter", retry(`"JitterStrategy": "HALF"`), `state "T": Retry[0].JitterStrategy is not supported, want FULL`},
		{"catch to nowhere", inTask(`"Catch": [{"ErrorEquals": ["A"], "Next": "X"}]`),
			`state "T": Catch[0].Next "X" is not supported`},
		{"And", inChoice(`{"And": [], "Next": "S"}`), `States/C/Choices/0/And`},
		{"no comparison", inChoice(`{"Variable": "$.a", "Next": "S"}`), `state "C": Choices[0].StringEquals is not supported`},
		{"choice to nowhere", inChoice(`{"Variable": "$.a", "StringEquals": "a", "Next": "X"}`),
			`state "C": Choices[0].Next "X" is not supported`},
		{"no default", replace(`"Default": "Failed"`, `"Comment": ""`),
			`state "Route": Default "" is not supported`},
		{"start nowhere", replace(`"StartAt": "Step"`, `"StartAt": "X"`), `StartAt "X" is not supported, want the name of a state`},
		{"placeholder", replace(`${StepFunctionArn}`, `${X}`), `${X} is not supported, want a substitution`},
		{"no JSON", `{`, `parse state machine`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.definition), placeholders)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err = Parse([]byte(`{"StartAt": "A", "States": {"A": {"Type": "Map"}, "B": {"Type": "Wait"}}}`), nil)
	require.ErrorContains(t, err, `state "A": Type "Map"`)
	require.ErrorContains(t, err, `state "B": Type "Wait"`, "all faults are named")
}

func TestSubstitution(t *testing.T) {
	d, err := Parse([]byte(`{"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "a ${X}-${Y} ${X}"}}}`),
		map[string]string{"X": `1"`, "Y": "${X}", "Z": "unused"})
	require.NoError(t, err)
	require.Equal(t, `a 1"-${X} 1"`, d.states["F"].Error)
}
