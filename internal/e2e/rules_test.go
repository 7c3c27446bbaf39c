package e2e

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/standins"
)

// What the template's parameters are by default.
const (
	eventSource = "countersign-dev" // the stack's name
	eventTenant = "default"
)

// eventRules are the event rules of template.yaml, with its parameters' defaults, aimed at what stands for their
// targets here.
func (d *deployment) eventRules() []standins.Rule {
	d.t.Helper()
	all, err := d.project.EventRules(d.values)
	require.NoError(d.t, err)
	var out []standins.Rule
	for _, r := range all {
		rule := standins.Rule{Name: r.ID, Pattern: r.Pattern, Input: r.Input}
		switch r.Target {
		case "AgentStateMachine":
			rule.Target = func(ctx context.Context, id string, input []byte) error {
				_, err := d.engine.Start(ctx, id, input)
				return err
			}
		case "${SweepFunction.Arn}:live":
			rule.Target = func(_ context.Context, _ string, input []byte) error {
				_, err := d.functions["sweep"].Invoke(context.Background(), input)
				return err
			}
		case "${HttpFunction.Arn}:live":
			rule.Target = func(_ context.Context, _ string, input []byte) error {
				_, err := d.functions["http"].Invoke(context.Background(), input)
				return err
			}
		default:
			require.Fail(d.t, "a rule with an unknown target", r.Target)
		}
		out = append(out, rule)
	}
	require.NotEmpty(d.t, out)
	return out
}
