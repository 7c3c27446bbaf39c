package e2e

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/awsfake"
	"github.com/countersign/countersign/internal/samtest"
)

// What the template's parameters are by default.
const (
	eventSource = "countersign.requests"
	eventTenant = "default"
)

// rules are the event rules of template.yaml, with its parameters' defaults, aimed at what stands for their targets here.
func (d *deployment) rules() []awsfake.Rule {
	d.t.Helper()
	p, err := samtest.Read("../..", nil)
	require.NoError(d.t, err)
	values := map[string]string{"AgentStateMachine": machine}
	for _, e := range p.Template.Get("Parameters").Entries {
		values[e.Key] = e.Value.Get("Default").String()
	}
	var out []awsfake.Rule
	for _, r := range p.Resources("AWS::Events::Rule") {
		target := p.Property(r, "Targets").Each()[0]
		rule := awsfake.Rule{Name: r.ID, Pattern: resolved(d, p.Property(r, "EventPattern"), values)}
		if t := target.Get("InputTransformer"); t != nil {
			rule.Input = &awsfake.InputTransformer{Paths: map[string]string{}, Template: substituted(t.Get("InputTemplate").Short(), values)}
			for _, e := range t.Get("InputPathsMap").Entries {
				rule.Input.Paths[e.Key] = e.Value.String()
			}
		}
		switch arn := target.Get("Arn").Short(); arn {
		case "AgentStateMachine":
			rule.Target = func(ctx context.Context, id string, input []byte) error {
				_, err := d.engine.Start(ctx, id, input)
				return err
			}
		case "SweepFunction.Arn":
			rule.Target = func(_ context.Context, _ string, input []byte) error {
				_, err := d.functions["sweep"].Invoke(context.Background(), input)
				return err
			}
		case "HttpFunction.Arn":
			rule.Target = func(_ context.Context, _ string, input []byte) error {
				_, err := d.functions["http"].Invoke(context.Background(), input)
				return err
			}
		default:
			require.Fail(d.t, "a rule with an unknown target", arn)
		}
		out = append(out, rule)
	}
	require.NotEmpty(d.t, out)
	return out
}

func substituted(text string, values map[string]string) string {
	for name, v := range values {
		text = strings.ReplaceAll(text, "${"+name+"}", v)
	}
	return text
}

// resolved is a part of the template as JSON, with parameters in the place of references.
func resolved(d *deployment, n *samtest.Node, values map[string]string) json.RawMessage {
	d.t.Helper()
	var plain func(n *samtest.Node) any
	plain = func(n *samtest.Node) any {
		if name, arg := n.Call(); name == "Ref" {
			v, ok := values[arg.String()]
			require.True(d.t, ok, "the pattern refers to %s", arg.String())
			return v
		}
		switch n.Kind {
		case samtest.Map:
			m := map[string]any{}
			for _, e := range n.Entries {
				m[e.Key] = plain(e.Value)
			}
			return m
		case samtest.List:
			all := []any{}
			for _, i := range n.Items {
				all = append(all, plain(i))
			}
			return all
		default:
			if n.Text == "true" || n.Text == "false" {
				return n.Text == "true"
			}
			return n.Text
		}
	}
	raw, err := json.Marshal(plain(n))
	require.NoError(d.t, err)
	return raw
}
