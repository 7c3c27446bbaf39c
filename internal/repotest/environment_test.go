package repotest

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The environment of every function fits into Lambda's 4 KB, however long the parameters are that a deployment gives.
func TestEnvironmentsFit(t *testing.T) {
	p := project(t, nil)
	bound := regexp.MustCompile(`\{[0-9],([0-9]+)\}`)
	given := Values{}
	for _, e := range p.Template.Get("Parameters").entries() {
		if e.Value.Get("Type").String() != "String" || e.Value.Get("AllowedValues") != nil {
			continue
		}
		most := e.Value.Get("MaxLength").String()
		if m := bound.FindStringSubmatch(e.Value.Get("AllowedPattern").String()); most == "" && m != nil {
			most = m[1]
		}
		longest, err := strconv.Atoi(cmp.Or(most, "0"))
		require.NoError(t, err, e.Key)
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
