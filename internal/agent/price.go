package agent

import (
	"cmp"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// ParseUSD reads a price or a limit: a JSON number from 0 to 1000000 with at most six decimals. It never rounds.
func ParseUSD(s string) (run.USD, error) {
	u, ok := jsonx.ParseUSD(s)
	if !ok || u > 1_000_000*jsonx.UsdUnit || u%(jsonx.UsdUnit/1_000_000) != 0 {
		return 0, jsonx.ErrUSD
	}
	return u, nil
}

// Price is what a model costs, in USD a million tokens.
type Price struct {
	Input      run.USD  `json:"input"`
	Output     run.USD  `json:"output"`
	CacheRead  *run.USD `json:"cacheRead,omitempty"`  // nil = as input
	CacheWrite *run.USD `json:"cacheWrite,omitempty"` // nil = as input
}

// Of is what a reply with that usage costs; nothing where no price is known.
func (p *Price) Of(u run.Usage) run.USD {
	if p == nil {
		return 0
	}
	read, write := cmp.Or(p.CacheRead, &p.Input), cmp.Or(p.CacheWrite, &p.Input)
	return p.Input.Of(u.Input).Add(p.Output.Of(u.Output)).Add(read.Of(u.CacheRead)).Add(write.Of(u.CacheWrite))
}
