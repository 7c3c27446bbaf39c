package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidFunction(t *testing.T) {
	for _, name := range []string{
		"f", "Stock_take-2", "f:1", "f:$LATEST", "f:live", "000000000000:function:f", "000000000000:function:f:live",
		"arn:aws:lambda:eu-central-1:000000000000:function:f", "arn:aws-us-gov:lambda:us-gov-west-1:000000000000:function:f:$LATEST", strings.Repeat("f", 64),
	} {
		require.True(t, functionName.MatchString(name), name)
	}
	for _, name := range []string{
		"", ":", "f:", ":f", "f:a:b", "a/b", "a b", "../x", "f?x=1", "f:$OLDEST", "fé", strings.Repeat("f", 65), "00000000000:function:f", "00000000000x:function:f",
		"000000000000:layer:f", "000000000000:function:", "arn:aws:s3:eu-central-1:000000000000:function:f", "arn:aws:lambda::000000000000:function:f",
		"arn:aws:lambda:eu-central-1:000000000000:function:f:live:more", "arn:aws:lambda:eu-central-1:000000000000:f",
	} {
		require.False(t, functionName.MatchString(name), name)
	}
}
