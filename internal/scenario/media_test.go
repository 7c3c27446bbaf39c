package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is written to and read from blobs goes through the ports, so that a crash is tried there too.
func TestCrashesReachTheBlobs(t *testing.T) {
	for _, s := range corpus(t) {
		if s.Name != "large-media" {
			continue
		}
		counts := map[string]int{}
		for _, c := range s.Run(Options{}).Calls {
			counts[c.Port+" by "+c.Invocation]++
		}
		require.Equal(t, 1, counts["blobs.Put by start"], "the definition")
		require.Equal(t, 1, counts["blobs.Put by tool"], "the picture")
		require.Equal(t, 3, counts["blobs.Get by step"], "the definition, and the picture for each of two requests")
		require.Equal(t, 2, counts["blobs.Size by step"])
		return
	}
	t.Fatal("the corpus has no scenario large-media")
}
