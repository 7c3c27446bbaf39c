package jsonx

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// CompareNumbers compares two JSON numbers by their exact decimal values: -1, 0 or 1. Digits and exponents are not
// rounded, and no number is written out, so 1e999999999 costs as much as 1e9. Any other text is an error.
func CompareNumbers(a, b string) (int, error) {
	x, ok := ParseDecimal(a)
	y, ok2 := ParseDecimal(b)
	if !ok || !ok2 {
		return 0, errors.New("compare numbers: want JSON numbers")
	}
	if x.Sign != y.Sign || x.Sign == 0 {
		return cmp.Compare(x.Sign, y.Sign), nil
	}
	return x.Sign * cmp.Or(x.Point.compare(y.Point), strings.Compare(x.Digits, y.Digits)), nil
}

// decimal is sign * 0.digits * 10^point without a zero at either end of digits; zero has sign 0.
type decimal struct {
	Sign   int
	Digits string
	Point  bigInteger
}

// bigInteger is a whole number of any size, as decimal digits without leading zeros; zero has sign 0.
type bigInteger struct {
	sign   int
	digits string
}

// ParseDecimal parses a JSON number without loss; false if s is not a number.
func ParseDecimal(s string) (decimal, bool) {
	if !isNumber([]byte(s)) {
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
	point := parseInteger(exponent).add(int64(len(whole) - (len(all) - len(digits))))
	return decimal{sign, strings.TrimRight(digits, "0"), point}, true
}

// parseInteger parses digits after an optional sign.
func parseInteger(s string) bigInteger {
	sign := 1
	if s[0] == '-' {
		sign = -1
	}
	digits := strings.TrimLeft(strings.TrimLeft(s, "+-"), "0")
	if digits == "" {
		sign = 0
	}
	return bigInteger{sign, digits}
}

func (i bigInteger) compare(j bigInteger) int {
	if i.sign != j.sign {
		return cmp.Compare(i.sign, j.sign)
	}
	return i.sign * cmp.Or(cmp.Compare(len(i.digits), len(j.digits)), strings.Compare(i.digits, j.digits))
}

// Int64 returns the number if it has few enough digits to fit in any case.
func (i bigInteger) Int64() (int64, bool) {
	if i.sign == 0 {
		return 0, true
	}
	n, err := strconv.ParseInt(i.digits, 10, 64)
	return int64(i.sign) * n, err == nil && len(i.digits) <= fitting
}

// fitting is how many decimal digits fit into an int64, with room for a sum. overflow is the least number with more.
const (
	fitting  = 18
	overflow = 1_000_000_000_000_000_000
)

// add returns the sum with a small number, the length of a text.
func (i bigInteger) add(n int64) bigInteger {
	if small, ok := i.Int64(); ok {
		return parseInteger(strconv.FormatInt(small+n, 10))
	}
	cut := len(i.digits) - fitting
	head := i.digits[:cut]
	sum, _ := parseInteger(i.digits[cut:]).Int64() // it has as many digits as fit
	switch sum += int64(i.sign) * n; {
	case sum < 0:
		head, sum = stepDigits(head, '0', '9', -1), sum+overflow
	case sum >= overflow:
		head, sum = stepDigits(head, '9', '0', 1), sum-overflow
	}
	return bigInteger{i.sign, strings.TrimLeft(fmt.Sprintf("%s%0*d", head, fitting, sum), "0")}
}

// stepDigits returns the digits of a number plus or minus one: trailing digits full become empty, and the digit before
// them changes.
func stepDigits(digits string, full, empty byte, by int) string {
	if by > 0 {
		digits = "0" + digits
	}
	all := []byte(digits)
	at := len(all) - 1
	for ; all[at] == full; at-- {
		all[at] = empty
	}
	all[at] = byte(int(all[at]) + by)
	return string(all)
}

// USD is an amount of US dollars in units of 1e-12. A price per million tokens with six decimals is then a whole number
// of units for one token, so costs add up without rounding. The zero value is nothing. Its JSON is a decimal number. A
// sum that does not fit is MaxUSD, which no limit reaches.
type USD int64

// UsdUnit is one dollar.
const UsdUnit = 1_000_000_000_000

// MaxUSD is the largest amount, about nine million dollars.
const MaxUSD USD = math.MaxInt64

// ErrUSD says which amounts of money are accepted.
var ErrUSD = errors.New("want a number of US dollars from 0 to 1000000 with at most 6 decimals")

// ParseUSD parses an amount that is a whole number of units.
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

// String returns the amount as a decimal number without trailing zeros.
func (u USD) String() string {
	text := strconv.FormatInt(int64(u)/UsdUnit, 10)
	if rest := int64(u) % UsdUnit; rest != 0 {
		digits := strconv.FormatInt(rest+UsdUnit, 10)[1:]
		text += "." + strings.TrimRight(digits, "0")
	}
	return text
}

// MarshalJSON returns a number.
func (u USD) MarshalJSON() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalJSON parses a number that is a whole number of units.
func (u *USD) UnmarshalJSON(data []byte) error {
	v, ok := ParseUSD(string(data))
	if !ok {
		return ErrUSD
	}
	*u = v
	return nil
}

// Add returns the sum, at most MaxUSD.
func (u USD) Add(v USD) USD {
	if u > MaxUSD-v {
		return MaxUSD
	}
	return u + v
}

// Of returns the price of that many tokens, where u is the price of a million.
func (u USD) Of(tokens int64) USD {
	over, n := bits.Mul64(uint64(max(0, u)/1_000_000), uint64(max(0, tokens)))
	if over != 0 || n > math.MaxInt64 {
		return MaxUSD
	}
	return USD(n)
}
