package lambdafn

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent/registry"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// Bad configuration ends a function at cold start and names the variable.
func TestColdStartNamesWhatIsMissing(t *testing.T) {
	env := map[string]string{
		envTable: "runs", envBucket: "blobs", envMachine: "arn:aws:states:eu:1:stateMachine:m",
		envRegion: "eu-central-1", envAccessKey: "AKID", envSecretKey: "SECRET",
	}
	get := func(broken, value string) func(string) string {
		return func(name string) string {
			if name == broken {
				return value
			}
			return env[name]
		}
	}
	r := registry.Must(registry.New())
	for _, name := range []string{envTable, envBucket, envMachine, envRegion, envAccessKey, envSecretKey} {
		_, err := coldStart(r, get(name, ""), nil)
		require.EqualError(t, err, name+": want a value, got none")
	}
	_, err := coldStart(r, get(envMachine, "m"), nil)
	require.ErrorContains(t, err, envMachine+": state machine \"m\": want arn:aws:states")

	models := func(aws.Config, func(string) string) runtime.Model { return nil }
	h, err := coldStart(r, get("", ""), models)
	require.NoError(t, err)
	require.NotNil(t, h.Ports.Model)
	h, err = coldStart(r, get("", ""), nil)
	require.NoError(t, err)
	require.Nil(t, h.Ports.Model, "a function that asks no model links none")
	require.NotNil(t, h.Ports.Tools)
	h, err = coldStart(nil, get("", ""), nil)
	require.NoError(t, err)
	require.Nil(t, h.Ports.Tools, "a function that runs no tool needs no registry")
}
