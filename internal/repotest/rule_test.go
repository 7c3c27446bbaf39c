package repotest

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/standins"
)

// rule is an EventBridge rule of the template with the parameters' defaults.
type rule struct {
	t *testing.T
	EventRule
}

func newRule(t *testing.T, id string) rule {
	t.Helper()
	p := project(t, nil)
	all, err := p.EventRules(p.Deployed(Values{"AlarmPrefix": "incident-"}))
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(r EventRule) bool { return r.ID == id })
	require.GreaterOrEqual(t, i, 0, id)
	return rule{t, all[i]}
}

func (r rule) matches(event map[string]any) bool {
	r.t.Helper()
	b, err := json.Marshal(event)
	require.NoError(r.t, err)
	ok, err := standins.Matches(r.Pattern, b)
	require.NoError(r.t, err)
	return ok
}

// transform is the target's input. A path that leads nowhere fails the test: what EventBridge makes of one is not said
// clearly anywhere.
func (r rule) transform(event map[string]any) string {
	r.t.Helper()
	b, err := json.Marshal(event)
	require.NoError(r.t, err)
	input, err := r.Input.Apply(b)
	require.NoError(r.t, err)
	return string(input)
}
