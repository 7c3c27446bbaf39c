package s3_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store/s3"
)

func TestTenants(t *testing.T) {
	b, _ := open(t)
	none, err := b.Tenants(t.Context())
	require.NoError(t, err)
	require.Empty(t, none)
	for _, tenant := range []string{"globex", "acme", "acme-2", "default"} {
		require.NoError(t, b.Put(t.Context(), tenant, digest, data))
	}
	require.NoError(t, b.Put(t.Context(), "acme", otherDigest, otherData))
	got, err := b.Tenants(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"acme", "acme-2", "default", "globex"}, got)
}

// All pages are read, what is no tenant's name is left out, and a request that fails is the whole list's failure.
func TestTenantsInPages(t *testing.T) {
	status := http.StatusOK
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		require.Equal(t, []string{"2", "T/", "/"}, []string{q.Get("list-type"), q.Get("prefix"), q.Get("delimiter")})
		token := q.Get("continuation-token")
		asked = append(asked, token)
		if token == "p2" {
			w.WriteHeader(status)
			fmt.Fprint(w, page("", "a/", "Not a tenant/"))
			return
		}
		fmt.Fprint(w, page("p2", "c/", "b/"))
	}))
	t.Cleanup(srv.Close)
	b := s3.New(config(nil, srv.URL), "blobs")
	got, err := b.Tenants(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, got)
	require.Equal(t, []string{"", "p2"}, asked)
	status = http.StatusForbidden
	require.ErrorContains(t, errOf(b.Tenants(t.Context())), "list tenants")
}

func page(next string, prefixes ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<ListBucketResult><IsTruncated>%t</IsTruncated><NextContinuationToken>%s</NextContinuationToken>`, next != "", next)
	for _, p := range prefixes {
		fmt.Fprintf(&b, `<CommonPrefixes><Prefix>T/%s</Prefix></CommonPrefixes>`, p)
	}
	return b.String() + `</ListBucketResult>`
}
