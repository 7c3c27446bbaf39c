package asl

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRefusals changes one thing in a definition that is accepted; the errors name the state and the key.
func TestRefusals(t *testing.T) {
	const (
		invoke  = `"Resource": "arn:aws:states:::lambda:invoke", "Parameters": {"FunctionName": "f"}, "Next": "S"`
		fOnly   = `"Parameters": {"FunctionName": "f"}`
		end     = `"S": {"Type": "Succeed"}`
		pass    = `"Type": "Pass", "Next": "S"`
		noToken = `"Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken", ` + fOnly + `, "Next": "S"`
	)
	one := func(state string) string { return `{"StartAt": "A", "States": {"A": {` + state + `}, ` + end + `}}` }
	aTask := func(fields string) string { return one(`"Type": "Task", ` + invoke + `, ` + fields) }
	aPass := func(fields string) string { return one(pass + `, ` + fields) }
	choice := func(rule string) string {
		return one(`"Type": "Choice", "Choices": [{` + rule + `, "Next": "S"}]`)
	}
	_, err := Parse([]byte(aTask(`"Comment": "fine"`)), nil)
	require.NoError(t, err)

	for _, c := range []struct{ name, definition, want string }{
		{"Map", one(`"Type": "Map", "Next": "S"`), `state "A": Type: "Map" is not supported`},
		{"Parallel", one(`"Type": "Parallel", "Next": "S"`), `state "A": Type: "Parallel" is not supported`},
		{"no Type", one(`"Next": "S"`), `state "A": Type: missing`},
		{"JSONata machine", strings.Replace(aPass(`"Comment": ""`), `{"StartAt"`, `{"QueryLanguage": "JSONata", "StartAt"`, 1), `state machine: QueryLanguage: not supported`},
		{"JSONata state", aPass(`"QueryLanguage": "JSONata"`), `state "A": QueryLanguage: not supported`},
		{"Assign", aPass(`"Assign": {}`), `state "A": Assign: not supported`},
		{"Output", aPass(`"Output": 1`), `state "A": Output: not supported`},
		{"Arguments", aTask(`"Arguments": {}`), `state "A": Arguments: not supported`},
		{"ItemReader", aTask(`"ItemReader": {}`), `state "A": ItemReader: not supported`},
		{"Credentials", aTask(`"Credentials": {}`), `state "A": Credentials: not supported`},
		{"Retry on Pass", aPass(`"Retry": []`), `state "A": Retry: not supported`},
		{"Next on Choice", one(`"Type": "Choice", "Choices": [{"Variable": "$", "IsNull": true, "Next": "S"}], "Next": "S"`), `state "A": Next: not supported`},
		{"ErrorPath", `{"StartAt": "A", "States": {"A": {"Type": "Fail", "ErrorPath": "$.e"}}}`, `state "A": ErrorPath: not supported`},
		{"intrinsic function", aPass(`"Parameters": {"x": [{"y.$": "States.Format('{}', $.a)"}]}`), `state "A": Parameters: x: [0]: y.$: intrinsic function States.Format is not supported`},
		{"JSONPath beyond references", aPass(`"InputPath": "$..a"`), `state "A": InputPath: path "$..a"`},
		{"path in Parameters", aPass(`"Parameters": {"x.$": "y"}`), `state "A": Parameters: x.$: path "y" does not start with $`},
		{"path that is no string", aPass(`"Parameters": {"x.$": 1}`), `state "A": Parameters: x.$: want a path`},
		{"twice in Parameters", aPass(`"Parameters": {"x.$": "$", "x": 1}`), `state "A": Parameters: x: given twice`},
		{"ResultPath in the context", aPass(`"ResultPath": "$$.State"`), `state "A": ResultPath: must not lead into the context`},
		{"unknown context field", aPass(`"InputPath": "$$.Map.Item"`), `state "A": InputPath: the context object has no $$.Map.Item`},
		{"token elsewhere", aTask(`"InputPath": "$$.Task.Token"`), `state "A": InputPath: $$.Task.Token is for`},
		{"other resource", one(`"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage", ` + fOnly + `, "Next": "S"`), `state "A": Resource: "arn:aws:states:::sqs:sendMessage" is not supported`},
		{"sync start", one(`"Type": "Task", "Resource": "arn:aws:states:::states:startExecution.sync", "Next": "S"`), `states:startExecution.sync" is not supported`},
		{"bare function", one(`"Type": "Task", "Resource": "arn:aws:lambda:eu-west-1:1:function:f", "Next": "S"`), `function:f" is not supported`},
		{"no parameters", one(`"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Next": "S"`), `state "A": Parameters: missing`},
		{"no function", one(`"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": {}, "Next": "S"`), `state "A": Parameters.FunctionName: missing`},
		{"Qualifier", one(`"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": {"FunctionName": "f", "Qualifier": "1"}, "Next": "S"`), `state "A": Parameters.Qualifier: not supported`},
		{"no token", one(`"Type": "Task", ` + noToken), `state "A": Parameters: must pass $$.Task.Token on`},
		{"heartbeat", aTask(`"TimeoutSeconds": 5, "HeartbeatSeconds": 5`), `state "A": HeartbeatSeconds: must be smaller than TimeoutSeconds`},
		{"two timeouts", aTask(`"TimeoutSeconds": 5, "TimeoutSecondsPath": "$.t"`), `state "A": TimeoutSeconds: want either`},
		{"timeout of 0", aTask(`"TimeoutSeconds": 0`), `state "A": TimeoutSeconds: want a whole number from 1`},
		{"timeout of half", aTask(`"TimeoutSeconds": 0.5`), `state "A": TimeoutSeconds: want a whole number from 1`},
		{"States.ALL in company", aTask(`"Retry": [{"ErrorEquals": ["States.ALL", "A"]}]`), `state "A": Retry[0].ErrorEquals: States.ALL must stand alone`},
		{"States.ALL first", aTask(`"Catch": [{"ErrorEquals": ["States.ALL"], "Next": "S"}, {"ErrorEquals": ["A"], "Next": "S"}]`), `state "A": Catch[0].ErrorEquals: States.ALL must be in the last entry`},
		{"misspelt error", aTask(`"Retry": [{"ErrorEquals": ["States.TimeOut"]}]`), `state "A": Retry[0].ErrorEquals: States.TimeOut is not an error`},
		{"no errors", aTask(`"Retry": [{"ErrorEquals": []}]`), `state "A": Retry[0].ErrorEquals: want a list of names`},
		{"jitter", aTask(`"Retry": [{"ErrorEquals": ["A"], "JitterStrategy": "HALF"}]`), `state "A": Retry[0].JitterStrategy: "HALF" is neither`},
		{"backoff", aTask(`"Retry": [{"ErrorEquals": ["A"], "BackoffRate": 0.5}]`), `state "A": Retry[0].BackoffRate: want a number of at least 1`},
		{"misspelt retry", aTask(`"Retry": [{"ErrorEquals": ["A"], "MaxAttempt": 1}]`), `state "A": Retry[0].MaxAttempt: not supported`},
		{"catch to nowhere", aTask(`"Catch": [{"ErrorEquals": ["A"], "Next": "X"}]`), `state "A": Catch[0].Next: there is no state "X"`},
		{"next to nowhere", one(`"Type": "Pass", "Next": "X"`), `state "A": Next: there is no state "X"`},
		{"default to nowhere", one(`"Type": "Choice", "Choices": [{"Variable": "$", "IsNull": true, "Next": "S"}], "Default": "X"`), `state "A": Default: there is no state "X"`},
		{"choice to nowhere", one(`"Type": "Choice", "Choices": [{"Variable": "$", "IsNull": true, "Next": "X"}], "Default": "S"`), `state "A": Choices[0].Next: there is no state "X"`},
		{"start nowhere", strings.Replace(aPass(`"Comment": ""`), `"StartAt": "A"`, `"StartAt": "X"`, 1), `state machine: StartAt: there is no state "X"`},
		{"unreachable", one(`"Type": "Pass", "End": true`), `state "S": no other state leads here`},
		{"no end", `{"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "A"}}}`, `state machine: States: no terminal state can be reached`},
		{"Next and End", aPass(`"End": true`), `state "A": Next: want either Next or End: true`},
		{"neither", one(`"Type": "Pass"`), `state "A": Next: want either Next or End: true`},
		{"two comparisons", choice(`"Variable": "$", "IsNull": true, "IsString": true`), `state "A": Choices[0]: want exactly one comparison`},
		{"no comparison", choice(`"Variable": "$"`), `state "A": Choices[0]: want exactly one comparison`},
		{"And and Or", choice(`"And": [{"Variable": "$", "IsNull": true}], "Or": [{"Variable": "$", "IsNull": true}]`), `state "A": Choices[0]: want one of And, Or, Not`},
		{"Next inside And", choice(`"And": [{"Variable": "$", "IsNull": true, "Next": "S"}]`), `state "A": Choices[0].And[0].Next: not supported`},
		{"operand", choice(`"Variable": "$", "NumericEquals": "1"`), `state "A": Choices[0].NumericEquals: the operand has the wrong type`},
		{"time operand", choice(`"Variable": "$", "TimestampEquals": "now"`), `state "A": Choices[0].TimestampEquals: the operand has the wrong type`},
		{"StringMatchesPath", choice(`"Variable": "$", "StringMatchesPath": "$"`), `state "A": Choices[0]: want exactly one comparison`},
		{"IsNullPath", choice(`"Variable": "$", "IsNullPath": "$"`), `state "A": Choices[0]: want exactly one comparison`},
		{"Condition", choice(`"Condition": "{% true %}"`), `state "A": Choices[0].Condition: not supported`},
		{"no choices", one(`"Type": "Choice", "Choices": [], "Default": "S"`), `state "A": Choices: want a list of objects`},
		{"two waits", one(`"Type": "Wait", "Seconds": 1, "SecondsPath": "$.s", "Next": "S"`), `state "A": want one of Seconds`},
		{"bad time", one(`"Type": "Wait", "Timestamp": "soon", "Next": "S"`), `state "A": Timestamp: want an RFC 3339 time`},
		{"Version", strings.Replace(aPass(`"Comment": ""`), `{"StartAt"`, `{"Version": "2.0", "StartAt"`, 1), `state machine: Version: want 1.0`},
		{"long name", strings.ReplaceAll(aPass(`"Comment": ""`), `"A"`, `"`+strings.Repeat("A", 81)+`"`), `want a name of 1 to 80 characters`},
		{"duplicate key", aPass(`"Comment": "", "Comment": ""`), `States: A: duplicate key "Comment"`},
		{"unknown placeholder", aPass(`"Comment": "${X} ${Y}"`), `States: A: Comment: no substitution for ${X}, ${Y}`},
		{"two values", `{} {}`, `more than one JSON value`},
		{"no object", `[]`, `want an object`},
		{"no JSON", `{`, `parse state machine`},
		{"no UTF-8", "\"\xff\"", `invalid UTF-8`},
		{"too deep", strings.Repeat("[", 200) + strings.Repeat("]", 200), `nested deeper than 100`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.definition), nil)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestAllFaultsAreNamed(t *testing.T) {
	_, err := Parse([]byte(`{"StartAt": "A", "Z": 1, "States": {"A": {"Type": "Pass", "X": 1, "Y": 1, "End": true}, "B": {"Type": "Map"}}}`), nil)
	var fault *DefinitionError
	require.True(t, errors.As(err, &fault))
	require.Equal(t, `parse state machine: state machine: Z: not supported here
state "A": X: not supported here
state "A": Y: not supported here
state "B": Type: "Map" is not supported`, err.Error())
}

func TestSubstitution(t *testing.T) {
	d, err := Parse([]byte(`{"StartAt": "P", "States": {"P": {"Type": "Pass", "End": true, "Result": "a ${X}-${Y} ${X}"}}}`),
		map[string]string{"X": `1"`, "Y": "${X}", "Z": "unused"})
	require.NoError(t, err)
	require.Equal(t, `a 1"-${X} 1"`, d.states["P"].(*passState).result)
}

func FuzzParse(f *testing.F) {
	agent, err := os.ReadFile(agentFile)
	require.NoError(f, err)
	f.Add(agent)
	for _, s := range []string{task(``), waiting(`, "HeartbeatSeconds": 1`), nested, twoWaits, `{"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 1, "End": true}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data, map[string]string{"StepFunctionArn": "s", "ToolFunctionArn": "t", "ApproveFunctionArn": "a"})
		if (d == nil) == (err == nil) {
			t.Fatalf("definition %v, error %v", d, err)
		}
		if err == nil && !d.reach()[d.startAt] {
			t.Fatal("accepted without a start")
		}
	})
}
