package agent

// OpenRounds is what RunStarted stores of the wait and resume policies: both where calls may stay open over inferences, else nothing.
func (d *Definition) OpenRounds() (WaitMode, ResumeMode) {
	if d.Wait != WaitAllSuspended {
		return "", ""
	}
	return d.Wait, d.Resume
}

// withPlaceholders reports whether the model is asked while calls are open, with placeholders for their results (all_suspended).
func (s *AgentState) withPlaceholders() bool { return s.Wait == WaitAllSuspended }

// newest is the newest round's part of the live calls.
func (s *AgentState) newest() []Call {
	for i, c := range s.Live {
		if c.Inference == s.Round.Inference {
			return s.Live[i:]
		}
	}
	return nil
}

// held reports whether calls that were approved have to wait for other decisions before they are replayed: under all_answered for those of
// the newest round, under batch_all for those of every round (semantics 6.1). Under any_external there is one round.
func (s *AgentState) held(mode ResumeMode) bool {
	if mode != ResumeAllAnswered && mode != ResumeBatchAll {
		return false
	}
	counted := s.Live
	if mode == ResumeAllAnswered && s.withPlaceholders() {
		counted = s.newest()
	}
	for _, c := range counted {
		if c.Status == StatusSuspended {
			return true
		}
	}
	return false
}

// holdsBack reports whether the model is not asked yet: other decisions are waited for (held), and all that it has not seen came of decisions
// on suspended calls, answers to them and their expiry. Calls that ran beside them, and what users say, are not held back.
func (s *AgentState) holdsBack() bool {
	if !s.held(s.Resume) || s.Correction.owed() {
		return false
	}
	all := s.Messages.All()
	i := len(all)
	for i > 0 && all[i-1].Seen(s.Inferences) == 0 {
		i--
	}
	for ; i < len(all); i = resultEnd(all, i) {
		r, ok := all[i].Block.(ToolResult)
		if !ok {
			return false
		}
		if c, _ := s.Call(r.ID); c.Asks == 0 && c.AskedAt.IsZero() && c.Reason != WhySkipped {
			return false
		}
	}
	return true
}

// paused reports whether the call goes nowhere before somebody answers: it is suspended, or approved and held. Only of a run that asks
// the model meanwhile.
func (s *AgentState) paused(c Call) bool {
	return c.Status == StatusSuspended || c.Status == StatusResuming && s.held(s.Resume)
}

// mustSettle reports whether the model cannot be asked, or its reply not be taken, before the call has its result.
func (s *AgentState) mustSettle(c Call) bool {
	return c.Open() && (!s.withPlaceholders() || !s.paused(c))
}

// rests reports whether every call of the newest round is settled or paused.
func (s *AgentState) rests() bool {
	for _, c := range s.newest() {
		if s.mustSettle(c) {
			return false
		}
	}
	return true
}

// skipped reports whether a call that is new stands behind one of its round that is paused.
func (s *AgentState) skipped(c Call) bool {
	if !s.withPlaceholders() || c.Status != StatusNew {
		return false
	}
	for _, b := range s.Live {
		if b.ID == c.ID {
			return false
		}
		if b.Inference == c.Inference && s.paused(b) {
			return true
		}
	}
	return false
}

// Skip is the end of a call that a sequential executor does not carry out, because one before it in its round waits and the model is asked
// without it; ok is false where there is no such reason.
func Skip(d *Definition, s *AgentState, c Call) (e CallCancelled, ok bool) {
	if d.Executor != ExecutorSequential || !s.skipped(c) {
		return CallCancelled{}, false
	}
	return CallCancelled{Call: c.ID, Reason: WhySkipped, Content: d.word(wordSkipped, about(c))}, true
}
