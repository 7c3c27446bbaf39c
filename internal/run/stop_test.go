package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// policies is a definition with those stop policies and the tools of the tests.
func policies(s agent.Stop) agent.Definition {
	return agent.Definition{Stop: s, Batch: agent.BatchAll, Limits: agent.Limits{Interactions: 99}, Tools: []agent.ToolSpec{{Name: "ledger.read"}, {Name: "pay"}}}
}

func TestTokensAndDollarsAreLimits(t *testing.T) {
	const dollar = 1_000_000_000_000
	price := &agent.Price{Input: 100_000 * dollar, Output: 200_000 * dollar}
	reply := func(u run.Usage) agent.Reply { return agent.Reply{Calls: ask("pay"), Usage: u} }
	for _, tt := range []struct {
		name   string
		limits agent.Limits
		used   run.Usage
		want   run.ErrorCode
	}{
		{"no limit", agent.Limits{}, run.Usage{Input: 1e9}, ""},
		{"a token is left", agent.Limits{Tokens: 10}, run.Usage{Input: 4, CacheRead: 5}, ""},
		{"no token is left", agent.Limits{Tokens: 10}, run.Usage{Input: 4, CacheRead: 5, Output: 1}, run.CodeTokensExhausted},
		{"money is left", agent.Limits{USD: 300_000_000_001}, run.Usage{Input: 1, Output: 1}, ""},
		{"to the last unit", agent.Limits{USD: 300_000_000_000}, run.Usage{Input: 1, Output: 1}, run.CodeUSDExhausted},
		{"tokens before money", agent.Limits{Tokens: 1, USD: 1}, run.Usage{Input: 1}, run.CodeTokensExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, on := range []agent.OnLimit{agent.OnLimitError, agent.OnLimitStop, agent.OnLimitSummarise} {
				d := policies(agent.Stop{})
				tt.limits.OnLimit, tt.limits.Grace = on, 2
				d.Limits, d.Model.Price = tt.limits, price
				s := started(t)
				s = commit(t, s, "w1", policy.PlanReply(&d, &s, reply(tt.used), 1, ""), run.CallFinished{Call: "a", Content: "x"})
				requireLimitAction(t, policy.Next(&d, &s), on, tt.want)
			}
		})
	}
}

func requireLimitAction(t *testing.T, a run.Action, on agent.OnLimit, code run.ErrorCode) {
	t.Helper()
	switch {
	case code == "":
		require.Equal(t, run.Action{Kind: run.ActInfer, Lifecycle: run.LifecycleToolResult}, a)
	case on == agent.OnLimitSummarise:
		require.Equal(t, run.Action{Kind: run.ActInfer, Lifecycle: run.LifecycleSummary, Exhausted: true}, a)
	case on == agent.OnLimitStop:
		require.Equal(t, run.Stopped(string(code)), a.End.Reason)
	default:
		require.Equal(t, code, a.End.Error.Code)
	}
}
