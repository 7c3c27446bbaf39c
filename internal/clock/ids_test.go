package clock_test

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
)

var day = time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)

func TestForms(t *testing.T) {
	for name, s := range map[string]*clock.IDs{"system": clock.NewIDs(clock.NewVirtual(day)), "seeded": clock.SeededIDs(clock.NewVirtual(day), 7)} {
		t.Run(name, func(t *testing.T) {
			require.Regexp(t, regexp.MustCompile(`^[a-z2-7]{10}$`), s.Writer())
			require.Regexp(t, regexp.MustCompile(`^[a-z2-7]{52}$`), s.Token())
			key, err := ulid.ParseStrict(s.Key())
			require.NoError(t, err)
			require.Equal(t, day, ulid.Time(key.Time()).UTC(), "by the source's clock")
		})
	}
}

// The same seed draws the same for ever: scenarios are recorded with it.
func TestSeeded(t *testing.T) {
	draw := func(seed uint64) string {
		s := clock.SeededIDs(clock.NewVirtual(day), seed)
		return strings.Join([]string{s.Writer(), s.Writer(), s.Key(), s.Token(), s.Jitter(time.Hour).String()}, " ")
	}
	require.Equal(t, draw(1), draw(1))
	require.NotEqual(t, draw(1), draw(2))
}

func TestNothingIsDrawnTwice(t *testing.T) {
	for name, s := range map[string]*clock.IDs{"system": clock.NewIDs(clock.System()), "seeded": clock.SeededIDs(clock.System(), 1)} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			seen := map[string]bool{}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 250 {
						w := s.Writer()
						mu.Lock()
						seen[w] = true
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.Len(t, seen, 2000)
		})
	}
}

func TestJitter(t *testing.T) {
	s := clock.SeededIDs(clock.NewVirtual(day), 1)
	require.Zero(t, s.Jitter(0))
	require.Zero(t, s.Jitter(-time.Second))
	seen := map[time.Duration]bool{}
	for range 200 {
		d := s.Jitter(3)
		require.LessOrEqual(t, d, time.Duration(3))
		require.GreaterOrEqual(t, d, time.Duration(0))
		seen[d] = true
	}
	require.Len(t, seen, 4, "0 and the limit included")
	require.NotPanics(t, func() { s.Jitter(1<<63 - 1) })
}
