package agent

import (
	"cmp"
	"errors"
	"math/big"
	"strings"
)

// CompareNumbers compares two JSON numbers by their exact decimal values: -1, 0 or 1. Neither digits nor exponents are
// rounded, and no number is ever written out: 1e999999999 costs as much as 1e9. Text that is not a JSON number is an error.
func CompareNumbers(a, b string) (int, error) {
	x, ok := parseDecimal(a)
	y, ok2 := parseDecimal(b)
	if !ok || !ok2 {
		return 0, errors.New("compare numbers: want JSON numbers")
	}
	if x.sign != y.sign || x.sign == 0 {
		return cmp.Compare(x.sign, y.sign), nil
	}
	return x.sign * x.compareSize(y), nil
}

// decimal is sign * 0.digits * 10^point with no zero at either end of digits; zero has sign 0.
type decimal struct {
	sign   int
	digits string
	point  *big.Int
}

func (d decimal) compareSize(e decimal) int {
	if c := d.point.Cmp(e.point); c != 0 {
		return c
	}
	return strings.Compare(d.digits, e.digits)
}

func parseDecimal(s string) (decimal, bool) {
	if n := numberLength([]byte(s)); n == 0 || n != len(s) {
		return decimal{}, false
	}
	sign := 1
	if s[0] == '-' {
		sign, s = -1, s[1:]
	}
	mantissa, exponent := s, "0"
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	digits := strings.TrimLeft(all, "0")
	if digits == "" {
		return decimal{}, true
	}
	point, ok := new(big.Int).SetString(exponent, 10)
	if !ok {
		return decimal{}, false
	}
	point.Add(point, big.NewInt(int64(len(whole)-(len(all)-len(digits)))))
	return decimal{sign, strings.TrimRight(digits, "0"), point}, true
}
