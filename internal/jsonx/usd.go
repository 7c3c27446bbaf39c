package jsonx

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// USD is an amount of US dollars in units of 1e-12: a price of a million tokens with six decimals is a whole number of
// them for one token, so what is spent is added up without rounding. The zero value is nothing. In JSON it is a decimal
// number. Sums that do not fit stand at MaxUSD, which no limit reaches.
type USD int64

// UsdUnit is one dollar.
const UsdUnit = 1_000_000_000_000

// MaxUSD is the largest amount, about nine million dollars.
const MaxUSD USD = math.MaxInt64

// ErrUSD says which amounts of money are accepted.
var ErrUSD = errors.New("want a number of US dollars from 0 to 1000000 with at most 6 decimals")

// ParseUSD reads any amount that is a whole number of units.
func ParseUSD(s string) (USD, bool) {
	d, ok := ParseDecimal(s)
	if !ok || d.Sign < 0 {
		return 0, false
	}
	if d.Sign == 0 {
		return 0, true
	}
	point, ok := d.Point.Int64()
	if !ok || point > 7 || point < -12 {
		return 0, false
	}
	zeros := int(point) + 12 - len(d.Digits)
	if zeros < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(d.Digits+strings.Repeat("0", zeros), 10, 64)
	return USD(n), err == nil
}

// String is the amount as a decimal number, without zeros at its end.
func (u USD) String() string {
	text := strconv.FormatInt(int64(u)/UsdUnit, 10)
	if rest := int64(u) % UsdUnit; rest != 0 {
		digits := strconv.FormatInt(rest+UsdUnit, 10)[1:]
		text += "." + strings.TrimRight(digits, "0")
	}
	return text
}

// MarshalJSON writes a number.
func (u USD) MarshalJSON() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalJSON reads a number that is a whole number of units.
func (u *USD) UnmarshalJSON(data []byte) error {
	v, ok := ParseUSD(string(data))
	if !ok {
		return ErrUSD
	}
	*u = v
	return nil
}

// Add is the sum, at most MaxUSD.
func (u USD) Add(v USD) USD {
	if u > MaxUSD-v {
		return MaxUSD
	}
	return u + v
}

// Of is the price of so many tokens, where u is that of a million.
func (u USD) Of(tokens int64) USD {
	over, n := bits.Mul64(uint64(max(0, u)/1_000_000), uint64(max(0, tokens)))
	if over != 0 || n > math.MaxInt64 {
		return MaxUSD
	}
	return USD(n)
}
