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
		{"key in Retry", retry(`"MaxAttempt": 1`), `Retry/0/MaxAttempt`},
		{"resource", replace(`lambda:invoke"`, `sqs:sendMessage"`),
			`state "Step": Resource arn:aws:states:::sqs:sendMessage is not supported`},
		{"ResultPath", inTask(`"ResultPath": "$.a.b"`), `state "T": ResultPath "$.a.b" is not supported`},
		{"ResultPath in Catch", inTask(`"Catch": [{"ErrorEquals": ["A"], "ResultPath": "$", "Next": "S"}]`),
			`state "T": Catch: ResultPath`},
		{"two timeouts", inTask(`"TimeoutSeconds": 5, "TimeoutSecondsPath": "$.t"`),
			`state "T": TimeoutSeconds is not supported, want either`},
		{"backoff", inTask(`"Retry": [{"ErrorEquals": ["A"], "IntervalSeconds": 1, "MaxAttempts": 1, "MaxDelaySeconds": 1}]`), `state "T": Retry is not supported, want IntervalSeconds`},
		{"jitter", retry(`"JitterStrategy": "HALF"`), `state "T": Retry: JitterStrategy is not supported, want FULL`},
		{"catch to nowhere", inTask(`"Catch": [{"ErrorEquals": ["A"], "Next": "X"}]`),
			`state "T": Catch "X" is not supported`},
		{"And", inChoice(`{"And": [], "Next": "S"}`), `States/C/Choices/0/And`},
		{"choice to nowhere", inChoice(`{"Variable": "$.a", "StringEquals": "a", "Next": "X"}`),
			`state "C": Choices "X" is not supported`},
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
