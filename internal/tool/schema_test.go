package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func mustCompile(t testing.TB, schema string) *Schema {
	t.Helper()
	s, err := Compile(json.RawMessage(schema))
	require.NoError(t, err)
	return s
}

const refundSchema = `{"type":"object","properties":{
	"order":{"type":"string","pattern":"^A-[0-9]+$","maxLength":8},
	"amount":{"type":"number","minimum":0,"maximum":100.10,"multipleOf":0.01},
	"kind":{"enum":["full","partial"]},
	"tags":{"type":"array","items":{"type":"string"},"uniqueItems":true,"maxItems":3},
	"note":{"anyOf":[{"type":"string"},{"type":"null"}]}
},"required":["order","amount"],"additionalProperties":false}`

func TestValidateTellsTheModelWhatIsWrong(t *testing.T) {
	s := mustCompile(t, refundSchema)
	for name, tc := range map[string]struct{ args, want string }{
		"valid":           {`{"order":"A-1","amount":100.10}`, ""},
		"exact maximum":   {`{"order":"A-1","amount":100.100000000000000000001}`, "at /amount: must be a multiple of 0.01, is 100.100000000000000000001\nat /amount: must be at most 100.1, is 100.100000000000000000001"},
		"exact multiple":  {`{"order":"A-1","amount":0.07}`, ""},
		"large integer":   {`{"order":"A-1","amount":9007199254740993}`, "at /amount: must be at most 100.1, is 9007199254740993"},
		"sorted lines":    {`{"zz":1,"amount":-1,"kind":"half","aa":2}`, "at /: the property \"aa\" is not known\nat /: the property \"order\" is missing\nat /: the property \"zz\" is not known\nat /amount: must be at least 0, is -1\nat /kind: must be one of \"full\", \"partial\""},
		"type":            {`{"order":7,"amount":"7"}`, "at /amount: must be number, is string\nat /order: must be string, is number"},
		"pattern, length": {`{"order":"B-12345678","amount":1}`, "at /order: \"B-12345678\" does not match the pattern \"^A-[0-9]+$\"\nat /order: must have at most 8 characters, has 10"},
		"items":           {`{"order":"A-1","amount":1,"tags":["a",1,"a","b"]}`, "at /tags/1: must be string, is number\nat /tags: items 0 and 2 are equal\nat /tags: must have at most 3 items, has 4"},
		"alternatives":    {`{"order":"A-1","amount":1,"note":[]}`, "at /note: fits none of the allowed forms (must be string, is array; or must be null, is array)"},
		"not an object":   {`[]`, "at /: must be object, is array"},
		"empty":           {``, "json at offset 0: want a JSON value"},
		"cut off":         {`{"order":`, `json at offset 9, "/order": want a JSON value`},
		"two values":      {`{} {}`, "json at offset 3: want nothing after the value"},
		"key twice":       {`{"order":"A-1","amount":1,"amount":1000}`, `json at offset 26, "/amount": want each key once`},
		"key twice, escaped": {`{"order":"A-1","amount":1,"\u0061mount":1000}`,
			`json at offset 26, "/amount": want each key once`},
		"not UTF-8":      {"{\"order\":\"\xff\"}", `json at offset 10, "/order": want valid UTF-8`},
		"huge exponent":  {`{"order":"A-1","amount":1e999999999}`, "the number 1e999999999 is out of range"},
		"strange key":    {"{\"order\":\"A-1\",\"amount\":1,\"a\\nb\\u202e\":1}", `at /: the property "a\nb\u202e" is not known`},
		"deep":           {`{"order":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, `json at offset 72, "/order` + strings.Repeat("/0", 63) + `": want less nesting`},
		"too many bytes": {`{"order":"` + strings.Repeat("x", maxArgsBytes) + `"}`, fmt.Sprintf("json at offset %[1]d: want at most %[1]d bytes", maxArgsBytes)},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.Validate(json.RawMessage(tc.args))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tc.want)
		})
	}
}

// Every keyword a violation can come from has words of our own.
func TestEveryKeywordHasWords(t *testing.T) {
	for schema, tc := range map[string]struct{ args, want string }{
		`{"const":1}`:                                  {`2`, "must be 1"},
		`{"enum":[1,{"a":2}]}`:                         {`3`, `must be one of 1, {"a":2}`},
		`{"exclusiveMinimum":1}`:                       {`1`, "must be more than 1, is 1"},
		`{"exclusiveMaximum":1.5}`:                     {`1.5`, "must be less than 1.5, is 1.5"},
		`{"minLength":2}`:                              {`"é"`, "must have at least 2 characters, has 1"},
		`{"minItems":1}`:                               {`[]`, "must have at least 1 items, has 0"},
		`{"minProperties":1}`:                          {`{}`, "must have at least 1 properties, has 0"},
		`{"maxProperties":0}`:                          {`{"a":1}`, "must have at most 0 properties, has 1"},
		`{"contains":{"type":"null"}}`:                 {`[1]`, "lacks an item of the required form"},
		`{"contains":{"type":"null"},"minContains":2}`: {`[null]`, "must have at least 2 items of the required form, has 1"},
		`{"contains":{"type":"null"},"maxContains":0,"minContains":0}`: {`[null]`, "must have at most 0 items of the required form, has 1"},
		`{"not":{}}`:                        {`1`, "has a form that is not allowed"},
		`{"oneOf":[{},{}]}`:                 {`1`, "fits more than one of the allowed forms"},
		`{"properties":{"a":false}}`:        {`{"a":1}`, "is not allowed"},
		`{"propertyNames":{"maxLength":1}}`: {`{"ab":1}`, `the property name "ab" is not allowed`},
		`{"dependentRequired":{"a":["b"]}}`: {`{"a":1}`, `the property "b" is missing, which "a" needs`},
		`{"allOf":[{"$ref":"#/$defs/x"}],"$defs":{"x":{"type":"null"}}}`:                             {`1`, "must be null, is number"},
		`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{}],"additionalItems":false}`: {`[1,2,3]`, "has 2 items too many"},
		`{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":["b"]}}`:           {`{"a":1}`, `the property "b" is missing, which "a" needs`},
	} {
		t.Run(schema, func(t *testing.T) {
			require.ErrorContains(t, mustCompile(t, schema).Validate(json.RawMessage(tc.args)), tc.want)
		})
	}
}

func TestFormatsAreAnnotations(t *testing.T) {
	for _, draft := range []string{"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"} {
		s := mustCompile(t, `{"$schema":"`+draft+`","type":"object","properties":{"d":{"type":"string","format":"date"}}}`)
		require.NoError(t, s.Validate(json.RawMessage(`{"d":"tomorrow"}`)), draft)
	}
}

func TestReportIsBounded(t *testing.T) {
	s := mustCompile(t, `{"type":"array","items":{"type":"string","enum":["`+strings.Repeat("x", 5000)+`"]}}`)
	err := s.Validate(json.RawMessage("[" + strings.Repeat(`"y",`, 499) + `"y"]`))
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, maxViolations+1)
	require.Equal(t, "and 480 more", lines[maxViolations])
	require.Less(t, len(err.Error()), (maxViolations+1)*maxLineRunes)
}

func TestReportIsTheSameEveryTime(t *testing.T) {
	s := mustCompile(t, `{"type":"object","additionalProperties":{"anyOf":[{"required":["p","q"]},{"type":"string"}]}}`)
	args := json.RawMessage(`{"a":1,"b":{},"c":[],"d":null,"e":{},"f":2,"g":{"p":1}}`)
	want := s.Validate(args).Error()
	for range 50 {
		require.EqualError(t, s.Validate(args), want)
	}
}

func TestCompileRefusesHostileSchemas(t *testing.T) {
	for name, tc := range map[string]struct{ schema, want string }{
		"not JSON":             {`{`, "json at offset 1"},
		"not a schema":         {`{"type":"objec"}`, "not a valid JSON Schema: at /type"},
		"no alternatives":      {`{"oneOf":[]}`, "not a valid JSON Schema: at /oneOf"},
		"too large":            {`{"description":"` + strings.Repeat("x", maxSchemaBytes) + `"}`, "want at most 65536 bytes"},
		"too deep":             {strings.Repeat(`{"not":`, 40) + `{}` + strings.Repeat(`}`, 40), "want less nesting"},
		"too many values":      {`{"enum":[` + strings.Repeat("1,", 9000) + `2]}`, "more than 8192 values"},
		"key twice":            {`{"type":"object","type":"array"}`, "want each key once"},
		"huge number":          {`{"minimum":1e999999999}`, "out of range"},
		"file":                 {`{"$ref":"file:///etc/passwd"}`, "must not name documents outside itself"},
		"http":                 {`{"properties":{"a":{"$ref":"http://127.0.0.1/x.json"}}}`, "must not name documents outside itself"},
		"relative document":    {`{"$ref":"other.json"}`, "must not name documents outside itself"},
		"own id, then remote":  {`{"$id":"http://127.0.0.1/a/","$ref":"b.json"}`, "must not name documents outside itself"},
		"metaschema elsewhere": {`{"$schema":"http://127.0.0.1/meta"}`, "must not name documents outside itself"},
		"circle of one":        {`{"$ref":"#"}`, "in a circle"},
		"circle of two":        {`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"}`, "in a circle"},
		"dynamicRef":           {`{"$dynamicAnchor":"n","properties":{"a":{"$dynamicRef":"#n"}}}`, "not supported"},
		"metaschema as target": {`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, "not supported"},
		"lookahead":            {`{"pattern":"(?=x)"}`, "at /pattern: is not a valid regex"},
		"long pattern":         {`{"pattern":"` + strings.Repeat("a", 1025) + `"}`, "at most 1024 are read"},
		"large pattern":        {`{"pattern":"` + strings.Repeat("a{0,1000}", 100) + `"}`, "at most 10000 are run"},
		"missing definition":   {`{"$ref":"#/$defs/nothing"}`, "compile schema"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(json.RawMessage(tc.schema))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// A recursive schema that descends is fine.
func TestRecursiveSchema(t *testing.T) {
	s := mustCompile(t, `{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false}`)
	require.NoError(t, s.Validate(json.RawMessage(`{"next":{"next":{}}}`)))
	require.EqualError(t, s.Validate(json.RawMessage(`{"next":{"next":{"x":1}}}`)), `at /next/next: the property "x" is not known`)
}

// Checks that would take years end at once. A schema of a few hundred bytes is enough for each.
func TestCostlyChecksEnd(t *testing.T) {
	doubling := `{"$defs":{`
	for i := range 60 {
		doubling += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	doubling += `"d60":{"type":"object"}},"$ref":"#/$defs/d0"}`
	nested := strings.Repeat("[", 60) + strings.Repeat("]", 60)
	deep := strings.Repeat(`{"x":`, 60) + "{}" + strings.Repeat("}", 60)
	for name, tc := range map[string]struct{ schema, args string }{
		"doubling references": {doubling, `{}`},
		"doubling by depth":   {`{"properties":{"x":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`, deep},
		"doubling that fails, under not": {`{"not":{"$ref":"#/$defs/a"},"$defs":{"a":{"items":{"$ref":"#/$defs/a"},"contains":{"$ref":"#/$defs/a"},"minItems":1}}}`,
			nested},
		"enum times items":   {`{"items":{"enum":[` + strings.Repeat("1.5,", 8000) + `2]}}`, "[" + strings.Repeat("3,", 100_000) + "3]"},
		"pattern times text": {`{"pattern":"` + strings.Repeat("(a|b){0,99}", 10) + `c"}`, `"` + strings.Repeat("ab", 120_000) + `"`},
		"pattern times keys": {`{"propertyNames":{"pattern":"(a{0,900}){1}x"}}`, manyKeys(2000)},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustCompile(t, tc.schema)
			require.ErrorContains(t, s.Validate(json.RawMessage(tc.args)), "too large or too deeply nested to be checked")
			require.ErrorContains(t, s.Validate(json.RawMessage(`1e500`)), "out of range", "the schema is still of use")
			require.NotPanics(t, func() { _ = s.Validate(json.RawMessage(`1`)) })
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%s%d":1,`, strings.Repeat("a", 40), i)
	}
	return "{" + strings.TrimSuffix(b.String(), ",") + "}"
}

// The budget is no obstacle to the largest arguments an ordinary schema meets.
func TestLargeArgumentsAreChecked(t *testing.T) {
	numbers := mustCompile(t, `{"type":"array","items":{"type":"integer","minimum":0}}`)
	require.NoError(t, numbers.Validate(json.RawMessage("["+strings.Repeat("1,", 130_000)+"1]")))
	rows := mustCompile(t, `{"type":"array","items":{"type":"object","properties":{"name":{"type":"string","pattern":"^[a-z]+$"},"kind":{"enum":["a","b","c"]}},"required":["name"],"additionalProperties":false}}`)
	require.NoError(t, rows.Validate(json.RawMessage("["+strings.Repeat(`{"name":"widget","kind":"c"},`, 9000)+`{"name":"w"}]`)))
	text := mustCompile(t, `{"type":"object","properties":{"text":{"type":"string","minLength":1,"pattern":"^[^#]*$"}}}`)
	require.NoError(t, text.Validate(json.RawMessage(`{"text":"`+strings.Repeat("lorem ", 40_000)+`"}`)))
}

func TestCacheIsBoundedAndShared(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range maxSchemas + 10 {
				s, err := Compile(fmt.Appendf(nil, `{"type":"object","maxProperties":%d}`, i))
				if err != nil || s.Validate(json.RawMessage(`{}`)) != nil {
					t.Errorf("goroutine %d, schema %d: %v", g, i, err)
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, len(schemas.byDigest), maxSchemas)
	one, two := mustCompile(t, `{"title":"same"}`), mustCompile(t, `{"title":"same"}`)
	require.Same(t, one, two)
}

// Schemas of every draft may be the first of their draft at the same time. Each keyword is one that came with the draft before it or the draft
// itself, so that a schema judged by the wrong metaschema is not refused.
func TestDraftsAtTheSameTime(t *testing.T) {
	var wg sync.WaitGroup
	for draft, wrong := range map[string]string{
		"http://json-schema.org/draft-04/schema#":      `"exclusiveMinimum":1`,
		"http://json-schema.org/draft-06/schema#":      `"const":1,"exclusiveMinimum":true`,
		"http://json-schema.org/draft-07/schema#":      `"if":1`,
		"https://json-schema.org/draft/2019-09/schema": `"dependentRequired":1`,
		"https://json-schema.org/draft/2020-12/schema": `"prefixItems":1`,
	} {
		for i := range 4 {
			wg.Go(func() {
				right := fmt.Sprintf(`{"$schema":%q,"title":"%d","type":"string"}`, draft, i)
				s, err := Compile(json.RawMessage(right))
				if err != nil || s.Validate(json.RawMessage(`1`)) == nil {
					t.Errorf("%s: %v", draft, err)
				}
				_, err = Compile(fmt.Appendf(nil, `{"$schema":%q,"title":"%d",%s}`, draft, i, wrong))
				if err == nil || !strings.Contains(err.Error(), "not a valid JSON Schema: at /") {
					t.Errorf("%s takes %s: %v", draft, wrong, err)
				}
			})
		}
	}
	wg.Wait()
}

// Whatever schema and arguments come, nothing panics or hangs, the text is bounded, of clean lines, and the same twice.
func FuzzValidate(f *testing.F) {
	f.Add(refundSchema, `{"order":"A-1","amount":100.2}`)
	f.Add(`{"properties":{"x":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`, `{"x":{"x":{"x":1}}}`)
	f.Add(`{"not":{"items":{"$ref":"#"},"contains":{"$ref":"#"}}}`, `[[[]]]`)
	f.Add(`{"multipleOf":0.01,"unevaluatedProperties":false}`, `{"a":1e400}`)
	f.Add(`{"$schema":"http://json-schema.org/draft-04/schema#","id":"x","type":"object"}`, `{"\ud800":1}`)
	f.Add(`{"if":{"const":1},"then":false,"else":{"enum":[[1],{"a":null}]},"uniqueItems":true}`, `[1,1.0]`)
	f.Fuzz(func(t *testing.T, schema, args string) {
		s, err := Compile(json.RawMessage(schema))
		if err != nil {
			return
		}
		err = s.Validate(json.RawMessage(args))
		if err == nil {
			require.True(t, json.Valid([]byte(args)))
			return
		}
		require.Less(t, len(err.Error()), 8*(maxViolations+1)*maxLineRunes)
		require.True(t, utf8.ValidString(err.Error()))
		require.NotContains(t, err.Error(), "jsonschema")
	})
}
