package jsonx_test

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/jsonx"
)

func TestCompareNumbers(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"1", "1.0", 0}, {"100", "1e2", 0}, {"1E+2", "10000e-2", 0}, {"0", "-0.0e99", 0}, {"0e999999999999999999999", "0", 0},
		{"0.1", "0.10000000000000000000000001", -1},
		{"9007199254740993", "9007199254740992", 1},
		{"-2", "-1", -1}, {"-1", "1", -1}, {"1", "-1", 1}, {"0", "-1", 1}, {"0", "1e-999999999", -1},
		{"1e999999999", "2e999999999", -1}, {"1e999999999", "1e999999998", 1}, {"-1e999999999", "1", -1},
		{"1e99999999999999999999999999", "1e99999999999999999999999998", 1},
		{"1e-99999999999999999999999999", "0", 1},
		{"10e999999999999999999", "1e1000000000000000000", 0}, {"0.1e1000000000000000000", "1e999999999999999999", 0},
		{"10e-1000000000000000000", "1e-999999999999999999", 0}, {"1000e99999999999999999999999", "1e100000000000000000000002", 0},
		{"0.01e-99999999999999999999", "1e-100000000000000000001", 0}, {"0.1e100000000000000000000", "1e99999999999999999999", 0},
		{"10e-100000000000000000000", "1e-99999999999999999999", 0}, {"1e+0000000000000000000000000000003", "1000", 0},
		{"1e1000000000000000000000000", "1e-1000000000000000000000000", 1}, {"1e-1000000000000000000000001", "1e-1000000000000000000000000", -1},
		{"99", "100", -1}, {"0.09", "0.1", -1}, {"12e-1", "1.2", 0}, {"0.0012", "12e-4", 0},
	} {
		got, err := jsonx.CompareNumbers(tt.a, tt.b)
		require.NoError(t, err)
		require.Equal(t, tt.want, got, "%s, %s", tt.a, tt.b)
		back, err := jsonx.CompareNumbers(tt.b, tt.a)
		require.NoError(t, err)
		require.Equal(t, -tt.want, back)
	}
}

func TestCompareNumbersRefuses(t *testing.T) {
	for _, bad := range []string{"", "01", "+1", "1.", ".5", "1e", "0x10", "NaN", " 1", "1 ", `"1"`, "1_0", "--1"} {
		_, err := jsonx.CompareNumbers(bad, "1")
		require.EqualError(t, err, "compare numbers: want JSON numbers", bad)
		_, err = jsonx.CompareNumbers("1", bad)
		require.Error(t, err, bad)
	}
}

// A number costs what it takes to read it, whatever its exponent: something that writes it out, or is not linear, takes
// minutes.
func TestCompareNumbersIsLinear(t *testing.T) {
	digits, began := strings.Repeat("9", 250_000), time.Now()
	for range 25 {
		for _, number := range []string{"1e" + digits, "1e-" + digits, digits, "0." + digits, "1e999999999"} {
			c, err := jsonx.CompareNumbers(number, "1")
			require.NoError(t, err)
			require.NotZero(t, c)
		}
	}
	require.Less(t, time.Since(began), 30*time.Second)
}

// number is the grammar of RFC 8259.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func FuzzCompareNumbers(f *testing.F) {
	f.Add("1.50", "15e-1")
	f.Add("-0", "0")
	f.Add("1e99", "-1e-99")
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := jsonx.CompareNumbers(a, b)
		valid := number.MatchString(a) && number.MatchString(b)
		require.Equal(t, valid, err == nil)
		if err != nil || !modest(a) || !modest(b) {
			return
		}
		x, ok := new(big.Rat).SetString(a)
		y, ok2 := new(big.Rat).SetString(b)
		require.True(t, ok && ok2)
		require.Equal(t, x.Cmp(y), got, "%s, %s", a, b)
	})
}

// modest numbers can be written out.
func modest(s string) bool {
	_, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	return len(s) < 100 && len(exponent) < 4
}
