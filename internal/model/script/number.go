package script

import (
	"math/big"
	"strings"
)

// decimal is a number in its one normal form: sign, digits without zeros at either end, and the power of ten of the
// last digit. Zero has no digits and no sign. The exponent is big because JSON bounds it nowhere, and the value is
// never expanded.
type decimal struct {
	negative bool
	digits   string
	exponent string
}

// sameNumber reports whether two JSON numbers are the same decimal.
func sameNumber(a, b string) bool { return normal(a) == normal(b) }

// normal reads a valid JSON number.
func normal(s string) decimal {
	s, negative := strings.CutPrefix(s, "-")
	mantissa, power := s, "0"
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, power = s[:i], s[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return decimal{}
	}
	exponent, _ := new(big.Int).SetString(power, 10)
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(short)-len(fraction))))
	return decimal{negative, short, exponent.String()}
}
