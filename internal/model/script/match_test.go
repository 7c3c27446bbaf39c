package script

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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

// values draws JSON values whose strings never start with ~.
func values(depth int) *rapid.Generator[any] {
	scalar := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.StringMatching(`([a-z .\n"]{0,4})?`), func(s string) any { return s }),
	)
	if depth == 0 {
		return scalar
	}
	return rapid.OneOf(scalar,
		rapid.Map(rapid.SliceOfN(values(depth-1), 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-c.]{1,2}`), values(depth-1), 0, 3), func(m map[string]any) any { return m }),
	)
}

func encode(t require.TestingT, v any) json.RawMessage {
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

// Every value matches itself, and still does after keys are taken from the objects of the wanted one.
func TestPropertySubset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := values(3).Draw(t, "value")
		require.Empty(t, Match(encode(t, v), encode(t, v)))
		if m, ok := v.(map[string]any); ok && len(m) > 0 {
			less := maps.Clone(m)
			delete(less, rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(t, "key"))
			require.Empty(t, Match(encode(t, less), encode(t, m)))
		}
	})
}

// One changed leaf is found at its own path and nowhere else.
func TestPropertyOneChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SliceOfN(values(2), 1, 5).Draw(t, "list")
		i := rapid.IntRange(0, len(l)-1).Draw(t, "index")
		changed := slices.Clone(l)
		changed[i] = "~^only this$"
		found := Match(encode(t, map[string]any{"l": changed}), encode(t, map[string]any{"l": l}))
		require.Len(t, found, 1)
		require.Equal(t, fmt.Sprintf("l[%d]", i), found[0].Path)
	})
}

// Writing a number another way keeps it equal; changing a digit does not.
func TestPropertyNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 1<<62).Draw(t, "number")
		zeros := rapid.IntRange(0, 30).Draw(t, "zeros")
		shifted := fmt.Sprintf("%d%0*de-%d", n, zeros, 0, max(zeros, 1))
		require.True(t, sameNumber(fmt.Sprint(n), shifted), shifted)
		require.False(t, sameNumber(fmt.Sprint(n+1), shifted), shifted)
		require.False(t, sameNumber(fmt.Sprint(-n), shifted), shifted)
	})
}
