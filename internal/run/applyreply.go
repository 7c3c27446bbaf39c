package run

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// apply counts the inference, which raises every live message's seenCount by one, and then adds the model's turn.
func (e Replied) apply(s *AgentState) error {
	if e.Inference <= s.Inferences {
		return nil
	}
	open := slices.IndexFunc(s.Live, s.mustSettle)
	turn, ok := e.turnBlocks()
	switch problem := e.verdictProblem(); {
	case e.Inference != s.Inferences+1:
		return &ApplyError{Problem: fmt.Sprintf("inference %d after %d", e.Inference, s.Inferences)}
	case s.Status != RunRunning:
		return &ApplyError{Problem: "the run is " + string(s.Status)}
	case s.Plan.Active():
		return &ApplyError{Problem: "the run's plan is not finished"}
	case open >= 0:
		return &ApplyError{Call: s.Live[open].ID, Problem: "still " + string(s.Live[open].Status)}
	case !ok:
		return &ApplyError{Problem: "reasoning has a place that does not exist"}
	case problem != "":
		return &ApplyError{Problem: problem}
	}
	if s.mergePatches(); len(s.Patches) > 0 {
		return &ApplyError{Problem: "the calls' changes of the shared state conflict"}
	}
	s.Inferences++
	if !e.Summary {
		s.Interactions.Current++
	}
	s.spend(ChildUsage{e.Usage, int64(e.Requests), e.Units, e.Cost})
	s.Counted = Counted{}
	if tokens := e.Usage.Input + e.Usage.CacheRead + e.Usage.CacheWrite; tokens > 0 {
		s.Counted = Counted{Tokens: tokens, Through: s.EvictedMessages + int64(s.Messages.Len())}
	}
	s.Unseen, s.Plan.Answered, s.Plan.Failed = 0, 0, 0
	if e.System != "" {
		s.System, s.SystemText, s.SystemBlob = e.System, e.SystemText, e.SystemBlob
	}
	hidden := s.Hidden
	s.Hidden = nil
	s.markCut(e)
	s.applyHalt(e.Halt)
	if len(e.Memory) > 0 {
		s.remember(e.Memory)
	}
	for part, b := range turn {
		if t, isText := b.(Text); !isText || t.Text != "" {
			s.appendMessage(RoleAssistant, b, 1, s.nextSource(part))
		}
	}
	s.Correction = e.Correction
	if role, b := e.trailingBlock(); b != nil {
		s.appendMessage(role, b, 0, s.nextSource(len(turn)))
	}
	return s.openRound(e, hidden)
}

// applyHalt records the verdict of a stop policy, if any. The first verdict stays.
func (s *AgentState) applyHalt(h *Halt) {
	if h != nil && s.Ending == "" {
		s.Ending, s.EndingDetail = Stopped(h.Code), h.Detail
	}
}

// openRound adds the reply's calls as the newest round. Open calls of older rounds stay live, together with all later
// calls. hidden are the tools that the model was not offered.
func (s *AgentState) openRound(e Replied, hidden []string) error {
	if len(e.Calls) == 0 {
		return nil
	}
	older := s.Live
	for len(older) > 0 && !older[0].Open() {
		s.archiveCall(older[0])
		older = older[1:]
	}
	s.Live = append(make([]Call, 0, len(older)+len(e.Calls)), older...)
	s.Round = Round{Inference: s.Prior + e.Inference, Sequential: e.Sequential}
	for _, rc := range e.Calls {
		if _, used := s.Call(rc.ID); used {
			return &ApplyError{Call: rc.ID, Problem: "the id is used already"}
		}
		c := Call{
			ID: rc.ID, Tool: rc.Original(), Name: rc.Name, Input: rc.Input, Inference: s.Prior + e.Inference,
			Effect: cmp.Or(rc.Effect, EffectNonIdempotent), Service: rc.Service, Breaks: rc.Breaks, Ahead: rc.Ahead,
			Repeats: rc.Repeats,
		}
		c.Hidden = rc.Unoffered || slices.Contains(hidden, c.Tool)
		if err := c.transition(StatusNew); err != nil {
			return err
		}
		s.Live = append(s.Live, c)
	}
	if e.Dropped != "" {
		turn, _ := e.turnBlocks()
		s.queue(Text{Text: e.Dropped}, len(turn))
	}
	return nil
}

func (rc RepliedCall) use() ToolUse { return ToolUse{ID: rc.ID, Name: rc.Name, Input: rc.Input} }

// turnBlocks returns the blocks of the model's turn in order: its text, split where reasoning is within it, its calls,
// and the reasoning among them. A block's index is its Source.Part forever. An empty piece of text keeps its index but
// is no message. ok is false if reasoning has a place that does not exist.
func (e Replied) turnBlocks() (blocks []Block, ok bool) {
	textEnd, callEnd := 0, 0
	add := func(text, calls int) {
		blocks = append(blocks, Text{Text: e.Text[textEnd:text]})
		for _, c := range e.Calls[callEnd:calls] {
			blocks = append(blocks, c.use())
		}
		textEnd, callEnd = text, calls
	}
	for _, r := range e.Reasoning {
		if r.AfterText < textEnd || r.AfterText > len(e.Text) || r.AfterCalls < callEnd || r.AfterCalls > len(e.Calls) ||
			r.AfterText < len(e.Text) && (r.AfterCalls > 0 || !utf8.RuneStart(e.Text[r.AfterText])) {
			return nil, false
		}
		add(r.AfterText, r.AfterCalls)
		blocks = append(blocks, r.Reasoning)
	}
	add(len(e.Text), len(e.Calls))
	return blocks, true
}

// trailingBlock returns the block that the reply adds after the model's turn, and its role: why the reply was refused,
// or the replacement of an empty summary. nil = none. The block's part is the number of the turn's blocks.
func (e Replied) trailingBlock() (Role, Block) {
	switch {
	case e.Static != "":
		return RoleAssistant, Text{Text: e.Static}
	case e.Correction.IsPending() && !e.Correction.Ephemeral:
		return RoleUser, Text{Text: e.Correction.Text}
	default:
		return "", nil
	}
}

// blocks returns all blocks that the reply adds: the model's turn and what follows it.
func (e Replied) blocks() []Block {
	blocks, _ := e.turnBlocks()
	if _, b := e.trailingBlock(); b != nil {
		blocks = append(blocks, b)
	}
	if e.Dropped != "" {
		blocks = append(blocks, Text{Text: e.Dropped})
	}
	return blocks
}

// verdictProblem returns what is wrong with the reply's verdict, or "". Calls need results and cannot end anything. A
// summary ends the run and is not corrected.
func (e Replied) verdictProblem() string {
	switch {
	case len(e.Calls) > 0 && (e.Summary || e.Correction != nil):
		return "a reply with calls is neither a summary nor refused"
	case e.Dropped != "" && len(e.Calls) == 0:
		return "only a reply with calls has dropped others"
	case (e.SystemText != "" || e.SystemBlob) && e.System == "" || e.SystemText != "" && e.SystemBlob:
		return "a system text needs its digest, and is either here or in a blob"
	case e.Halt != nil && (e.Halt.Code == "" || e.Summary):
		return "a stop policy has a code, and does not stop a summary"
	case e.Static != "" && (!e.Summary || e.Correction != nil):
		return "only an empty summary has a static text"
	case e.Correction != nil && (e.Correction.IsPending() == e.Summary || e.Correction.Text == ""):
		return "a refused reply says why and when the model is told, a refused summary only why"
	default:
		return ""
	}
}
