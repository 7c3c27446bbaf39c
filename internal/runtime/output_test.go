package runtime

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tools/schema"
)

func TestOutputCheck(t *testing.T) {
	def := &agent.Definition{Output: agent.Output{Format: agent.OutputJSON}}
	fits, err := Ports{Schema: schema.Fits}.outputCheck(def)
	require.NoError(t, err)
	require.NoError(t, fits(json.RawMessage(`[1]`)))

	def.Output.Schema = json.RawMessage(`{"type":"array","items":{"maximum":1.10}}`)
	fits, err = Ports{Schema: schema.Fits}.outputCheck(def)
	require.NoError(t, err)
	require.NoError(t, fits(json.RawMessage(`[1.1]`)))
	require.EqualError(t, fits(json.RawMessage(`[1.11]`)), "at /0: must be at most 1.1, is 1.11")

	def.Output.Schema = json.RawMessage(`{"type":"objekt"}`)
	_, err = Ports{Schema: schema.Fits}.outputCheck(def)
	require.ErrorContains(t, err, "the schema of the output is broken")
}
