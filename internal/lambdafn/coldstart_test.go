package lambdafn

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/registry"
)

// functions/api and functions/sweep are wired at cold start, with all they need; bad configuration ends them there and names the variable.
func TestColdStartOfEventFunctions(t *testing.T) {
	good := map[string]string{
		envTable: "runs", envBucket: "blobs", envMachine: "arn:aws:states:eu:1:stateMachine:m",
	}
	r := registry.Must(registry.New())
	api := func(cfg aws.Config, getenv func(string) string) (Invoke, error) { return startAPI(r, cfg, getenv) }
	for name, start := range map[string]func(aws.Config, func(string) string) (Invoke, error){"api": api, "sweep": startSweep} {
		t.Run(name, func(t *testing.T) {
			f, err := start(testAWS, func(name string) string { return good[name] })
			require.NoError(t, err)
			require.NotNil(t, f)
			_, err = f(t.Context(), []byte(`{}`))
			require.ErrorContains(t, err, "read the event")
			for missing := range good {
				_, err := start(testAWS, func(name string) string {
					if name == missing {
						return ""
					}
					return good[name]
				})
				require.EqualError(t, err, missing+": want a value, got none")
			}
		})
	}
	_, err := startAPI(r, testAWS, func(name string) string {
		if name == envIAMTenant {
			return "My Company"
		}
		return good[name]
	})
	require.ErrorContains(t, err, `COUNTERSIGN_IAM_TENANT: got "My Company", want a tenant`)
}

// Claims are named by the environment.
func TestClaimsAreNamedByTheEnvironment(t *testing.T) {
	env := map[string]string{
		envTable: "runs", envBucket: "blobs", envMachine: "arn:aws:states:eu:1:stateMachine:m",
		envTenantClaim: "custom:tenant", envUserClaim: "email", envGroupsClaim: "cognito:groups",
	}
	f, err := startAPI(registry.Must(registry.New()), testAWS, func(name string) string { return env[name] })
	require.NoError(t, err)
	const event = `{"version":"2.0","rawPath":"/v1/runs","rawQueryString":"x=1","requestContext":{"http":{"method":"GET"},"authorizer":{"jwt":{"claims":`
	out, err := f(t.Context(), []byte(event+`{"tenant":"acme","sub":"ana"}}}}}`))
	require.NoError(t, err)
	require.Contains(t, string(out), "custom:tenant names no tenant")
	out, err = f(t.Context(), []byte(event+`{"custom:tenant":"acme","sub":"ana"}}}}}`))
	require.NoError(t, err)
	require.Contains(t, string(out), "email names no user")
	out, err = f(t.Context(), []byte(event+`{"custom:tenant":"acme","email":"ana@example.com"}}}}}`))
	require.NoError(t, err)
	require.Contains(t, string(out), `\"x\\\" is not known`, "the caller is known; the query is looked at")
}

// Callers by IAM are those of the account that the state machine is in.
func TestIAMCallersAreOfTheOwnAccount(t *testing.T) {
	env := map[string]string{
		envTable: "runs", envBucket: "blobs", envMachine: "arn:aws:states:eu:123456789012:stateMachine:m",
		envIAMTenant: "ops",
	}
	f, err := startAPI(registry.Must(registry.New()), testAWS, func(name string) string { return env[name] })
	require.NoError(t, err)
	for account, want := range map[string]string{"123456789012": `\"x\\\" is not known`, "210987654321": "own account"} {
		out, err := f(t.Context(), []byte(`{"version":"2.0","rawPath":"/v1/runs","rawQueryString":"x=1","requestContext":{"http":{"method":"GET"},
			"authorizer":{"iam":{"userArn":"arn:aws:sts::`+account+`:assumed-role/operators/ana"}}}}`))
		require.NoError(t, err)
		require.Contains(t, string(out), want, account)
	}
}

// functions/web is wired at cold start; bad configuration ends it there, names the variable and holds nothing of it.
func TestColdStartOfPages(t *testing.T) {
	good := map[string]string{
		envTable: "runs", envBucket: "blobs", envMachine: "arn:aws:states:eu:1:stateMachine:m",
		envKeyRing: `{"id":"1","key":"0123456789abcdef0123456789abcdef"}`,
	}
	start := func(name, value string) error {
		f, err := startWeb(registry.Must(registry.New()), testAWS, func(n string) string {
			if n == name {
				return value
			}
			return good[n]
		})
		if err == nil {
			_, err = f(t.Context(), []byte(`{}`))
			require.ErrorContains(t, err, "read the event")
			return nil
		}
		return err
	}
	require.NoError(t, start("", ""))
	require.ErrorContains(t, start(envSlackSecret, "short"), envSlackSecret)
	require.NoError(t, start(envDirectory, `{"tenants":{"acme":{"user:ana":["group:operators"]}}}`))
	for name, c := range map[string][2]string{
		envTable: {"", "want a value"}, envKeyRing: {"", "want a ring of keys, got none"},
		envDirectory: {`{"tenants":{"acme":{"ana":[]}}}`, "ana"},
	} {
		err := start(name, c[0])
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, c[1])
	}
	require.ErrorContains(t, start(envKeyRing, "s3cret"), envKeyRing)
	require.NotContains(t, start(envKeyRing, "s3cret").Error(), "s3cret")
}
