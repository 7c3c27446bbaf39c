package agent

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/run"
)

// Names are what the documented expressions say, at their borders and for whatever else comes.
func TestSpellings(t *testing.T) {
	for expression, valid := range map[string]func(string) bool{
		`^[a-z0-9][a-z0-9-]{0,39}$`:              ValidTenant,
		agentNameForm:                            ValidAgentName,
		`^[A-Za-z0-9_-]{1,64}$`:                  ValidWord,
		`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`:    ValidToolName,
		`^[A-Za-z0-9_.*-]+$`:                     validToolPattern,
		`^(user|group):[A-Za-z0-9._@+-]{1,128}$`: ValidPrincipal,
		`^user:[A-Za-z0-9._@+-]{1,128}$`:         func(s string) bool { return run.IsPrincipal("user:", s) },
		`^[0-9a-f]{64}$`:                         ValidDigest,
	} {
		t.Run(expression, func(t *testing.T) {
			re := regexp.MustCompile(expression)
			same := func(s string) { require.Equal(t, re.MatchString(s), valid(s), "%q", s) }
			for b := range 256 { // every byte, alone and in each place of a name
				c := string([]byte{byte(b)})
				for _, s := range []string{c, c + "a", "a" + c, "a" + c + "a", "user:" + c, "group:a" + c, strings.Repeat("a", 63) + c} {
					same(s)
				}
			}
			for n := range 140 {
				for _, s := range []string{strings.Repeat("a", n), "user:" + strings.Repeat("a", n), "group:" + strings.Repeat("b", n), strings.Repeat("a.", n)} {
					same(s)
				}
			}
			rapid.Check(t, func(t *rapid.T) {
				s := rapid.OneOf(rapid.String(), rapid.StringMatching(expression), rapid.StringMatching(`(user:|group:)?[a-z0-9A-Z.\-_*@\n]{0,70}`)).Draw(t, "s")
				if re.MatchString(s) != valid(s) {
					t.Fatalf("%q: want %v", s, re.MatchString(s))
				}
			})
		})
	}
}
