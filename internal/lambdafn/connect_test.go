package lambdafn

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/registry"
)

// testAWS is the configuration of a function's AWS clients.
var testAWS = aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", "")}

// Bad configuration ends a function at cold start and names the variable.
func TestColdStartNamesWhatIsMissing(t *testing.T) {
	env := map[string]string{
		envTable: "runs", envBucket: "blobs", envMachine: "arn:aws:states:eu:1:stateMachine:m",
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
	for _, name := range []string{envTable, envBucket, envMachine} {
		_, err := coldStart(r, testAWS, get(name, ""))
		require.EqualError(t, err, name+": want a value, got none")
	}
	_, err := coldStart(r, aws.Config{}, get("", ""))
	require.EqualError(t, err, "AWS_REGION: want a value, got none")
	_, err = coldStart(r, testAWS, get(envMachine, "m"))
	require.ErrorContains(t, err, envMachine+": state machine \"m\": want arn:aws:states")
	_, err = coldStart(r, testAWS, get("COUNTERSIGN_PRIVATE_HOSTS", "10.0.0.0/8"))
	require.ErrorContains(t, err, "COUNTERSIGN_PRIVATE_HOSTS: ")
}

// The functions of the state machine have all of a deployment's ports; the environment says which of them are of use.
func TestColdStartComposesAll(t *testing.T) {
	env := map[string]string{
		envTable: "runs", envBucket: "blobs", envMachine: "arn:aws:states:eu:1:stateMachine:m",
	}
	r := registry.Must(registry.New())
	code := hook.Set{Builders: map[string]hook.Builder{"b": func(context.Context, hook.BuildInput) (hook.Built, error) { return hook.Built{}, nil }}}
	require.NoError(t, r.Hook(code))
	d, err := agent.Definition{Name: "a", Builder: "b", Model: agent.ModelSpec{Provider: "demo"}}.Resolve()
	require.NoError(t, err)
	require.NoError(t, r.Add(d))
	h, err := coldStart(r, testAWS, func(name string) string { return env[name] })
	require.NoError(t, err)
	require.NotNil(t, h.Ports.Model)
	require.NotNil(t, h.Ports.Count)
	require.NotNil(t, h.Ports.Index)
	require.NotNil(t, h.Ports.Tools)
	require.NotNil(t, h.Ports.Valid)
	require.NotNil(t, h.Ports.Schema)
	require.NotNil(t, h.Ports.Agents)
	require.Len(t, h.Ports.Remotes, 3)
	require.Contains(t, h.Ports.Hooks.Builders, "b")
	require.Nil(t, h.Ports.Notify, "nobody is told without a channel")
	require.Nil(t, h.Ports.Callbacks, "no address is handed out without one of the API")
	got, ok := h.Agents("a")
	require.True(t, ok)
	require.Equal(t, "b", got.Builder)
}
