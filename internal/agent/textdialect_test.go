package agent

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// Texts of elements become what the tool's schema wants, and stay texts where they are none of that.
func TestFitted(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"x":{"type":["number","null"]},"b":{"type":"boolean"},"s":{"type":"string"},
		"a":{"type":"array","items":{"type":"integer"}},"o":{"type":"object","properties":{"n":{"type":"number"}}},"l":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}}}},
		"u":{"type":["string","array"]},"any":{}}}`)
	for _, tt := range []struct{ name, in, want string }{
		{"numbers", `{"n":" 12 ","x":"1.50"}`, `{"n":12,"x":1.50}`},
		{"null and truth", `{"x":"null","b":"true"}`, `{"x":null,"b":true}`},
		{"what is none", `{"n":"twelve","b":"yes","x":"1 2"}`, `{"n":"twelve","b":"yes","x":"1 2"}`},
		{"a text", `{"s":"12","u":"12","any":"12"}`, `{"s":"12","u":"12","any":"12"}`},
		{"a list of one name", `{"a":["1","2"]}`, `{"a":[1,2]}`},
		{"a list of elements within", `{"a":{"item":["1","2"]}}`, `{"a":[1,2]}`},
		{"a list of one within", `{"a":{"item":"1"}}`, `{"a":[1]}`},
		{"a list of one", `{"a":"1"}`, `{"a":[1]}`},
		{"a list that is spelled", `{"a":"[1,2]"}`, `{"a":[1,2]}`},
		{"an empty list", `{"a":" "}`, `{"a":[]}`},
		{"an object", `{"o":{"n":"1"}}`, `{"o":{"n":1}}`},
		{"an object that is spelled", `{"o":"{\"n\":1}"}`, `{"o":{"n":1}}`},
		{"objects", `{"l":{"e":[{"n":"1"},{"n":"2"}]}}`, `{"l":[{"n":1},{"n":2}]}`},
		{"a list of one object", `{"l":{"n":"1"}}`, `{"l":[{"n":1}]}`},
		{"what the schema does not know", `{"z":"1"}`, `{"z":"1"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.JSONEq(t, tt.want, string(fitted(schema, json.RawMessage(tt.in))))
		})
	}
	require.JSONEq(t, `{"n":"1"}`, string(fitted(json.RawMessage(`true`), json.RawMessage(`{"n":"1"}`))))
}

// A completion whose run ends in JSON gives the value, or spells it where the schema wants no text.
func TestCompletedValue(t *testing.T) {
	for _, tt := range []struct{ name, schema, result, want string }{
		{"a value", ``, `{"a":1.10}`, `{"a":1.10}`},
		{"one that is spelled", ``, `"{\"a\":1}"`, `{"a":1}`},
		{"a text", ``, `"noon"`, `"noon"`},
		{"a text that is a number", ``, `"12"`, `"12"`},
		{"a number that is wanted", `{"type":"integer"}`, `"12"`, `12`},
		{"a text that is wanted", `{"type":["string","object"]}`, `"{}"`, `"{}"`},
		{"a list that is spelled", `{"items":{}}`, `"[1]"`, `[1]`},
	} {
		d := &Definition{Output: Output{Format: OutputJSON}}
		if tt.schema != "" {
			d.Output.Schema = json.RawMessage(tt.schema)
		}
		got, err := d.completedValue(json.RawMessage(`{"result":` + tt.result + `}`))
		require.NoError(t, err, tt.name)
		require.Equal(t, tt.want, string(got), tt.name)
	}
	for _, bad := range []string{``, `[]`, `{}`, `{"Result":`, `"x"`} {
		_, err := (&Definition{}).completedValue(json.RawMessage(bad))
		require.Error(t, err, bad)
	}
}
