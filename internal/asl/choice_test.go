package asl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChoiceRules gives one rule an input: it holds, does not, or fails the execution.
func TestChoiceRules(t *testing.T) {
	const holds, not, fails = "yes", "no", Runtime
	for _, c := range []struct{ in, rule, want string }{
		{`"a"`, `"StringEquals": "a"`, holds},
		{`"a"`, `"StringEquals": "b"`, not},
		{`1`, `"StringEquals": "1"`, not},
		{`"a"`, `"StringLessThan": "b"`, holds},
		{`"b"`, `"StringLessThan": "b"`, not},
		{`"b"`, `"StringLessThanEquals": "b"`, holds},
		{`"c"`, `"StringGreaterThan": "b"`, holds},
		{`"b"`, `"StringGreaterThanEquals": "b"`, holds},
		{`"log-1.txt"`, `"StringMatches": "log-*.txt"`, holds},
		{`"log-1.txt2"`, `"StringMatches": "log-*.txt"`, not},
		{`"ab"`, `"StringMatches": "*b*b*"`, not},
		{`"bb"`, `"StringMatches": "*b*b*"`, holds},
		{`"a*c"`, `"StringMatches": "a\\*c"`, holds},
		{`"abc"`, `"StringMatches": "a\\*c"`, not},
		{`"a"`, `"StringMatches": "a"`, holds},
		{`1.0`, `"NumericEquals": 1`, holds},
		{`2`, `"NumericLessThan": 10`, holds},
		{`10`, `"NumericLessThanEquals": 10`, holds},
		{`10`, `"NumericGreaterThan": 10`, not},
		{`1e400`, `"NumericGreaterThanEquals": 10`, holds},
		{`"1"`, `"NumericEquals": 1`, not},
		{`true`, `"BooleanEquals": true`, holds},
		{`false`, `"BooleanEquals": true`, not},
		{`"2026-01-01T01:00:00+01:00"`, `"TimestampEquals": "2026-01-01T00:00:00Z"`, holds},
		{`"2026-01-01T00:00:00.001Z"`, `"TimestampGreaterThan": "2026-01-01T00:00:00Z"`, holds},
		{`"2025-01-01T00:00:00Z"`, `"TimestampLessThan": "2026-01-01T00:00:00Z"`, holds},
		{`"yesterday"`, `"TimestampLessThan": "2026-01-01T00:00:00Z"`, not},
		{`"x"`, `"StringEqualsPath": "$.s"`, holds},
		{`2`, `"NumericEqualsPath": "$.s"`, not},
		{`2`, `"NumericLessThanPath": "$.n"`, holds},
		{`true`, `"BooleanEqualsPath": "$.b"`, holds},
		{`"2025-01-01T00:00:00Z"`, `"TimestampLessThanPath": "$$.Execution.StartTime"`, holds},
		{`"x"`, `"StringEqualsPath": "$.missing"`, fails},
		{`null`, `"IsNull": true`, holds},
		{`1`, `"IsNull": false`, holds},
		{`null`, `"IsPresent": true`, holds},
		{`null`, `"IsPresent": false`, not},
		{`"s"`, `"IsString": true`, holds},
		{`1`, `"IsNumeric": true`, holds},
		{`"1"`, `"IsNumeric": true`, not},
		{`false`, `"IsBoolean": true`, holds},
		{`"2026-01-01T00:00:00Z"`, `"IsTimestamp": true`, holds},
		{`"2026-01-01"`, `"IsTimestamp": true`, not},
	} {
		t.Run(c.in+" "+c.rule, func(t *testing.T) {
			got := chosen(t, `{"Variable": "$.v", `+c.rule+`}`, `{"v": `+c.in+`, "s": "x", "n": 3, "b": true}`)
			require.Equal(t, c.want, got)
		})
	}
	for rule, want := range map[string]string{
		`{"Variable": "$.x", "IsPresent": false}`:                                                              holds,
		`{"Variable": "$.x", "IsPresent": true}`:                                                               not,
		`{"Variable": "$.x", "IsNull": false}`:                                                                 fails,
		`{"Variable": "$.x", "StringEquals": "a"}`:                                                             fails,
		`{"Not": {"Variable": "$.v", "IsNull": true}}`:                                                         holds,
		`{"And": [{"Variable": "$.x", "IsPresent": true}, {"Variable": "$.x", "IsNull": true}]}`:               not,
		`{"Or": [{"Variable": "$.v", "NumericEquals": 1}, {"Variable": "$.x", "IsNull": true}]}`:               holds,
		`{"Or": [{"Variable": "$.v", "NumericEquals": 2}, {"Variable": "$.v", "NumericEquals": 3}]}`:           not,
		`{"And": [{"Variable": "$.v", "NumericEquals": 1}, {"Not": {"Variable": "$.v", "NumericEquals": 2}}]}`: holds,
	} {
		require.Equal(t, want, chosen(t, rule, `{"v": 1}`), rule)
	}
}

// chosen is where a Choice with that rule goes, or the error it fails with.
func chosen(t *testing.T, rule, input string) string {
	t.Helper()
	body := rule[:len(rule)-1] + `, "Next": "yes"}`
	d := newRig(t, `{"StartAt": "C", "States": {"C": {"Type": "Choice", "Default": "no", "Choices": [`+body+`]},
		"yes": {"Type": "Pass", "Result": "yes", "End": true}, "no": {"Type": "Fail", "Error": "no"}}}`).result(input)
	if d.Status == Succeeded {
		return "yes"
	}
	return d.Error
}

func TestChoiceWithoutMatch(t *testing.T) {
	d := newRig(t, `{"StartAt": "C", "States": {"C": {"Type": "Choice", "Choices": [
		{"Variable": "$.v", "NumericEquals": 1, "Next": "S"}]}, "S": {"Type": "Succeed"}}}`).result(`{"v": 2}`)
	require.Equal(t, Failed, d.Status)
	require.Equal(t, NoChoiceMatched, d.Error)
}
