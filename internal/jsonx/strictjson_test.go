package jsonx_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/jsonx"
)

func TestCompactJSONAccepts(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{` { "b" : 1.50 , "a":[ 1e+2 , -0 ] } `, `{"b":1.50,"a":[1e+2,-0]}`},
		{`{"amount":100000000000000000000.000000000000000001}`, `{"amount":100000000000000000000.000000000000000001}`},
		{`"\u0041\/<\ud83d\ude00"`, `"\u0041\/<\ud83d\ude00"`},
		{"\"a  b\"\n", `"a  b"`},
		{`{}`, `{}`}, {`[ ]`, `[]`}, {` null`, `null`}, {"true\t", `true`}, {`{"a":{"k":1},"b":{"k":1}}`, `{"a":{"k":1},"b":{"k":1}}`},
	} {
		got, err := jsonx.CompactJSON([]byte(tt.in), jsonx.JSONLimits{})
		require.NoError(t, err, tt.in)
		require.Equal(t, tt.want, string(got))
	}
}

func TestCompactJSONRefuses(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{``, `json at offset 0: want a JSON value`},
		{`{"a":1,"a":2}`, `json at offset 7, "/a": want each key once`},
		{`{"a":1,"\u0061":2}`, `json at offset 7, "/a": want each key once`},
		{`{"x":[{"k/~":1,"k\/~":2}]}`, `json at offset 15, "/x/0/k~1~0": want each key once`},
		{"\"\xff\"", `json at offset 1: want valid UTF-8`},
		{`"\ud800"`, `json at offset 1: want a low surrogate after a high one`},
		{`"\ud800\u0041"`, `json at offset 1: want a low surrogate after a high one`},
		{`"\udc00"`, `json at offset 1: want a high surrogate before a low one`},
		{`"\x"`, `json at offset 1: want a JSON escape`},
		{`"\u12"`, `json at offset 1: want a JSON escape`},
		{"\"a\nb\"", `json at offset 2: want control characters to be escaped`},
		{`"secret`, `json at offset 7: want a closing quote`},
		{`1 2`, `json at offset 2: want nothing after the value`},
		{`01`, `json at offset 0: want a JSON number`},
		{`1.`, `json at offset 0: want a JSON number`},
		{`[1,]`, `json at offset 3, "/1": want a JSON value`},
		{`[1 2]`, `json at offset 3: want a comma or ']'`},
		{`{"a" 1}`, `json at offset 5, "/a": want a colon`},
		{`{a:1}`, `json at offset 1: want a key in double quotes`},
		{`{"a":tru}`, `json at offset 5, "/a": want a JSON value`},
		{strings.Repeat("[", 65) + strings.Repeat("]", 65), `json at offset 64, "` + strings.Repeat("/0", 64) + `": want less nesting`},
	} {
		_, err := jsonx.CompactJSON([]byte(tt.in), jsonx.JSONLimits{})
		require.EqualError(t, err, tt.want, tt.in)
	}
}

func TestCompactJSONLimits(t *testing.T) {
	deepest := strings.Repeat("[", 64) + strings.Repeat("]", 64)
	_, err := jsonx.CompactJSON([]byte(deepest), jsonx.JSONLimits{})
	require.NoError(t, err)
	_, err = jsonx.CompactJSON([]byte(`[[1]]`), jsonx.JSONLimits{Depth: 1})
	require.ErrorContains(t, err, "less nesting")
	longest := `"` + strings.Repeat("x", 256<<10-2) + `"`
	_, err = jsonx.CompactJSON([]byte(longest), jsonx.JSONLimits{})
	require.NoError(t, err)
	_, err = jsonx.CompactJSON([]byte(longest+" "), jsonx.JSONLimits{})
	require.EqualError(t, err, "json at offset 262144: want at most 262144 bytes")
}

func TestDecodeStrict(t *testing.T) {
	type inner struct {
		N any `json:"n"`
	}
	type base struct{ Base string }
	type target struct {
		base
		Action string           `json:"action"`
		List   []inner          `json:"list"`
		Map    map[string]inner `json:"map"`
		Ptr    *inner           `json:"ptr"`
		Raw    json.RawMessage  `json:"raw"`
		Hidden string           `json:"-"`
	}
	var v target
	require.NoError(t, jsonx.DecodeStrict([]byte(`{"Base":"b","action":"x","list":[{"n":1.0}],"map":{"k":{"n":2}},"ptr":{"n":3},"raw":{"Any":1}}`), &v))
	require.Equal(t, "b", v.Base)
	require.Equal(t, json.Number("1.0"), v.List[0].N)
	require.Equal(t, json.Number("2"), v.Map["k"].N)
	require.Equal(t, json.Number("3"), v.Ptr.N)
	require.Equal(t, `{"Any":1}`, string(v.Raw))

	for _, tt := range []struct{ in, want string }{
		{`{"Action":"x"}`, `json at offset 0, "/Action": want a known key`},
		{`{"action":"x","ACTION":"y"}`, `json at offset 0, "/ACTION": want a known key`},
		{`{"list":[{"n":1},{"N":1}]}`, `json at offset 0, "/list/1/N": want a known key`},
		{`{"map":{"k":{"N":1}}}`, `json at offset 0, "/map/k/N": want a known key`},
		{`{"ptr":{"m":1}}`, `json at offset 0, "/ptr/m": want a known key`},
		{`{"Hidden":"x"}`, `json at offset 0, "/Hidden": want a known key`},
		{`{"action":4111111111111111}`, `json at offset 0, "/action": want a string`},
		{`{"action":"x"} {}`, `json at offset 15: want nothing after the value`},
		{`{"action":"x","action":"x"}`, `json at offset 14, "/action": want each key once`},
	} {
		require.EqualError(t, jsonx.DecodeStrict([]byte(tt.in), &target{}), tt.want)
	}
}

func FuzzCompactJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-3,"\ud83d\ude00"]}`, `{"a":1,"\u0061":2}`, `"\ud800"`, " [ ] ", "\"\xff\"", `-0.0E+0`, `[[[]]]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		lim := jsonx.JSONLimits{Bytes: 4096, Depth: 8}
		out, err := jsonx.CompactJSON(in, lim)
		if (err == nil) != acceptable(in, lim) {
			t.Fatalf("accepted = %v for %q: %v", err == nil, in, err)
		}
		if err != nil {
			return
		}
		var std bytes.Buffer
		require.NoError(t, json.Compact(&std, in))
		require.Equal(t, std.String(), string(out))
		again, err := jsonx.CompactJSON(out, lim)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}

// acceptable is CompactJSON's contract by other means: what encoding/json takes, less the stricter rules.
func acceptable(in []byte, lim jsonx.JSONLimits) bool {
	if !json.Valid(in) || !utf8.Valid(in) || len(in) > lim.Bytes {
		return false
	}
	// A lone surrogate is what decodes to U+FFFD without being written as it.
	var escaped bytes.Buffer
	json.HTMLEscape(&escaped, in)
	plain := bytes.ReplaceAll(bytes.ReplaceAll(escaped.Bytes(), []byte("\ufffd"), nil), []byte(`\\`), nil)
	plain = regexp.MustCompile(`\\u(?i:fffd)`).ReplaceAll(plain, nil)
	depth, ok := walkJSON(json.NewDecoder(bytes.NewReader(in)), 0)
	return ok && depth <= lim.Depth && !decodesTo(plain, '\ufffd')
}

func decodesTo(in []byte, r rune) bool {
	dec := json.NewDecoder(bytes.NewReader(in))
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		if s, ok := tok.(string); ok && strings.ContainsRune(s, r) {
			return true
		}
	}
}

// walk reads one value and returns how deep it is and whether no object has a key twice.
func walkJSON(dec *json.Decoder, depth int) (deepest int, ok bool) {
	dec.UseNumber()
	tok, err := dec.Token()
	delim, nested := tok.(json.Delim)
	if err != nil || !nested {
		return depth, err == nil
	}
	deepest, seen := depth+1, map[string]bool{}
	for dec.More() {
		if delim == '{' {
			key, err := dec.Token()
			if err != nil || seen[key.(string)] {
				return deepest, false
			}
			seen[key.(string)] = true
		}
		d, ok := walkJSON(dec, depth+1)
		if !ok {
			return d, false
		}
		deepest = max(deepest, d)
	}
	_, err = dec.Token()
	return deepest, err == nil
}

// What is read strictly is read alike where other keys may stand, and written and read again it is the same.
func FuzzDecodeStrict(f *testing.F) {
	type inner struct {
		N    int64           `json:"n"`
		Raw  json.RawMessage `json:"raw,omitempty"`
		When time.Time       `json:"when"`
	}
	type outer struct {
		Text string   `json:"text"`
		Is   *bool    `json:"is,omitempty"`
		List []inner  `json:"list"`
		Any  []string `json:"any"`
	}
	for _, seed := range []string{
		`{"text":"x","is":true,"list":[{"n":1,"raw":{"a":1.10},"when":"2026-01-02T03:04:05Z"}],"any":["a"]}`, `{"Text":"x"}`, `{"text":1}`, `{"list":[null]}`, `null`, `[]`,
		`{"list":[{"n":1e999}]}`, `{"list":[{"when":"no"}]}`, `{"text":"a","\u0074ext":"b"}`, `{"zzz":1}`, `{"any":{"0":"a"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var strict, known outer
		if err := jsonx.DecodeStrict(raw, &strict); err != nil {
			require.NotContains(t, err.Error(), "Go ")
			return
		}
		require.NoError(t, jsonx.DecodeKnown(raw, jsonx.JSONLimits{}, &known))
		require.Equal(t, strict, known)
		again, err := json.Marshal(strict)
		if err != nil {
			return // a year that RFC 3339 does not write
		}
		var back outer
		require.NoError(t, jsonx.DecodeStrict(again, &back), "%s", again)
		more, err := json.Marshal(back)
		require.NoError(t, err)
		require.JSONEq(t, string(again), string(more))
	})
}
