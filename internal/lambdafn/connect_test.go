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
	"github.com/countersign/countersign/internal/runtime"
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
	all := parts{agents: r, tools: r.Tools()}
	for _, name := range []string{envTable, envBucket, envMachine} {
		_, err := coldStart(all, testAWS, get(name, ""))
		require.EqualError(t, err, name+": want a value, got none")
	}
	_, err := coldStart(all, aws.Config{}, get("", ""))
	require.EqualError(t, err, "AWS_REGION: want a value, got none")
	_, err = coldStart(all, testAWS, get(envMachine, "m"))
	require.ErrorContains(t, err, envMachine+": state machine \"m\": want arn:aws:states")

	models := func(aws.Config, func(string) string) runtime.Model { return nil }
	h, err := coldStart(parts{agents: r, models: models}, testAWS, get("", ""))
	require.NoError(t, err)
	require.NotNil(t, h.Ports.Model)
	require.NotNil(t, h.Ports.Count)
	require.NotNil(t, h.Agents)
	require.Nil(t, h.Ports.Tools, "functions/step runs none")

	built := registry.Must(registry.New())
	code := hook.Set{Builders: map[string]hook.Builder{"b": func(context.Context, hook.BuildInput) (hook.Built, error) { return hook.Built{}, nil }}}
	require.NoError(t, built.Hook(code))
	d, err := agent.Definition{Name: "a", Builder: "b", Model: agent.ModelSpec{Provider: "demo"}}.Resolve()
	require.NoError(t, err)
	require.NoError(t, built.Add(d))
	_, err = coldStart(parts{agents: built, models: models, hooks: code}, testAWS, get("", ""))
	require.NoError(t, err)
	_, err = coldStart(parts{agents: built, models: models}, testAWS, get("", ""))
	require.EqualError(t, err, `agent a: builder: got "b", want a registered context builder: there is none`)

	h, err = coldStart(parts{tools: r.Tools()}, testAWS, get("", ""))
	require.NoError(t, err)
	require.Nil(t, h.Ports.Model, "a function that asks no model links none")
	require.Nil(t, h.Ports.Count)
	require.NotNil(t, h.Ports.Tools)
	require.NotNil(t, h.Ports.Valid)
	require.Nil(t, h.Agents)
	h, err = coldStart(parts{}, testAWS, get("", ""))
	require.NoError(t, err)
	require.Nil(t, h.Ports.Tools, "a function that runs no tool needs none")
}
