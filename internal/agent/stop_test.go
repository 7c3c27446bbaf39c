package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// policies is a definition with those stop policies and the tools of the tests.
func policies(s Stop) Definition {
	return Definition{Stop: s, Batch: BatchAll, Limits: Limits{Interactions: 99}, Tools: []ToolSpec{{Name: "ledger.read"}, {Name: "pay"}}}
}

func TestTokensAndDollarsAreLimits(t *testing.T) {
	const dollar = 1_000_000_000_000
	price := &Price{Input: 100_000 * dollar, Output: 200_000 * dollar}
	reply := func(u Usage) Reply { return Reply{Calls: ask("pay"), Usage: u} }
	for _, tt := range []struct {
		name   string
		limits Limits
		used   Usage
		want   ErrorCode
	}{
		{"no limit", Limits{}, Usage{Input: 1e9}, ""},
		{"a token is left", Limits{Tokens: 10}, Usage{Input: 4, CacheRead: 5}, ""},
		{"no token is left", Limits{Tokens: 10}, Usage{Input: 4, CacheRead: 5, Output: 1}, CodeTokensExhausted},
		{"money is left", Limits{USD: 300_000_000_001}, Usage{Input: 1, Output: 1}, ""},
		{"to the last unit", Limits{USD: 300_000_000_000}, Usage{Input: 1, Output: 1}, CodeUSDExhausted},
		{"tokens before money", Limits{Tokens: 1, USD: 1}, Usage{Input: 1}, CodeTokensExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, on := range []OnLimit{OnLimitError, OnLimitStop, OnLimitSummarise} {
				d := policies(Stop{})
				tt.limits.OnLimit, tt.limits.Grace = on, 2
				d.Limits, d.Model.Price = tt.limits, price
				s := started(t)
				s = commit(t, s, "w1", PlanReply(&d, &s, reply(tt.used), 1, ""), CallFinished{Call: "a", Content: "x"})
				requireLimitAction(t, Next(&d, &s), on, tt.want)
			}
		})
	}
}

func requireLimitAction(t *testing.T, a Action, on OnLimit, code ErrorCode) {
	t.Helper()
	switch {
	case code == "":
		require.Equal(t, Action{Kind: ActInfer, Lifecycle: LifecycleToolResult}, a)
	case on == OnLimitSummarise:
		require.Equal(t, Action{Kind: ActInfer, Lifecycle: LifecycleSummary, Exhausted: true}, a)
	case on == OnLimitStop:
		require.Equal(t, Stopped(string(code)), a.End.Reason)
	default:
		require.Equal(t, code, a.End.Error.Code)
	}
}
