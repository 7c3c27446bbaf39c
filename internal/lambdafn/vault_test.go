package lambdafn_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/tool"
)

func vault(prefix string, answers ...answer) (*lambdafn.Vault, *service) {
	s := &service{answers: answers}
	return lambdafn.NewVault(config(s), prefix, clock.System()), s
}

func value(text string) answer { return says(200, `{"SecretString":"`+text+`"}`) }

func TestVault(t *testing.T) {
	v, m := vault("countersign/", says(200, `{"ARN":"arn","Name":"n","SecretString":"value-1"}`))
	text, err := v.Secret(t.Context(), "acme", "stripe.key")
	require.NoError(t, err)
	require.Equal(t, "value-1", text)
	require.Equal(t, "countersign/acme/stripe.key", m.bodies[0]["SecretId"])
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
		v, m := vault("p/", says(400, `{"__type":"ResourceNotFoundException","Message":"m"}`), value("value-1"),
			value("globex's"), value("value-2"))
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
		answers []answer
		asked   int
		err     string // "" = none
		missing bool
	}{
		"throttled once":  {answers: []answer{says(400, `{"__type":"ThrottlingException"}`), value("value-1")}, asked: 2},
		"failed once":     {answers: []answer{says(500, `{"__type":"x#InternalServiceError"}`), value("value-1")}, asked: 2},
		"failing":         {answers: []answer{says(503, `canary`)}, asked: 4, err: "refused with status 503"},
		"forbidden":       {answers: []answer{says(400, `{"__type":"AccessDeniedException","Message":"canary"}`)}, asked: 1, err: "AccessDeniedException", missing: true},
		"its key is off":  {answers: []answer{says(400, `{"__type":"DecryptionFailure","Message":"canary"}`)}, asked: 1, err: "DecryptionFailure", missing: true},
		"not there":       {answers: []answer{says(400, `{"__type":"ResourceNotFoundException"}`)}, asked: 1, err: "no such secret", missing: true},
		"being deleted":   {answers: []answer{says(400, `{"__type":"InvalidRequestException"}`)}, asked: 1, err: "no such secret", missing: true},
		"binary":          {answers: []answer{says(200, `{"SecretBinary":"Y2FuYXJ5"}`)}, asked: 1, err: "binary", missing: true},
		"nothing in it":   {answers: []answer{says(200, `{}`)}, asked: 1, err: "no value", missing: true},
		"no JSON":         {answers: []answer{says(200, `canary`)}, asked: 1, err: "cannot be read"},
		"a redirect":      {answers: []answer{says(307, ``)}, asked: 1, err: "status 307"},
		"a very long one": {answers: []answer{says(400, `{"__type":"`+strings.Repeat("x", 5000)+`"}`)}, asked: 1, err: "refused with status 400"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, m := vault("p/", c.answers...)
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
