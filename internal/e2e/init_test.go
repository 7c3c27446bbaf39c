package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/repotest"
	"github.com/countersign/countersign/internal/standins"
)

// Every function starts from Lambda's environment alone, and asks nobody anything before its first event. `make bench`
// says how long that takes.
func TestColdStart(t *testing.T) {
	p, err := project()
	require.NoError(t, err)
	values := p.Deployed(repotest.Values{"LocalEndpoint": "http://127.0.0.1:1"})
	for _, name := range functions {
		f := standins.StartLambda(standins.LambdaConfig{
			Name: name, Bootstrap: bootstrap(t, name), Timeout: time.Minute, Clock: clock.System(),
			Env: environment(t, p, name, values, t.TempDir()),
		})
		_, err := f.ColdStart(t.Context())
		require.NoError(t, err, name)
		require.NoError(t, f.Close())
	}
}
