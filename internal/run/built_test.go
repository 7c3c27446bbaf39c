package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
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
		spec := agent.ToolSpec{Name: "t", Schema: rawJSON(in)}
		require.Equal(t, want, string(spec.ModelFacing().Schema), in)
		require.Equal(t, in, string(spec.Schema))
	}
}
