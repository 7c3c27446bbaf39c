package run

import (
	"fmt"
	"slices"
)

// replied counts the inference, which raises every live message's seenCount by one, then adds the model's turn.
func (s *AgentState) replied(e Replied) error {
	if e.Inference <= s.Inferences {
		return nil
	}
	if e.Inference != s.Inferences+1 {
		return &ApplyError{Event: "replied", Problem: fmt.Sprintf("inference %d after %d", e.Inference, s.Inferences)}
	}
	if s.Status != RunRunning {
		return &ApplyError{Event: "replied", Problem: "the run is " + string(s.Status)}
	}
	if s.Plan.Active() {
		return &ApplyError{Event: "replied", Problem: "the run's plan is not carried out"}
	}
	if i := slices.IndexFunc(s.Live, s.mustSettle); i >= 0 {
		return &ApplyError{Event: "replied", Call: s.Live[i].ID, Problem: "still " + string(s.Live[i].Status)}
	}
	turn, ok := e.turn()
	if !ok {
		return &ApplyError{Event: "replied", Problem: "reasoning has a place that does not exist"}
	}
	if problem := e.verdictProblem(); problem != "" {
		return &ApplyError{Event: "replied", Problem: problem}
	}
	if s.mergePatches(); len(s.Patches) > 0 {
		return &ApplyError{Event: "replied", Problem: "what calls changed of the run's state does not go together"}
	}
	s.inferred(e)
	hidden := s.Hidden
	s.Hidden = nil
	s.cut(e)
	s.heeds(e)
	s.minds(e)
	for part, b := range turn {
		if t, isText := b.(Text); !isText || t.Text != "" {
			s.say(RoleAssistant, b, 1, s.source(part))
		}
	}
	s.Correction = e.Correction
	if said, ok := e.behind(); ok {
		s.say(said.role, said.block, 0, s.source(len(turn)))
	}
	return s.askedFor(e, hidden)
}

// inferred counts an inference that carried the conversation, and what it took.
func (s *AgentState) inferred(e Replied) {
	s.Inferences++
	if !e.Summary {
		s.Interactions.Current++
	}
	s.ModelCalls += int64(e.Requests)
	s.Usage = s.Usage.Add(e.Usage)
	s.ExecutionUnits += e.Units
	s.Cost = s.Cost.Add(e.Cost)
	s.Counted = s.counted(e.Usage)
	s.Unseen, s.Plan.Answered, s.Plan.Failed = 0, 0, 0
	if e.System != "" {
		s.System, s.SystemText, s.SystemBlob = e.System, e.SystemText, e.SystemBlob
	}
}

// heeds takes in what the stop policies found. The first verdict stays.
func (s *AgentState) heeds(e Replied) {
	if e.Pace != nil {
		s.Pace = *e.Pace
	}
	if e.Halt != nil && s.Ending == "" {
		s.Ending, s.EndingDetail = Stopped(e.Halt.Code), e.Halt.Detail
	}
}

// minds takes in what analysis, guards and the breaker remember.
func (s *AgentState) minds(e Replied) {
	if e.Recovery != nil {
		s.Recovery = *e.Recovery
	}
	if e.Tally != nil {
		s.Tally = *e.Tally
	}
	if e.Watch != nil {
		s.Watch = *e.Watch
	}
}

// askedFor opens the reply's calls as the newest round. Calls of older rounds that are open stay live, and with them what came after.
// hidden are the tools that the model was not offered.
func (s *AgentState) askedFor(e Replied, hidden []string) error {
	if len(e.Calls) == 0 {
		return nil
	}
	older := s.Live
	for len(older) > 0 && !older[0].Open() {
		s.settled(older[0])
		older = older[1:]
	}
	s.Live = append(make([]Call, 0, len(older)+len(e.Calls)), older...)
	s.Round = Round{Inference: s.Prior + e.Inference, Sequential: e.Sequential}
	for _, rc := range e.Calls {
		if _, used := s.Call(rc.ID); used {
			return &ApplyError{Event: "replied", Call: rc.ID, Problem: "the id is used already"}
		}
		c := rc.call(s.Prior + e.Inference)
		c.Hidden = rc.Unoffered || slices.Contains(hidden, c.Tool)
		if err := c.move("replied", StatusNew); err != nil {
			return err
		}
		s.Live = append(s.Live, c)
	}
	if e.Dropped != "" {
		turn, _ := e.turn()
		s.Queued = append(s.Queued[:len(s.Queued):len(s.Queued)], queued{block: Text{Text: e.Dropped}, source: s.source(len(turn))})
	}
	return nil
}

func (rc RepliedCall) call(inference int64) Call {
	c := Call{
		ID: rc.ID, Tool: rc.Original(), Name: rc.Name, Input: rc.Input, Effect: rc.Effect, Service: rc.Service, Breaks: rc.Breaks, Ahead: rc.Ahead,
		Inference: inference, Repeats: rc.Repeats,
	}
	if c.Effect == "" {
		c.Effect = EffectNonIdempotent
	}
	return c
}
