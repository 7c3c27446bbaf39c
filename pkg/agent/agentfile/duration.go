package agentfile

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

var errDuration = errors.New("want a duration such as 250ms, 30s, 24h or 7d")

// ParseDuration reads a duration as files have it: time.ParseDuration's form, with whole days (24 h each) in front: 7d,
// 1d12h. Negative durations and those over 292 years are refused.
func ParseDuration(s string) (time.Duration, error) {
	days, rest, found := strings.Cut(s, "d")
	if !found {
		days, rest = "0", s
	}
	n, err := strconv.ParseUint(days, 10, 32)
	if err != nil || n > uint64(math.MaxInt64/(24*time.Hour)) {
		return 0, errDuration
	}
	total := time.Duration(n) * 24 * time.Hour
	if found && rest == "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || strings.ContainsAny(rest, "+-") || d > math.MaxInt64-total {
		return 0, errDuration
	}
	return total + d, nil
}
