package agent

// paired is the conversation as a provider takes it: every tool_use has exactly one result, which stands directly behind its turn. A
// result that came after other turns moves up to its tool_use, with the media behind it, and a placeholder stands for one that is still
// to come. The results of a turn are in request order. What is stored stays as it happened; seenCounts move with their messages. The
// slice has no room to append in place.
func (s *AgentState) paired() []Message {
	all := s.Messages.All()
	if !s.withPlaceholders() && s.From == nil { // results come in whole rounds
		return all
	}
	p := pairing{state: s, all: all, results: map[string]int{}, used: map[string]bool{}, out: make([]Message, 0, len(all)+len(s.Live))}
	for i, m := range all {
		if r, ok := m.Block.(ToolResult); ok {
			p.results[r.ID] = i
		}
	}
	for i := range all {
		p.add(i)
	}
	p.endTurn()
	return p.out[:len(p.out):len(p.out)]
}

// pairing is a conversation that is put in order.
type pairing struct {
	state   *AgentState
	all     []Message
	results map[string]int // where each call's result stands in all
	out     []Message
	turn    Source   // of the model's turn that is open
	owed    []string // its calls
	used    map[string]bool
	placed  int // messages of all up to here went with their result
}

// add takes message i of all.
func (p *pairing) add(i int) {
	m := p.all[i]
	if m.Role != RoleAssistant || !m.Source.sameEvent(p.turn) {
		p.endTurn()
		p.turn = m.Source
	}
	switch b := m.Block.(type) {
	case ToolUse:
		p.owed, p.used[b.ID] = append(p.owed, b.ID), true
	case ToolResult:
		if p.used[b.ID] {
			p.placed = resultEnd(p.all, i)
		}
	}
	if i >= p.placed {
		p.out = append(p.out, m)
	}
}

// resultEnd is the place behind the result at i and the media that came with it.
func resultEnd(all []Message, i int) int {
	j := i + 1
	for ; j < len(all) && all[j].Source.sameEvent(all[i].Source); j++ {
		if _, ok := all[j].Block.(Media); !ok {
			break
		}
	}
	return j
}

// endTurn puts the results of the open turn's calls behind it.
func (p *pairing) endTurn() {
	for _, id := range p.owed {
		if i, ok := p.results[id]; ok {
			p.out = append(p.out, p.all[i:resultEnd(p.all, i)]...)
		} else {
			p.out = append(p.out, p.state.placeholder(id))
		}
	}
	p.owed = nil
}

// placeholder stands in a request for the result of an open call.
func (s *AgentState) placeholder(id string) Message {
	c, _ := s.Call(id)
	return Message{Role: RoleUser, Block: ToolResult{ID: id, Content: textPlaceholder(c)}, Base: -s.Inferences}
}

// late lists the calls whose results no inference has carried and which the model has spoken since it made: paired has moved those.
func (s *AgentState) late() []string {
	all := s.Messages.All()
	last := len(all) - 1
	for ; last >= 0 && all[last].Role != RoleAssistant; last-- {
	}
	if last < 0 {
		return nil
	}
	turn := map[string]bool{}
	for i := last; i >= 0 && all[i].Role == RoleAssistant && all[i].Source.sameEvent(all[last].Source); i-- {
		if u, ok := all[i].Block.(ToolUse); ok {
			turn[u.ID] = true
		}
	}
	var ids []string
	for _, m := range all[last+1:] {
		if r, ok := m.Block.(ToolResult); ok && !turn[r.ID] && m.Seen(s.Inferences) == 0 {
			ids = append(ids, r.ID)
		}
	}
	return ids
}
