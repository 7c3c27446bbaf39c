package script

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatch(t *testing.T) {
	tests := []struct {
		name, want, got string
		found           []string
	}{
		{"subset", `{"a":1}`, `{"a":1,"b":2}`, nil},
		{"nested subset", `{"a":{"b":true}}`, `{"a":{"b":true,"c":[]}}`, nil},
		{"wrong value", `{"a":{"b":true}}`, `{"a":{"b":false}}`, []string{"a.b: got false, want true"}},
		{"missing key", `{"a":1}`, `{}`, []string{"a: got absent, want 1"}},
		{"keys by name", `{"b":1,"a":1}`, `{}`, []string{"a: got absent, want 1", "b: got absent, want 1"}},
		{"null is absent", `{"a":null}`, `{}`, nil},
		{"null is null", `{"a":null}`, `{"a":null}`, nil},
		{"null is not false", `{"a":null}`, `{"a":false}`, []string{"a: got false, want null"}},
		{"false is not absent", `{"a":false}`, `{}`, []string{"a: got absent, want false"}},
		{"list in full", `[1,2]`, `[1,2]`, nil},
		{"list too short", `[1,2]`, `[1]`, []string{"[1]: got absent, want 2"}},
		{"list too long", `{"l":[1]}`, `{"l":[1,{"x": 2}]}`, []string{`l[1]: got {"x":2}, want absent`}},
		{"null does not shorten a list", `[1,null]`, `[1]`, []string{"[1]: got absent, want null"}},
		{"list out of order", `[1,2]`, `[2,1]`, []string{"[0]: got 2, want 1", "[1]: got 1, want 2"}},
		{"path", `{"messages":[{},{},{"content":{"text":"b"}}]}`, `{"messages":[{},{},{"content":{"text":"a"}}]}`,
			[]string{`messages[2].content.text: got "a", want "b"`}},
		{"dotted key", `{"executed":{"orders.get":1}}`, `{"executed":{"orders.get":2}}`,
			[]string{`executed["orders.get"]: got 2, want 1`}},
		{"decimals", `[1,1.0,-0,1e2,120e-1]`, `[1.0,1,0,100,12]`, nil},
		{"digits count", `0.1`, `0.1000000000000000055511151231257827`,
			[]string{".: got 0.1000000000000000055511151231257827, want 0.1"}},
		{"large integers", `9007199254740993`, `9007199254740992`, []string{".: got 9007199254740992, want 9007199254740993"}},
		{"huge exponent", `1e999999999999999999999`, `10e999999999999999999998`, nil},
		{"sign", `1`, `-1`, []string{".: got -1, want 1"}},
		{"number is not text", `1`, `"1"`, []string{`.: got "1", want 1`}},
		{"text is not number", `"1"`, `1`, []string{`.: got 1, want "1"`}},
		{"escapes", `"\u0061<"`, `"a\u003c"`, nil},
		{"pattern", `"~sh.pp"`, `"was shipped"`, nil},
		{"anchors are the pattern's", `"~^shipped$"`, `"was shipped"`, []string{`.: got "was shipped", want "~^shipped$"`}},
		{"pattern over JSON text", `"~^{\"a\":1}$"`, `{ "a" : 1 }`, nil},
		{"pattern over escaped text", `"~a<b"`, `{"t":"a\u003cb"}`, nil},
		{"pattern over a backslash", `"~a<b"`, `{"t":"a\\u003cb"}`, []string{`.: got {"t":"a\\u003cb"}, want "~a<b"`}},
		{"pattern over number", `"~^4\\d$"`, `42`, nil},
		{"pattern wants a value", `{"a":"~"}`, `{}`, []string{`a: got absent, want "~"`}},
		{"object against list", `{"a":{}}`, `{"a":[]}`, []string{"a: got [], want {}"}},
		{"list against absent", `{"a":[]}`, `{}`, []string{"a: got absent, want []"}},
		{"absent got", `{}`, ``, []string{".: got absent, want {}"}},
		{"absent got for null", `null`, ``, nil},
		{"got is not JSON", `1`, `{`, []string{".: got text that is not JSON, want 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var found []string
			for _, m := range Match(json.RawMessage(tt.want), json.RawMessage(tt.got)) {
				found = append(found, m.String())
			}
			require.Equal(t, tt.found, found)
		})
	}
}

func TestCheck(t *testing.T) {
	tests := []struct{ name, want, err string }{
		{"good", `{"a":[1,"~x",{"b":null}]}`, ""},
		{"empty", ``, "read JSON: "},
		{"cut", `{"a":[1`, "read JSON: "},
		{"two values", `1 2`, "want nothing after the value"},
		{"trailing garbage", `1 ]`, "want nothing after the value"},
		{"bad pattern", `{"a":["~("]}`, "a[0]: error parsing regexp: missing closing ): `(`"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(json.RawMessage(tt.want))
			if tt.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.err)
		})
	}
}
