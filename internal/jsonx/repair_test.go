package jsonx_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/jsonx"
)

func TestRepairJSON(t *testing.T) {
	for name, tt := range map[string]struct{ raw, want string }{
		"valid stays as it is":          {"{ \"a\" : 1.50 }\n", "{ \"a\" : 1.50 }\n"},
		"a valid text":                  {`"x"`, `"x"`},
		"missing brace":                 {`{"amount": 40`, `{"amount":40}`},
		"missing brackets":              {`{"a": [1, {"b": 2`, `{"a":[1,{"b":2}]}`},
		"bracket of the other kind":     {`{"a": [1, 2}`, `{"a":[1,2]}`},
		"bracket too many":              {`{"input":"x"}]`, `{"input":"x"}`},
		"brace too many":                {`{"a":{"b":1}}}`, `{"a":{"b":1}}`},
		"trailing comma":                {`{"a":[1,2,],}`, `{"a":[1,2]}`},
		"trailing comma, and no brace":  {`{"a":1,`, `{"a":1}`},
		"doubled comma":                 {`{"a":1,,"b":2}`, `{"a":1,"b":2}`},
		"missing comma":                 {`{"a":1 "b":"x" "c":[1 2]}`, `{"a":1,"b":"x","c":[1,2]}`},
		"single quotes":                 {`{'a': 'it''s "so"', 'b': ['x']}`, `{"a":"it''s \"so\"","b":["x"]}`},
		"keys without quotes":           {`{path: "/a", max_n: 3}`, `{"path":"/a","max_n":3}`},
		"doubled quotes":                {`{""path"": ""/a b"", "n": ""}`, `{"path":"/a b","n":""}`},
		"doubled quote at the end":      {`{"path": "/a""}`, `{"path":"/a"}`},
		"quotes inside":                 {`{"q": "he said "yes", then left", "n": 1}`, `{"q":"he said \"yes\", then left","n":1}`},
		"quotes inside, at the end":     {`{"q": "say "hi""}`, `{"q":"say \"hi\""}`},
		"a comma behind a quote":        {`{"q": "a", "b": "c"}x`, ""},
		"unterminated string":           {`{"path": "/a/b`, ""},
		"string cut within an escape":   {`{"path": "/a\`, ""},
		"line feed and tab in a string": {"{\"a\": \"x\n\ty\x01\"}", `{"a":"x\n\ty\u0001"}`},
		"escapes that are none":         {`{"re": "\d+\.\w", "q": "it\'s", "u": "\u00e9\u12"}`, `{"re":"\\d+\\.\\w","q":"it's","u":"\u00e9\\u12"}`},
		"words of Python":               {`{"a": True, "b": False, "c": None}`, `{"a":true,"b":false,"c":null}`},
		"block of code":                 {"```json\n{\"a\": 1,}\n```", `{"a":1}`},
		"escaped as a whole":            {`{\"a\": \"x\"}`, `{"a": "x"}`},
		"escaped, and no brace":         {`{\"a\": \"x\"`, `{"a":"x"}`},
		"non-ASCII":                     {`{'city': 'Zürich ☕'}`, `{"city":"Zürich ☕"}`},

		"nothing":                   {"", ""},
		"prose":                     {"I would pay it.", ""},
		"prose behind":              {`{"a": 1} and then`, ""},
		"two objects":               {`{"a":1}{"b":2}`, ""},
		"no value":                  {`{"a":}`, ""},
		"a key alone":               {`{"a"`, ""},
		"a word alone":              {`tru`, ""},
		"a word that is none":       {`{"a": tru`, ""},
		"a number that is none":     {`{"amount": 1.2.3}`, ""},
		"digits in groups":          {`{"amount": 1,250}`, ""},
		"a number without its zero": {`{"amount": .5}`, ""},
		"a key twice":               {`{"amount": 1, "amount": 40,}`, ""},
		"no UTF-8":                  {"{\"a\": \"\xff\",}", ""},
		"zero byte":                 {"{\"a\": 1\x00", ""},
		"too deep":                  {strings.Repeat("[", 65), ""},
		"not too deep":              {strings.Repeat("[", 64), strings.Repeat("[", 64) + strings.Repeat("]", 64)},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := jsonx.RepairJSON([]byte(tt.raw), false)
			require.Equal(t, tt.want, string(got))
			require.Equal(t, tt.want != "", ok)
		})
	}
}

// What comes out is strict JSON or nothing; JSON comes out as it is, and repairing twice is repairing once.
func FuzzRepairJSON(f *testing.F) {
	for _, s := range []string{
		`{"a": 1}`, `{"a": [1, {"b": 2`, `{""path"": ""/a""`, `{'a': 'b',}`, `{"q": "he said "yes", then"}`, "```json\n{a: True}\n```", `{\"a\": 1`, `{"a": "\u12`, "[[[", `{"a":1}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, ok := jsonx.RepairJSON(raw, false)
		_, invalid := jsonx.CompactJSON(raw, jsonx.JSONLimits{})
		switch {
		case invalid == nil:
			require.True(t, ok)
			require.Equal(t, string(raw), string(got))
		case !ok:
			require.Nil(t, got)
		default:
			_, err := jsonx.CompactJSON(got, jsonx.JSONLimits{})
			require.NoError(t, err, "%q of %q", got, raw)
			require.Contains(t, "{[", string(got[0]))
			again, ok := jsonx.RepairJSON(got, true)
			require.True(t, ok)
			require.Equal(t, string(got), string(again))
		}
	})
}

// An object that lost its end, anywhere but within a number, a word or a key, is what it was as far as it goes: no member that is left has
// another key or another value, but for the one that was cut.
func TestPropertyRepairKeepsWhatWasWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "members")
		members := map[string]string{}
		text := "{"
		for i := range n {
			key, value := string(rune('a'+i)), rapid.StringN(0, 12, -1).Draw(t, "value")
			encoded, err := json.Marshal(value)
			require.NoError(t, err)
			members[key] = value
			if i > 0 {
				text += ","
			}
			text += `"` + key + `":` + string(encoded)
		}
		cut := rapid.IntRange(1, len(text)).Draw(t, "cut")
		got, ok := jsonx.RepairJSON([]byte(text[:cut]), false)
		if !ok {
			return
		}
		var left map[string]string
		require.NoError(t, json.Unmarshal(got, &left))
		broken := 0
		for key, value := range left {
			if value != members[key] {
				broken++
			}
		}
		require.LessOrEqual(t, broken, 1)
	})
}
