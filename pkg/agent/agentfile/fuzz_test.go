package agentfile

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParseMapping: what is read of a file is JSON, and every error is told with its line.
func FuzzParseMapping(f *testing.F) {
	f.Add("default: user:ana\npeople:\n  user:ana: {groups: [\"group:a\"]}\nslack: {T1: default}\n")
	f.Add("people: &a {b: *a}\n")
	f.Add("people: {x: 1, x: 2}\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ParseMapping("principals.yaml", []byte(text), "default", "people", "slack")
		if err != nil {
			requireProblems(t, err)
			return
		}
		require.True(t, json.Valid(v.JSON), "%s", v.JSON)
		for key, m := range v.Members {
			require.Contains(t, []string{"default", "people", "slack"}, key)
			require.Positive(t, m.Line)
			require.Equal(t, m.Line, v.LineOf(key))
		}
	})
}

// FuzzParseDuration: a duration is none that is negative or wraps.
func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"7d", "1d12h", "106751d23h47m16s", "106752d", "-1s", "1dd", "1e9h", "0.5d", "9223372036854775807ns"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		require.True(t, err != nil || d >= 0, "%q is %s", s, d)
	})
}
