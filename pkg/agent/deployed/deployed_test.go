package deployed

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/bedrockfake"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// Bedrock counts a request's tokens; nobody else does, and says so without being asked.
func TestModelsCountTokens(t *testing.T) {
	server := bedrockfake.New()
	t.Cleanup(server.Close)
	m, ok := Models(server.Config(), func(string) string { return "" }).(runtime.TokenCounter)
	require.True(t, ok)
	r := agent.Request{
		Model:    agent.ModelSpec{Provider: "bedrock", ID: "m"},
		Messages: []agent.Message{{Role: agent.RoleUser, Block: agent.Text{Text: "Hello."}}},
	}
	n, err := m.CountTokens(t.Context(), r)
	require.NoError(t, err)
	require.EqualValues(t, bedrockfake.Tokens(server.Requests()[0].Body), n)

	r.Model.Provider = "openai"
	_, err = m.CountTokens(t.Context(), r)
	var failed *agent.ModelError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, agent.ModelInvalid, failed.Class)
	require.Len(t, server.Requests(), 1)
}

// What only works on a laptop is refused in a deployed function, as data.
func TestModelRefusesOtherProviders(t *testing.T) {
	m := Models(aws.Config{}, func(string) string { return "" })
	_, err := m.Generate(t.Context(), agent.Request{Model: agent.ModelSpec{Provider: "demo", ID: "stand-in"}})
	var failed *agent.ModelError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, agent.ModelInvalid, failed.Class)
	require.ErrorContains(t, err, "want bedrock or openai")
}
