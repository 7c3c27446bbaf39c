package awssdk_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/tool"
)

// manager answers as AWS Secrets Manager does. Each vaultAnswer is taken once, the last one for ever.
type manager struct {
	mu      sync.Mutex
	answers []vaultAnswer
	asked   []*http.Request
	names   []string
}

type vaultAnswer struct {
	status int
	body   string
}

func (m *manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var in struct {
		SecretID string `json:"SecretId"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in) // an empty name fails the test
	a := m.answers[min(len(m.asked), len(m.answers)-1)]
	m.asked, m.names = append(m.asked, r), append(m.names, in.SecretID)
	w.WriteHeader(a.status)
	_, _ = w.Write([]byte(a.body))
}

func (m *manager) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w.Result(), nil
}

func vaultConfig(client aws.HTTPClient, url string) aws.Config {
	return aws.Config{
		Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", "SESSION"),
		HTTPClient: client, BaseEndpoint: &url,
	}
}

func TestVault(t *testing.T) {
	m := &manager{answers: []vaultAnswer{{200, `{"ARN":"arn","Name":"n","SecretString":"value-1"}`}}}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	v := awssdk.NewVault(vaultConfig(nil, srv.URL), "countersign/", clock.System())
	text, err := v.Secret(t.Context(), "acme", "stripe.key")
	require.NoError(t, err)
	require.Equal(t, "value-1", text)
	require.Equal(t, []string{"countersign/acme/stripe.key"}, m.names)
	r := m.asked[0]
	require.Equal(t, "secretsmanager.GetSecretValue", r.Header.Get("X-Amz-Target"))
	require.Contains(t, r.Header.Get("Authorization"), "/eu-central-1/secretsmanager/aws4_request")
	require.Equal(t, "SESSION", r.Header.Get("X-Amz-Security-Token"))

	for _, c := range [][2]string{{"acme", "../globex/KEY"}, {"acme", "a/b"}, {"acme/x", "KEY"}, {"", "KEY"}, {"acme", ""}} {
		_, err := v.Secret(t.Context(), c[0], c[1])
		require.ErrorIs(t, err, tool.ErrNoSecret, "%v", c)
	}
	require.Len(t, m.asked, 1, "what is no name is not asked for")
}

// A value is kept five minutes, for its tenant alone; what is not there is asked for again.
func TestVaultKeepsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &manager{answers: []vaultAnswer{
			{400, `{"__type":"ResourceNotFoundException","Message":"m"}`}, {200, `{"SecretString":"value-1"}`}, {200, `{"SecretString":"globex's"}`},
			{200, `{"SecretString":"value-2"}`},
		}}
		v := awssdk.NewVault(vaultConfig(m, "https://sm"), "p/", clock.System())
		_, err := v.Secret(t.Context(), "acme", "KEY")
		require.ErrorIs(t, err, tool.ErrNoSecret)
		for _, c := range []struct {
			after        time.Duration
			tenant, want string
			asked        int
		}{
			{0, "acme", "value-1", 2},
			{time.Minute, "globex", "globex's", 3},
			{4*time.Minute - 1, "acme", "value-1", 3},
			{1, "acme", "value-2", 4},
		} {
			time.Sleep(c.after)
			text, err := v.Secret(t.Context(), c.tenant, "KEY")
			require.NoError(t, err)
			require.Equal(t, c.want, text)
			require.Len(t, m.asked, c.asked)
		}
	})
}

func TestVaultFails(t *testing.T) {
	for name, c := range map[string]struct {
		answers []vaultAnswer
		asked   int
		err     string // "" = none
		missing bool
	}{
		"throttled once":  {answers: []vaultAnswer{{400, `{"__type":"ThrottlingException"}`}, {200, `{"SecretString":"value-1"}`}}, asked: 2},
		"failed once":     {answers: []vaultAnswer{{500, `{"__type":"x#InternalServiceError"}`}, {200, `{"SecretString":"value-1"}`}}, asked: 2},
		"failing":         {answers: []vaultAnswer{{503, `canary`}}, asked: 4, err: "refused with status 503"},
		"forbidden":       {answers: []vaultAnswer{{400, `{"__type":"AccessDeniedException","Message":"canary"}`}}, asked: 1, err: "AccessDeniedException"},
		"not there":       {answers: []vaultAnswer{{400, `{"__type":"ResourceNotFoundException"}`}}, asked: 1, err: "no such secret", missing: true},
		"being deleted":   {answers: []vaultAnswer{{400, `{"__type":"InvalidRequestException"}`}}, asked: 1, err: "no such secret", missing: true},
		"binary":          {answers: []vaultAnswer{{200, `{"SecretBinary":"Y2FuYXJ5"}`}}, asked: 1, err: "binary"},
		"nothing in it":   {answers: []vaultAnswer{{200, `{}`}}, asked: 1, err: "no value"},
		"no JSON":         {answers: []vaultAnswer{{200, `canary`}}, asked: 1, err: "cannot be read"},
		"a redirect":      {answers: []vaultAnswer{{307, ``}}, asked: 1, err: "status 307"},
		"a very long one": {answers: []vaultAnswer{{400, `{"__type":"` + strings.Repeat("x", 5000) + `"}`}}, asked: 1, err: "refused with status 400"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &manager{answers: c.answers}
				v := awssdk.NewVault(vaultConfig(m, "https://sm"), "p/", clock.System())
				text, err := v.Secret(t.Context(), "acme", "KEY")
				require.Len(t, m.asked, c.asked)
				if c.err == "" {
					require.NoError(t, err)
					require.Equal(t, "value-1", text)
					return
				}
				require.ErrorContains(t, err, c.err)
				require.ErrorContains(t, err, "p/acme/KEY")
				require.NotContains(t, err.Error(), "canary")
				require.Less(t, len(err.Error()), 300)
				if c.missing {
					require.ErrorIs(t, err, tool.ErrNoSecret)
				} else {
					require.NotErrorIs(t, err, tool.ErrNoSecret)
				}
			})
		})
	}
}
