package agent

import "slices"

// maxNamed is how many ids that models chose a run remembers beyond their calls. It bounds a snapshot.
const maxNamed = 512

// settled takes a call of a finished round out of the live ones.
func (s *AgentState) settled(c Call) {
	s.Settled = s.Settled.Append(c)
	if len(s.Named) < maxNamed && !minted(c.ID, c.Inference) {
		s.Named = append(s.Named[:len(s.Named):len(s.Named)], c.ID)
	}
}

// usedID reports whether a call of the run has the id. In a run that has evicted messages and had many calls every id counts as used that
// inference itself has not made: a reader who begins at a snapshot could not tell, and both have to say the same.
func (s *AgentState) usedID(id string, inference int64) bool {
	if _, taken := s.Call(id); taken || slices.Contains(s.Named, id) {
		return true
	}
	return len(s.Named) == maxNamed && s.EvictedMessages > 0 && !minted(id, inference)
}
