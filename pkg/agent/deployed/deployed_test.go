package deployed

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
)

// What only works on a laptop is refused in a deployed function, as data.
func TestModelRefusesOtherProviders(t *testing.T) {
	m := Models(aws.Config{}, func(string) string { return "" })
	_, err := m.Generate(t.Context(), agent.Request{Model: agent.ModelSpec{Provider: "demo", ID: "stand-in"}})
	var failed *agent.ModelError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, agent.ModelInvalid, failed.Class)
	require.ErrorContains(t, err, "want bedrock or openai")
}
