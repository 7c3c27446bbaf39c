package jsonx

import (
	"cmp"
	"errors"
	"fmt"
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

// fitting is how many decimal digits fit into an int64, with room for a sum; overflow is the least number that has
// more.
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
