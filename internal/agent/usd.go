package agent

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// USD is an amount of US dollars in units of 1e-12: a price of a million tokens with six decimals is a whole number of them for one
// token, so what is spent is added up without rounding. The zero value is nothing. In JSON it is a decimal number. Sums that do not fit
// stand at MaxUSD, which no limit reaches.
type USD int64

// usdUnit is one dollar.
const usdUnit = 1_000_000_000_000

// MaxUSD is the largest amount, about nine million dollars.
const MaxUSD USD = math.MaxInt64

var errUSD = errors.New("want a number of US dollars from 0 to 1000000 with at most 6 decimals")

// ParseUSD reads a price or a limit: a JSON number from 0 to 1000000 with at most six decimals. It never rounds.
func ParseUSD(s string) (USD, error) {
	u, ok := parseUSD(s)
	if !ok || u > 1_000_000*usdUnit || u%(usdUnit/1_000_000) != 0 {
		return 0, errUSD
	}
	return u, nil
}

// parseUSD reads any amount that is a whole number of units.
func parseUSD(s string) (USD, bool) {
	d, ok := parseDecimal(s)
	if !ok || d.sign < 0 {
		return 0, false
	}
	if d.sign == 0 {
		return 0, true
	}
	point, ok := d.point.int64()
	if !ok || point > 7 || point < -12 {
		return 0, false
	}
	zeros := int(point) + 12 - len(d.digits)
	if zeros < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(d.digits+strings.Repeat("0", zeros), 10, 64)
	return USD(n), err == nil
}

// String is the amount as a decimal number, without zeros at its end.
func (u USD) String() string {
	text := strconv.FormatInt(int64(u)/usdUnit, 10)
	if rest := int64(u) % usdUnit; rest != 0 {
		digits := strconv.FormatInt(rest+usdUnit, 10)[1:]
		text += "." + strings.TrimRight(digits, "0")
	}
	return text
}

// MarshalJSON writes a number.
func (u USD) MarshalJSON() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalJSON reads a number that is a whole number of units.
func (u *USD) UnmarshalJSON(data []byte) error {
	v, ok := parseUSD(string(data))
	if !ok {
		return errUSD
	}
	*u = v
	return nil
}

func (u USD) add(v USD) USD {
	if u > MaxUSD-v {
		return MaxUSD
	}
	return u + v
}

// of is the price of so many tokens, where u is that of a million.
func (u USD) of(tokens int64) USD {
	over, n := bits.Mul64(uint64(max(0, u)/1_000_000), uint64(max(0, tokens)))
	if over != 0 || n > math.MaxInt64 {
		return MaxUSD
	}
	return USD(n)
}

// Price is what a model costs, in USD a million tokens.
type Price struct {
	Input      USD  `json:"input"`
	Output     USD  `json:"output"`
	CacheRead  *USD `json:"cacheRead,omitempty"`  // nil = as input
	CacheWrite *USD `json:"cacheWrite,omitempty"` // nil = as input
}

// of is what a reply with that usage costs; nothing where no price is known.
func (p *Price) of(u Usage) USD {
	if p == nil {
		return 0
	}
	return p.Input.of(u.Input).add(p.Output.of(u.Output)).add(orInput(p.CacheRead, p.Input).of(u.CacheRead)).
		add(orInput(p.CacheWrite, p.Input).of(u.CacheWrite))
}

func orInput(price *USD, input USD) USD {
	if price == nil {
		return input
	}
	return *price
}
