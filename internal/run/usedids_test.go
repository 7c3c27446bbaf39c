package run

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run knows the ids that its models chose, whoever reads it: a reader who lacks the calls says of an id what one who has them says.
func TestUsedIDs(t *testing.T) {
	var s AgentState
	for i := range int64(3) {
		s.archiveCall(Call{ID: fmt.Sprintf("mine-%d", i), Inference: i + 1})
		s.archiveCall(Call{ID: fmt.Sprintf("c%d-0", i+1), Inference: i + 1}) // the core's own are never chosen again
	}
	part := s
	part.Settled, part.Partial, part.EvictedMessages, s.EvictedMessages = Log[Call]{}, true, 9, 9
	for id, used := range map[string]bool{"mine-0": true, "mine-2": true, "mine-3": false, "c9-0": false, "c2-0": true, "c7-3": true, "c-1": false, "c9": false} {
		require.Equal(t, used, s.UsedID(id, 9), id)
		require.Equal(t, used, part.UsedID(id, 9), id)
	}
	for i := range maxNamed {
		s.archiveCall(Call{ID: fmt.Sprintf("more-%d", i), Inference: 9})
	}
	require.Len(t, s.Named, maxNamed)
	part.Named = s.Named
	for id, used := range map[string]bool{"never": true, "c10-0": false} { // nobody can tell any more, and both say so
		require.Equal(t, used, s.UsedID(id, 10), id)
		require.Equal(t, used, part.UsedID(id, 10), id)
	}
	s.EvictedMessages = 0
	require.False(t, s.UsedID("never", 10), "who has evicted nothing has every call")
}
