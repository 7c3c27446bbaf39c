package asl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPath(t *testing.T) {
	root, err := decodeValue([]byte(`{"a": {"b": [1, {"c d": null}]}, "ä-1": true}`))
	require.NoError(t, err)
	for text, want := range map[string]string{
		"$.a.b[0]": "1", "$.a.b[1]['c d']": "null", `$["a"].b[1]["c d"]`: "null", "$.ä-1": "true",
		"$.x": "", "$.a.b[2]": "", "$.a[0]": "", "$.a.b.c": "", "$.a.b[0].c": "",
	} {
		p, err := parsePath(text)
		require.NoError(t, err, text)
		v, ok := p.get(root)
		require.Equal(t, want != "", ok, text)
		if ok {
			data, err := encodeValue(v)
			require.NoError(t, err)
			require.Equal(t, want, string(data), text)
		}
	}
	for _, text := range []string{
		"", "a", "$a", "$.", "$..a", "$.*", "$[*]", "$[-1]", "$[0:1]", "$[?(@.a)]", "$['a'", "$['a','b']", `$['a\'b']`, "$.a b", "$[", "$[0", "$[]", "$[99999999999]",
		"States.Format('x')",
	} {
		_, err := parsePath(text)
		require.Error(t, err, text)
	}
}

func TestPathSet(t *testing.T) {
	for _, c := range []struct{ root, path, want string }{
		{`{"a":1}`, "$", `9`},
		{`{"a":1}`, "$.b", `{"a":1,"b":9}`},
		{`{"a":1}`, "$.a", `{"a":9}`},
		{`{}`, "$.a.b.c", `{"a":{"b":{"c":9}}}`},
		{`{"a":[1,2]}`, "$.a[1]", `{"a":[1,9]}`},
		{`{"a":[1,{}]}`, "$.a[1].b", `{"a":[1,{"b":9}]}`},
		{`{"a":[1]}`, "$.a[1]", ``},
		{`{"a":1}`, "$.a.b", ``},
		{`{"a":null}`, "$.a.b", ``},
		{`[1]`, "$.a", ``},
		{`{}`, "$.a[0]", ``},
	} {
		root, err := decodeValue([]byte(c.root))
		require.NoError(t, err)
		p, err := parsePath(c.path)
		require.NoError(t, err)
		out, err := p.set(root, 9)
		after, encErr := encodeValue(root)
		require.NoError(t, encErr)
		require.Equal(t, c.root, string(after), "the root is not changed")
		if c.want == "" {
			require.Error(t, err, "%s in %s", c.path, c.root)
			continue
		}
		require.NoError(t, err)
		got, err := encodeValue(out)
		require.NoError(t, err)
		require.Equal(t, c.want, string(got))
	}
}

// TestDataflow runs one Pass state with the fields and compares the output, or the error it fails with.
func TestDataflow(t *testing.T) {
	const in = `{"a": {"b": [1, 2.50]}, "s": "<&>"}`
	for _, c := range []struct{ name, fields, want string }{
		{"nothing", ``, `{"a":{"b":[1,2.50]},"s":"<&>"}`},
		{"input path", `"InputPath": "$.a.b[1]"`, `2.50`},
		{"input path null", `"InputPath": null`, `{}`},
		{"input path from the context", `"InputPath": "$$.Execution.Name"`, `"x"`},
		{"input path nowhere", `"InputPath": "$.x"`, Runtime},
		{"output path", `"OutputPath": "$.s"`, `"<&>"`},
		{"output path null", `"OutputPath": null`, `{}`},
		{"output path nowhere", `"OutputPath": "$.x"`, Runtime},
		{"result", `"Result": {"r": 1}`, `{"r":1}`},
		{"result null", `"Result": null`, `null`},
		{"result is no template", `"Result": {"r.$": "$.s"}`, `{"r.$":"$.s"}`},
		{"result path", `"Result": 1, "ResultPath": "$.a.r"`, `{"a":{"b":[1,2.50],"r":1},"s":"<&>"}`},
		{"result path null", `"Result": 1, "ResultPath": null, "OutputPath": "$.s"`, `"<&>"`},
		{"result path is below the raw input", `"InputPath": "$.a", "ResultPath": "$.s"`, `{"a":{"b":[1,2.50]},"s":{"b":[1,2.50]}}`},
		{"result path nowhere", `"Result": 1, "ResultPath": "$.a.b[2]"`, ResultPathMatchFailure},
		{"parameters", `"InputPath": "$.a", "Parameters": {"x": 1, "y.$": "$.b[0]", "z": [{"w.$": "$"}, "$.b"]}`,
			`{"x":1,"y":1,"z":[{"w":{"b":[1,2.50]}},"$.b"]}`},
		{"parameters from the context", `"Parameters": {"n.$": "$$.State.Name", "r.$": "$$.State.RetryCount", "i.$": "$$.Execution.Input.s", "m.$": "$$.StateMachine",
			"d.$": "$$.Execution.RedriveCount", "t.$": "$$.Execution.StartTime", "e.$": "$$.State.EnteredTime", "id.$": "$$.Execution.Id", "role.$": "$$.Execution.RoleArn"}`,
			`{"d":0,"e":"2026-01-01T00:00:00.000Z","i":"<&>","id":"arn:aws:states:eu-west-1:123456789012:execution:agent:x",` +
				`"m":{"Id":"arn:aws:states:eu-west-1:123456789012:stateMachine:agent","Name":"agent"},"n":"P","r":0,` +
				`"role":"arn:aws:iam::123456789012:role/r","t":"2026-01-01T00:00:00.000Z"}`},
		{"parameters nowhere", `"Parameters": {"x.$": "$.x"}`, Runtime},
	} {
		t.Run(c.name, func(t *testing.T) {
			comma := ""
			if c.fields != "" {
				comma = ", "
			}
			r := newRig(t, `{"StartAt": "P", "States": {"P": {"Type": "Pass", "End": true`+comma+c.fields+`}}}`)
			d := r.result(in)
			if strings.HasPrefix(c.want, "States.") {
				require.Equal(t, Failed, d.Status)
				require.Equal(t, c.want, d.Error)
				return
			}
			require.Equal(t, Succeeded, d.Status, d.Cause)
			require.Equal(t, c.want, string(d.Output))
		})
	}
}

func TestTooMuchDataFails(t *testing.T) {
	half := `"` + strings.Repeat("x", MaxData/2) + `"`
	pass := `{"Type": "Pass", "Parameters": {"a.$": "$", "b.$": "$"}, "End": true}`
	d := newRig(t, fmt.Sprintf(`{"StartAt": "P", "States": {"P": %s}}`, pass)).result(half)
	require.Equal(t, DataLimitExceeded, d.Error)
	require.Equal(t, Failed, d.Status)
}
