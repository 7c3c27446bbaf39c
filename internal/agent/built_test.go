package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModelFacing(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"object"}`: `{"type":"object"}`,
		`{"properties":{"b":{"maximum":1.50},"parentSubject$$":{"type":"string"},"a":{"enum":["<"]}},"required":["parentSubject$$","b"],"type":"object"}`: `{"properties":{"b":{"maximum":1.50},"a":{"enum":["<"]}},"required":["b"],"type":"object"}`,
		`{"required":["parentSubject$$"],"properties":{"parentSubject\u0024$":{}}}`:                                                                       `{"properties":{}}`,
		`{"required":[],"description":"parentSubject"}`:                                                                                                   `{"required":[],"description":"parentSubject"}`,
		`{"properties":{"x":{"properties":{"parentSubject$$":{}}}}}`:                                                                                      `{"properties":{"x":{"properties":{"parentSubject$$":{}}}}}`,
		`{"properties":true,"required":"parentSubject$$"}`:                                                                                                `{"properties":true,"required":"parentSubject$$"}`,
		"{ \"properties\" : { \"parentSubject$$\" : { } } , \"type\": \"object\" }":                                                                       `{"properties":{},"type":"object"}`,
	} {
		spec := ToolSpec{Name: "t", Schema: rawJSON(in)}
		require.Equal(t, want, string(spec.ModelFacing().Schema), in)
		require.Equal(t, in, string(spec.Schema))
	}
}

// Two tools of one model-facing name are refused, whatever their kinds, and so is a name over 64 characters.
func TestNamesCollide(t *testing.T) {
	object := rawJSON(`{"type":"object"}`)
	tool := func(name string) ToolSpec {
		return ToolSpec{Name: name, Kind: KindInternal, Effect: EffectRead, Schema: object}
	}
	require.ErrorContains(t, CheckTools([]ToolSpec{tool("a.b_c"), tool("a_b.c")}), "tools[1].name: a.b_c and a_b.c are both a_b_c to the model")
	require.ErrorContains(t, CheckTools([]ToolSpec{tool("a.b"), tool("a.b")}), "tools[1].name: got a tool a second time")
	require.NoError(t, CheckTools([]ToolSpec{tool(strings.Repeat("a", 62) + ".b")}))
	require.ErrorContains(t, CheckTools([]ToolSpec{tool(strings.Repeat("a", 63) + ".b")}), "got 65 characters, want at most 64")
}
