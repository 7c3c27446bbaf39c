package scenario

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEventsOfOneKind(t *testing.T) {
	for in, want := range map[string]bool{
		`["run_started","replied"]`: false, `[]`: false, `null`: false, `"run_start"`: false, `["~x"]`: false,
		`["run_start","step_start"]`: true, `["~^run", "run_finish"]`: true,
	} {
		require.Equal(t, want, areStreamEvents(json.RawMessage(in)), in)
		require.NoError(t, checkEventKinds(json.RawMessage(in)), in)
	}
	require.EqualError(t, checkEventKinds(json.RawMessage(`["run_start", "replied"]`)),
		"got replied, which the journal has, beside events of the stream: want either")
}
