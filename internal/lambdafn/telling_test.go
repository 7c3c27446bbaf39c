package lambdafn

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/runtime"
)

// Every function that tells people is wired for it at cold start: by both channels, with links, the directory and what is shown. What is wrong with any
// of it is left out: the function starts, says so and names the variable without what is secret in it. Pages need keys and the directory.
func TestColdStartTellsPeople(t *testing.T) {
	env := map[string]string{
		envTable: "runs", envBucket: "blobs", envMachine: "arn:aws:states:eu:1:stateMachine:m",
		envSlackToken: "xoxb-1-2-abcdefghij", envSlackSecret: "0123456789abcdef0123456789abcdef", envMailFrom: "approvals@example.com",
		envKeyRing: `{"id":"1","key":"0123456789abcdef0123456789abcdef"}`, envWebURL: "https://approvals.example.com",
		"COUNTERSIGN_DIRECTORY": `{"tenants": {"acme": {"user:ana": {"groups": ["group:operators"], "email": "ana@example.com", "slack": "U012ABCDEF"}}}, "slack": {"T012ABCDEF": "acme"}}`,
	}
	known := registry.Must(registry.New())
	var behind *Deployment
	starts := map[string]func(getenv func(string) string) (any, error){
		"approve": func(getenv func(string) string) (any, error) {
			h, err := coldStart(known, testAWS, getenv)
			if err != nil {
				return nil, err
			}
			return h.Ports.Notify, nil
		},
		"api": func(getenv func(string) string) (any, error) {
			_, err := startAPI(known, testAWS, getenv)
			return nil, err
		},
		"sweep": func(getenv func(string) string) (any, error) { _, err := startSweep(testAWS, getenv); return nil, err },
		"web": func(getenv func(string) string) (any, error) {
			watch, err := observe(getenv, io.Discard, io.Discard)
			require.NoError(t, err)
			b, err := pagesOf(known, testAWS, getenv, watch)
			if err != nil {
				return nil, err
			}
			behind = b
			return b.Ports.Notify, nil
		},
	}
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			tells, err := start(func(name string) string { return env[name] })
			require.NoError(t, err)
			if tells != nil {
				n := tells.(*notify.Notifier)
				require.Len(t, n.Channels, 2)
				require.NotNil(t, n.Directory)
				require.NotNil(t, n.Links)
				require.NotNil(t, n.Show)
				require.NotNil(t, n.Recorder)
			}
			for variable, bad := range map[string]string{
				envSlackToken: "xoxp-s3cret", envMailFrom: "somebody", "COUNTERSIGN_DIRECTORY": `{"s3cret`, envKeyRing: `{"id":"1","key":"s3cret"}`,
			} {
				_, err := start(func(name string) string {
					if name == variable {
						return bad
					}
					return env[name]
				})
				if name == "web" && variable == envDirectory || variable == envKeyRing && (name == "web" || name == "api") {
					require.ErrorContains(t, err, variable)
					require.NotContains(t, err.Error(), "s3cret")
					continue
				}
				require.NoError(t, err, variable)
			}
		})
	}
	require.NotNil(t, behind.Desk.Woken)
	require.NotNil(t, behind.Desk.Said)
	require.NotNil(t, behind.Decides)
	require.NotNil(t, behind.Recorder)
}

// A function goes on without OpenTelemetry if that is misconfigured, says so in its log and as a metric, and names no
// secret.
func TestMisconfiguredTelemetryIsLeftOut(t *testing.T) {
	for variable, bad := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "s3cret:4318", "OTEL_TRACES_EXPORTER": "console", "OPENINFERENCE_HIDE_OUTPUTS": "no way",
	} {
		t.Run(variable, func(t *testing.T) {
			env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
			env[variable] = bad
			var metered, logged bytes.Buffer
			watch, err := observe(func(name string) string { return env[name] }, &metered, &logged)
			require.NoError(t, err)
			require.Nil(t, watch.Trace)
			watch.flush(t.Context())
			require.Contains(t, logged.String(), "goes on without OpenTelemetry: "+variable)
			require.NotContains(t, logged.String(), "s3cret")
			require.Contains(t, metered.String(), `"Misconfigured":1`)
		})
	}
}

// A function that people need goes on without a channel that is misconfigured, says so in its log and as a metric, and names no secret.
func TestAMisconfiguredChannelIsLeftOut(t *testing.T) {
	env := map[string]string{
		envSlackToken: "xoxb-1-2-abcdefghij", envMailFrom: "approvals@example.com",
		envKeyRing: `{"id":"1","key":"0123456789abcdef0123456789abcdef"}`,
	}
	for variable, c := range map[string]struct {
		bad      string
		channels int
	}{
		envSlackToken: {"xoxp-s3cret", 1}, envSlackURL: {"https://s3cret@slack", 1}, envMailFrom: {"somebody", 1}, envDirectory: {`{"s3cret`, 2}, envKeyRing: {`{"id":"1","key":"s3cret"}`, 2},
	} {
		t.Run(variable, func(t *testing.T) {
			var metered, logged bytes.Buffer
			getenv := func(name string) string {
				if name == variable {
					return c.bad
				}
				return env[name]
			}
			watch, err := observe(getenv, &metered, &logged)
			require.NoError(t, err)
			ports := runtime.Ports{Clock: clock.System()}
			telling(testAWS, getenv, watch, &ports)
			watch.flush(t.Context())
			require.Len(t, ports.Notify.(*notify.Notifier).Channels, c.channels)
			require.Contains(t, logged.String(), variable)
			require.Contains(t, logged.String(), "goes on without")
			require.NotContains(t, logged.String(), "s3cret")
			require.Contains(t, metered.String(), `"Misconfigured":1`)
		})
	}
}
