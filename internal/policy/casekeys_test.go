package policy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCaseKeys(t *testing.T) {
	for args, want := range map[string]bool{
		`{}`: false, `{"a":1,"b":{"a":1}}`: false, `[{"a":1},{"A":1}]`: false, `{"a":"A"}`: false,
		`{"a":1,"A":1}`: true, `{"x":[1,{"ab":1,"aB":2}]}`: true, `{"k":1,"` + "\u212a" + `":2}`: true, `{"s":1,"` + "\u017f" + `":2}`: true,
		`{"straße":1,"STRASSE":2}`: false, `{"a":1,"\u0041":2}`: true,
	} {
		require.Equal(t, want, hasCaseKeys(json.RawMessage(args)), args)
	}
}
