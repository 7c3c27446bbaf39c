package agent

import (
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		{"99", "100", -1}, {"0.09", "0.1", -1}, {"12e-1", "1.2", 0}, {"0.0012", "12e-4", 0},
	} {
		got, err := CompareNumbers(tt.a, tt.b)
		require.NoError(t, err)
		require.Equal(t, tt.want, got, "%s, %s", tt.a, tt.b)
		back, err := CompareNumbers(tt.b, tt.a)
		require.NoError(t, err)
		require.Equal(t, -tt.want, back)
	}
}

func TestCompareNumbersRefuses(t *testing.T) {
	for _, bad := range []string{"", "01", "+1", "1.", ".5", "1e", "0x10", "NaN", " 1", "1 ", `"1"`, "1_0", "--1"} {
		_, err := CompareNumbers(bad, "1")
		require.EqualError(t, err, "compare numbers: want JSON numbers", bad)
		_, err = CompareNumbers("1", bad)
		require.Error(t, err, bad)
	}
}

func FuzzCompareNumbers(f *testing.F) {
	f.Add("1.50", "15e-1")
	f.Add("-0", "0")
	f.Add("1e99", "-1e-99")
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := CompareNumbers(a, b)
		valid := numberLength([]byte(a)) == len(a) && numberLength([]byte(b)) == len(b) && a != "" && b != ""
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
