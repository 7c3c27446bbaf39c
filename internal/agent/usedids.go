package agent

import (
	"slices"
	"strconv"
	"strings"
)

// maxNamed is how many ids that models chose a run remembers beyond their calls. It bounds a snapshot.
const maxNamed = 512

// settled takes a call of a finished round out of the live ones.
func (s *AgentState) settled(c Call) {
	s.Settled = s.Settled.Append(c)
	if len(s.Named) < maxNamed && !minted(c.ID, c.Inference) {
		s.Named = append(s.Named[:len(s.Named):len(s.Named)], c.ID)
	}
}

// usedID reports whether a call of the run has the id. Of a run that has evicted messages a reader may have begun at a snapshot, and whoever
// reads it has to say the same: ids of the core's form count as used there, and where models chose many, every id, but for those that this
// inference alone makes.
func (s *AgentState) usedID(id string, inference int64) bool {
	if _, taken := s.Call(id); taken || slices.Contains(s.Named, id) {
		return true
	}
	return s.EvictedMessages > 0 && !minted(id, inference) && (len(s.Named) == maxNamed || mintedForm(id))
}

// mintedForm reports whether an id looks like one that the core makes for some inference.
func mintedForm(id string) bool {
	digits, rest, ok := strings.Cut(strings.TrimPrefix(id, "c"), "-")
	if !ok || id == "" || id[0] != 'c' || rest == "" {
		return false
	}
	_, err := strconv.ParseUint(digits, 10, 64)
	return err == nil
}
