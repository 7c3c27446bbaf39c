package asl

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWaitState(t *testing.T) {
	for _, c := range []struct {
		fields, fails string
		want          time.Duration
	}{
		{fields: `"Seconds": 90`, want: 90 * time.Second},
		{fields: `"Seconds": 0`},
		{fields: `"Timestamp": "2026-01-01T01:00:00+00:00"`, want: time.Hour},
		{fields: `"Timestamp": "2020-01-01T00:00:00Z"`},
		{fields: `"SecondsPath": "$.n"`, want: 7 * time.Second},
		{fields: `"TimestampPath": "$.t"`, want: time.Minute},
		{fields: `"SecondsPath": "$.t"`, fails: Runtime},
		{fields: `"SecondsPath": "$.x"`, fails: Runtime},
		{fields: `"TimestampPath": "$.n"`, fails: Runtime},
	} {
		t.Run(c.fields, func(t *testing.T) {
			r := newRig(t, `{"StartAt": "W", "States": {"W": {"Type": "Wait", "End": true, `+c.fields+`}}}`)
			d := r.result(`{"n": 7, "t": "2026-01-01T00:01:00Z"}`)
			require.Equal(t, c.fails, d.Error)
			require.Equal(t, c.want, d.StopDate.Sub(d.StartDate))
		})
	}
}
