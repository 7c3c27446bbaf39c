package scenario

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEventsByEitherName(t *testing.T) {
	for in, want := range map[string]string{
		`["RunStarted","CallFinished","Replied"]`: `["run_started","call_finished","replied"]`,
		`["run_started","~^call"]`:                `["run_started","~^call"]`,
		`"RunStarted"`:                            `"RunStarted"`,
	} {
		require.JSONEq(t, want, string(storedNames(json.RawMessage(in))))
	}
}
