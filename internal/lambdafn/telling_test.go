package lambdafn

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

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
			watch, err := newObserver(func(name string) string { return env[name] }, &metered, &logged)
			require.NoError(t, err)
			require.Nil(t, watch.Trace)
			watch.flush(t.Context())
			require.Contains(t, logged.String(), "goes on without OpenTelemetry: "+variable)
			require.NotContains(t, logged.String(), "s3cret")
			require.Contains(t, metered.String(), `"Misconfigured":1`)
		})
	}
}

// What there was no room for is counted beside the errors of a function, and the alarms on those leave it out: a busy
// model does not roll a deployment back.
func TestAlarmsLeaveOutWhatWasThrottled(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"a busy model":            {classify(runtime.ErrModelBusy), true},
		"a throttled table":       {classify(store.ErrThrottled), true},
		"a tenant's limit":        {classify(runtime.ErrTooManyRuns), true},
		"a bug":                   {classify(store.ErrDamaged), false},
		"what cannot be reached":  {classify(errors.New("reset")), false},
		"an invocation that went": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			var metered, logged bytes.Buffer
			watch := must(newObserver(deployedEnv().get, &metered, &logged))
			_, ended := watch.Invoked(t.Context(), "step")
			ended(c.err)
			require.Equal(t, c.want, strings.Contains(metered.String(), `"Throttled":1`), metered.String())
			require.Equal(t, c.want, strings.Contains(metered.String(), `"Function":"step"`), metered.String())
		})
	}
}

// Functions/http goes on without a sign-in whose environment is not whole; with no client there is none.
func TestTheSignInOfAnEnvironment(t *testing.T) {
	env := deployedEnv().with(EnvOIDCIssuer, "https://id.example.com", envOIDCClient, "console", EnvOIDCSecret, "console/secret",
		EnvLinkKeyRing, testRing, envWebURL, "https://approvals.example.com")
	of := func(getenv func(string) string) (*web.OIDC, error) {
		f := &function{getenv: getenv, cfg: testAWS, vault: literal{}, Deployment: &Deployment{Ports: runtime.Ports{Clock: clock.System()}}}
		return signIn(f, nil, Identity{})
	}
	o := must(of(env.get))
	require.Equal(t, []string{"https://id.example.com", "console", "https://approvals.example.com"},
		[]string{o.Issuer, o.ClientID, o.Base})
	secret := must(o.Secret(t.Context()))
	require.Equal(t, "console/secret", secret, "what the literal vault has under that name")
	for _, name := range []string{EnvOIDCIssuer, EnvLinkKeyRing, envWebURL} {
		_, err := of(env.with(name, "").get)
		require.EqualError(t, err, name+": want a value, got none")
	}
	o = must(of(env.with(envOIDCClient, "").get))
	require.Nil(t, o)
}

// A function that people need goes on without a channel or links that are misconfigured, says so in its log and as a
// metric, and names no secret.
func TestAMisconfiguredChannelIsLeftOut(t *testing.T) {
	env := deployedEnv().with(
		EnvSlackToken, "xoxb-1-2-abcdefghij", EnvMailFrom, "approvals@example.com", EnvLinkKeyRing, testRing, envWebURL, "https://approvals.example.com")
	for variable, c := range map[string]struct {
		bad      string
		channels int
	}{
		"": {"", 2}, EnvSlackToken: {"xoxp-s3cret", 2}, EnvSlackURL: {"https://s3cret@slack", 1}, EnvMailFrom: {"somebody", 1},
		EnvLinkKeyRing: {`{"id":"1","key":"s3cret"}`, 2},
	} {
		t.Run(variable, func(t *testing.T) {
			var metered, logged bytes.Buffer
			getenv := env.with(variable, c.bad).get
			watch := must(newObserver(getenv, &metered, &logged))
			f := channelsOf(t, env.with(variable, c.bad))
			f.watch = watch
			require.NoError(t, addNotifier(f))
			watch.flush(t.Context())
			n := f.Ports.Notify.(*people.Notifier)
			require.Len(t, n.Channels, c.channels)
			require.NotNil(t, n.Show)
			_, ringErr := n.Links.(*approval.Links).Ring()
			require.Equal(t, variable == EnvLinkKeyRing, ringErr != nil)
			if variable == EnvSlackToken { // it is read when it is needed
				require.Error(t, errOf(n.Channels[0].Send(t.Context(), people.Message{To: people.Person{Slack: "U1"}})))
			}
			watch.flush(t.Context())
			n.Warn("tell somebody of approval a1 by email", errors.New("s3cret"))
			require.Contains(t, logged.String(), "could not tell somebody of approval a1 by email")
			if variable != "" {
				require.Contains(t, logged.String(), "goes on without")
				require.Contains(t, logged.String(), variable)
				require.Contains(t, metered.String(), `"Misconfigured":`)
			}
			require.NotContains(t, logged.String(), "s3cret")
		})
	}
}

// meter counts by name and dimensions.
type meter map[string]int64

func (m meter) Count(name string, n int64, dims ...string) {
	m[strings.Join(append([]string{name}, dims...), " ")] += n
}

func (m meter) Seconds(string, time.Duration, ...string) {}

// Every kind of repair is counted under its own name, in the log, in the sum that an alarm watches, and is one that the API documents; and
// nothing else is.
func TestEveryRepairIsCountedAndAlarmed(t *testing.T) {
	m, found := meter{}, map[runtime.Repair]int64{}
	want := meter{observe.RunsRepaired: 0}
	for i, kind := range runtime.Repairs() {
		found[kind] = int64(i + 1)
		want[observe.RunsRepaired+" Repair "+string(kind)] = int64(i + 1)
		want[observe.RunsRepaired] += int64(i + 1)
	}
	(&sweeping{metrics: m, log: slog.New(slog.NewTextHandler(io.Discard, nil))}).countRepaired(found)
	require.Equal(t, want, m)

	template := must(os.ReadFile("../../template.yaml"))
	for _, name := range observe.AlarmMetrics() {
		require.Contains(t, string(template), "MetricName: "+name+"\n")
	}
	require.Contains(t, observe.AlarmMetrics(), observe.RunsRepaired)

	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Enum []runtime.Repair }
			}
		}
	}
	text := must(os.ReadFile("../../docs/openapi.yaml"))
	require.NoError(t, yaml.Unmarshal(text, &doc))
	require.ElementsMatch(t, slices.Collect(maps.Keys(found)), doc.Components.Schemas["Repaired"].Properties["kind"].Enum)
}
