package repotest

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The environment of every function fits into Lambda's 4 KB, however long the parameters are that a deployment gives.
func TestEnvironmentsFit(t *testing.T) {
	p, err := Read("../..", nil)
	require.NoError(t, err)
	bound := regexp.MustCompile(`\{[0-9],([0-9]+)\}`)
	given := Values{}
	for _, e := range p.Template.Get("Parameters").entries() {
		if e.Value.Get("Type").String() != "String" || e.Value.Get("AllowedValues") != nil {
			continue
		}
		longest := 0
		if m := e.Value.Get("MaxLength").String(); m != "" {
			longest, err = strconv.Atoi(m)
			require.NoError(t, err)
		} else if m := bound.FindStringSubmatch(e.Value.Get("AllowedPattern").String()); m != nil {
			longest, err = strconv.Atoi(m[1])
			require.NoError(t, err)
		}
		given[e.Key] = strings.Repeat("x", longest)
	}
	given["LocalEndpoint"] = "" // of sam local alone
	for _, f := range p.Resources(functionType) {
		all, err := p.Environment(f.ID, p.Deployed(given))
		require.NoError(t, err)
		size := 0
		for name, value := range all {
			size += len(name) + len(value)
		}
		t.Logf("%s: %d bytes", f.ID, size)
		require.LessOrEqual(t, size, 4096, f.ID)
	}
}
