package cli

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/web/api"
)

// Whoever opens the socket says who acts, and never for which tenant: there is one.
func TestASocketsCallerChoosesNoTenant(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "principals.yaml"), []byte("default: user:ana\npeople:\n  user:ana: [\"group:finance\"]\n"), 0o600))
	known, err := readPrincipals(home)
	require.NoError(t, err)
	who := newCallerFunc(known)
	for _, headers := range [][]string{
		nil, {"Tenant", "acme"}, {"X-Tenant", "acme"}, {"Countersign-Tenant", "acme"}, {"Authorization", "Bearer acme"}, {"Cookie", "tenant=acme"},
	} {
		r := httptest.NewRequest("GET", "http://acme/v1/runs?tenant=acme", nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		got, err := who(r)
		require.NoError(t, err)
		require.Equal(t, api.Caller{Tenant: local.Tenant, Principal: policy.Principal{ID: "user:ana", Groups: []string{"group:finance"}}}, got)
	}
	for as, refused := range map[string]bool{
		"user:eve": false, "user:eve,group:operators": false, "acme": true, "tenant:acme": true, "user:eve@acme#x": true, "default/acme": true, "user:ana,tenant:acme": true,
	} {
		r := httptest.NewRequest("GET", "/v1/runs", nil)
		r.Header.Set(api.AsHeader, as)
		got, err := who(r)
		require.Equal(t, refused, err != nil, as)
		require.Equal(t, local.Tenant, got.Tenant, as)
	}
}
