package tool

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

// One tool that a service refuses would end every run of its agent.
func TestForModel(t *testing.T) {
	anything := func(string) bool { return true }
	plain := func(keyword string) bool { return !slices.Contains(Combining, keyword) }
	nova := func(keyword string) bool { return slices.Contains([]string{"type", "properties", "required"}, keyword) }
	for _, c := range []struct {
		name                      string
		allows                    func(string) bool
		schema, want, description string
	}{
		{"as it is", plain, `{"type":"object", "properties":{"z":{},"a":{"type":"array","items":{}}}}`, "", "d"},
		{"no schema", plain, ``, `{"type":"object","properties":{}}`, "d"},
		{"no properties", anything, `{"type":"object"}`, `{"type":"object","properties":{}}`, "d"},
		{"no type", anything, `{"properties":{"a":{}}}`, `{"type":"object","properties":{"a":{}}}`, "d"},
		{"another type too", anything, `{"type":["object","null"],"properties":{}}`, `{"type":"object","properties":{}}`, "d"},
		{"lists without items", anything,
			`{"type":"object","properties":{"items":{"type":["array","null"]},"b":{"default":{"type":"array"},"anyOf":[{"type":"array","maxItems":1.0}]}}}`,
			`{"type":"object","properties":{"items":{"type":["array","null"],"items":{}},"b":{"default":{"type":"array"},"anyOf":[{"type":"array","items":{},"maxItems":1.0}]}}}`, "d"},
		{"properties and items that may be anything", anything, `{"type":"object","properties":{"a":true,"b":{"items":true},"c":{"const":true,"additionalProperties":true}}}`,
			`{"type":"object","properties":{"a":{},"b":{"items":{}},"c":{"const":true,"additionalProperties":true}}}`, "d"},
		{"combined, where that is taken", anything, `{"type":"object","oneOf":[{}],"properties":{}}`, "", "d"},
		{"combined", plain, `{"type":"object","properties":{"a":{"type":"string"}},"anyOf":[{"required":["a"]},{"properties":{"a":{},"b":{"minimum":1}}}]}`,
			`{"type":"object","properties":{"a":{"type":"string"},"b":{"minimum":1}}}`,
			"d\n\nThe arguments must also fit this JSON Schema: {\"anyOf\":[{\"required\":[\"a\"]},{\"properties\":{\"a\":{},\"b\":{\"minimum\":1}}}]}"},
		{"branches that disagree", plain, `{"type":"object","properties":{},"oneOf":[{"properties":{"a":{"type":"null"}}}],"anyOf":[{"properties":{"a":{"minimum":1}}}]}`,
			`{"type":"object","properties":{"a":{"minimum":1}}}`,
			"d\n\nThe arguments must also fit this JSON Schema: {\"anyOf\":[{\"properties\":{\"a\":{\"minimum\":1}}}],\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}}}]}"},
		{"definitions", anything, `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"items":{"$ref":"#/definitions/b/not"}},"c":{"$ref":"#/$defs/d"},"d":{}},"definitions":{"b":{},"e":true}}`,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"items":{"$ref":"#/definitions/b/not"}}},"definitions":{"b":{}}}`, "d"},
		{"no definition in use", anything, `{"type":"object","properties":{},"$defs":{"a":{"$ref":"#/$defs/a"}}}`, `{"type":"object","properties":{}}`, "d"},
		{"definitions that are referred to otherwise", anything, `{"type":"object","properties":{"a":{"$ref":"#b"}},"$defs":{"b":{"$anchor":"b"},"c":{}}}`, "", "d"},
		{"definitions whose names are escaped", anything, `{"type":"object","properties":{"a":{"$ref":"#/$defs/b~1c"}},"$defs":{"b/c":{},"d~":{}}}`, "", "d"},
		{"references, where no definitions are taken", nova,
			`{"type":"object","properties":{"$ref":{"$ref":"#/$defs/a","title":"A"},"b":{"items":{"$ref":"#/definitions/b~1c"}},"c":{"default":{"$ref":"x"}}},
				"$defs":{"a":{"title":"Z","properties":{"d":{"$ref":"#/definitions/b~1c"}}}},"definitions":{"b/c":{"enum":[1.0]}}}`,
			`{"type":"object","properties":{"$ref":{"title":"A","properties":{"d":{"enum":[1.0]}}},"b":{"items":{"enum":[1.0]}},"c":{"default":{"$ref":"x"}}}}`, "d"},
		{"a reference at the top", nova, `{"$ref":"#/$defs/a","$defs":{"a":{"type":"object","properties":{"b":{}},"required":[]}}}`,
			`{"type":"object","properties":{"b":{}},"required":[]}`, "d"},
		{"references that no definition can stand for", nova,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"},"b":{"$ref":"#b"}},"$defs":{"a":{"items":{"$ref":"#/$defs/a"}}}}`,
			`{"type":"object","properties":{"a":{"items":{}},"b":{}}}`,
			"d\n\nThe arguments must also fit this JSON Schema: {\"$defs\":{\"a\":{\"items\":{\"$ref\":\"#/$defs/a\"}}}}"},
		{"nova", nova, `{"$schema":"x","type":"object","properties":{},"required":[],"additionalProperties":false}`,
			`{"type":"object","properties":{},"required":[]}`, "d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			description, schema := ForModel(agent.ToolSpec{Description: "d", Schema: json.RawMessage(c.schema)}, c.allows)
			if c.want == "" {
				require.Equal(t, c.schema, string(schema), "byte for byte")
			} else {
				require.JSONEq(t, c.want, string(schema))
			}
			require.Equal(t, c.description, description)
		})
	}
}
