package lambdafn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/registry"
)

// Bad configuration ends a function at cold start and names the variable.
func TestColdStartNamesWhatIsMissing(t *testing.T) {
	env := map[string]string{envTable: "runs", envBucket: "blobs", envMachine: "arn:aws:states:eu:1:stateMachine:m", "AWS_REGION": "eu-central-1"}
	get := func(broken, value string) func(string) string {
		return func(name string) string {
			if name == broken {
				return value
			}
			return env[name]
		}
	}
	r := registry.Must(registry.New())
	for _, name := range []string{envTable, envBucket, envMachine} {
		_, err := coldStart(r, get(name, ""), nil)
		require.EqualError(t, err, name+": want a value, got none")
	}
	_, err := coldStart(r, get(envMachine, "m"), nil)
	require.ErrorContains(t, err, envMachine+": state machine \"m\": want arn:aws:states")

	h, err := coldStart(r, get("", ""), askDeployed)
	require.NoError(t, err)
	require.NotNil(t, h.Ports.Model)
	h, err = coldStart(r, get("", ""), nil)
	require.NoError(t, err)
	require.Nil(t, h.Ports.Model, "a function that asks no model links none")
}

// What only works on a laptop is refused in a deployed function, as data.
func TestDeployedModelRefusesOtherProviders(t *testing.T) {
	_, err := deployedModel{}.Generate(t.Context(), agent.Request{Model: agent.ModelSpec{Provider: "demo", ID: "stand-in"}})
	var failed *agent.ModelError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, agent.ModelInvalid, failed.Class)
	require.ErrorContains(t, err, "want bedrock or openai")
}
