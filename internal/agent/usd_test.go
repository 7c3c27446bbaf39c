package agent_test

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

func TestParseUSD(t *testing.T) {
	for text, want := range map[string]run.USD{
		"0": 0, "0.0": 0, "1": jsonx.UsdUnit, "0.25": 25e10, "3.000001": 3_000001e6, "1e-6": 1e6, "15e0": 15e12, "1000000": 1e18, "0.30": 3e11,
	} {
		got, err := agent.ParseUSD(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "-1", "x", "0.0000001", "1000000.000001", "1e7", "1e999999999", "1e-999999999", ".5", "01", "NaN", "\"1\""} {
		_, err := agent.ParseUSD(text)
		require.Error(t, err, text)
	}
}

// An amount is the same after it was written and read, and written as the number it is.
func TestUSDInJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := run.USD(rapid.Int64Range(0, math.MaxInt64).Draw(t, "amount"))
		text, err := json.Marshal(u)
		require.NoError(t, err)
		exact, ok := new(big.Rat).SetString(string(text))
		require.True(t, ok)
		require.Zero(t, exact.Cmp(big.NewRat(int64(u), jsonx.UsdUnit)), string(text))
		var back run.USD
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, u, back)
	})
	var u run.USD
	for _, text := range []string{`"1"`, `-1`, `1e-13`, `1e19`, `{}`} {
		require.Error(t, json.Unmarshal([]byte(text), &u), text)
	}
}

// A reply costs what exact arithmetic says, or the most there is.
func TestPriceIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		price := func(name string) run.USD { return 1_000_000 * run.USD(rapid.Int64Range(0, 1e12).Draw(t, name)) }
		tokens := func(name string) int64 { return rapid.Int64Range(0, math.MaxInt64).Draw(t, name) }
		read, write := price("read price"), price("write price")
		p := agent.Price{Input: price("input price"), Output: price("output price"), CacheRead: &read, CacheWrite: &write}
		if rapid.Bool().Draw(t, "no cache price") {
			p.CacheRead, p.CacheWrite, read, write = nil, nil, p.Input, p.Input
		}
		u := run.Usage{Input: tokens("input"), Output: tokens("output"), CacheRead: tokens("read"), CacheWrite: tokens("write")}
		want := new(big.Int)
		for _, part := range [][2]int64{{int64(p.Input), u.Input}, {int64(p.Output), u.Output}, {int64(read), u.CacheRead}, {int64(write), u.CacheWrite}} {
			want.Add(want, new(big.Int).Mul(big.NewInt(part[0]/1_000_000), big.NewInt(part[1])))
		}
		if want.Cmp(big.NewInt(math.MaxInt64)) > 0 {
			want = big.NewInt(math.MaxInt64)
		}
		require.Equal(t, want.Int64(), int64(p.Of(u)))
	})
	require.Zero(t, (*agent.Price)(nil).Of(run.Usage{Input: 1}))
	require.Zero(t, (&agent.Price{Input: jsonx.MaxUSD}).Of(run.Usage{Input: -1}), "nobody is paid for asking")
}

// Whoever takes the unit of an amount in Go for a dollar is told what the amount is.
func TestAmountsInUnits(t *testing.T) {
	d, err := agent.Definition{Name: "a", System: "s", Model: agent.ModelSpec{Provider: "demo"}, Limits: agent.Limits{USD: 5}}.Resolve()
	require.NoError(t, err)
	require.ErrorContains(t, d.Check(), "limits.usd: got 0.000000000005, want a number of US dollars")
}
