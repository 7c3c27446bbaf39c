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

// CompareNumbers compares two JSON numbers by their exact decimal values: -1, 0 or 1. Neither digits nor exponents are
// rounded, and no number is ever written out: 1e999999999 costs as much as 1e9, and every number what it takes to read
// it. Text that is not a JSON number is an error.
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

// decimal is sign * 0.digits * 10^point with no zero at either end of digits; zero has sign 0.
type decimal struct {
	Sign   int
	Digits string
	Point  bigInteger
}

// bigInteger is a whole number of any size, as decimal digits without zeros before them; zero has sign 0.
type bigInteger struct {
	sign   int
	digits string
}

// ParseDecimal reads a JSON number without loss; false where s is none.
func ParseDecimal(s string) (decimal, bool) {
	if !numberForm.MatchString(s) {
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

// parseInteger reads digits behind a sign or none.
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

// Int64 is the number itself, where it has at most as many digits as always fit.
func (i bigInteger) Int64() (int64, bool) {
	if i.sign == 0 {
		return 0, true
	}
	n, err := strconv.ParseInt(i.digits, 10, 64)
	return int64(i.sign) * n, err == nil && len(i.digits) <= fitting
}

// fitting is how many decimal digits fit into an int64, with room for a sum; overflow is the least number with more.
const (
	fitting  = 18
	overflow = 1_000_000_000_000_000_000
)

// add adds a number that is small: a text's length.
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

// stepDigits is the digits of a number plus or minus one: the last digits that are full become empty, and the one
// before them changes.
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
