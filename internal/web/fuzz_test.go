package web_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/web"
)

// A message is refused by a problem of its own, or is the same when it is written and read again.
func FuzzReadMessage(f *testing.F) {
	for _, seed := range []string{
		`"x"`, `""`, `null`, `[]`, `[{"type":"text","text":"x"}]`, `[{"type":"media","name":"n","mediaType":"image/png","data":"aGk="}]`,
		`[{"type":"media","mediaType":"image/png","blob":"` + xDigest + `"}]`, `[{"type":"tool_result","id":"c1","content":"x"}]`, `[{"Type":"text","text":"x"}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw, err := jsonx.CompactJSON(raw, jsonx.JSONLimits{}) // as all that comes by the API
		if err != nil {
			return
		}
		said, err := web.ReadMessage("message", raw)
		if err != nil {
			var p *web.Problem
			require.True(t, errors.As(err, &p), "%v", err)
			require.Contains(t, []web.ProblemType{web.InvalidRequest, web.TooLarge}, p.Type)
			return
		}
		again := must(json.Marshal(said))
		back, err := web.ReadMessage("message", again)
		require.NoError(t, err, "%s", again)
		require.Equal(t, said, back)
	})
}
