package agent

import "slices"

// Four eyes keep the people whom a call comes from, from being the ones who approve it (A10). The model calls what it
// was told to: so these are not only who started the run, but all whose words it took in before it asked.

// Requesters are the people for whom the run acts: who started it, whom it is about where that is a person, who
// started it again under its key, and all whose messages, answers and results it has taken in.
func (s *AgentState) Requesters() []string { return s.RequestersOnce(len(s.Heard)) }

// RequestersOnce are the requesters of a call that asked when the run had heard so many people.
func (s *AgentState) RequestersOnce(heard int) []string {
	who := slices.Clone(s.By)
	if isPrincipal("user:", s.Subject) {
		who = withPeople(who, s.Subject)
	}
	return withPeople(withPeople(who, s.Again...), s.Heard[:min(heard, len(s.Heard))]...)
}

// StarterKnown reports whether it is known which person started the run. Whom a caller says that it is for is not
// known: an event can say anything.
func (s *AgentState) StarterKnown() bool {
	return slices.ContainsFunc(s.By, func(id string) bool { return isPrincipal("user:", id) })
}

// asFourEyes is the decision where four eyes cannot keep anybody from approving, since nobody is known to have
// started the run: then it takes two different people.
func (s *AgentState) asFourEyes(dec Decision) Decision {
	if dec.Verdict == VerdictAsk && dec.FourEyes && !s.StarterKnown() {
		dec.Quorum = max(dec.Quorum, fourEyesPeople)
	}
	return dec
}

// fourEyesPeople is how many people look where four eyes are two people's.
const fourEyesPeople = 2

// FourEyesEdit is how many people approve a call whose arguments somebody has changed: under four eyes its author and
// another one.
func FourEyesEdit(quorum int, fourEyes bool) int {
	if fourEyes {
		return max(quorum, fourEyesPeople)
	}
	return quorum
}

// noteRequesters notes whose words a fact has brought into the run.
func (s *AgentState) noteRequesters(e Event) {
	switch e := e.(type) {
	case InputReceived:
		if e.Starts {
			s.Again = withPeople(s.Again, e.By)
			return
		}
		s.Heard = withPeople(s.Heard, e.By)
	case Answered:
		s.Heard = withPeople(s.Heard, e.By)
		s.Heard = withPeople(s.Heard, e.With...)
	case Decided:
		if e.Result != nil || e.Action != ActionApprove && e.Note != "" { // the note of a denial is said to the model
			s.Heard = withPeople(s.Heard, e.By)
			s.Heard = withPeople(s.Heard, e.With...)
		}
	}
}

// withPeople are people and those of more who are none of them, as a new list.
func withPeople(people []string, more ...string) []string {
	for _, id := range more {
		if isPrincipal("user:", id) && !slices.Contains(people, id) {
			people = append(slices.Clip(people), id)
		}
	}
	return people
}
