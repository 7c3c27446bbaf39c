package agent

import "encoding/json"

// Spoken is a message of a conversation as people see it, with its seenCount. That of one that was evicted is what it was then.
type Spoken struct {
	Message
	SeenCount int64
	Evicted   bool
}

// Departed applies an entry to s as ApplyEntry does, and lists the messages that it evicts, oldest first.
func Departed(s AgentState, e Entry) (left []Spoken, after AgentState, err error) {
	if after, err = ApplyEntry(s, e); err != nil || after.EvictedMessages == s.EvictedMessages || after.Entries == s.Entries {
		return nil, after, err
	}
	d := NewDraft(s, e.Writer, e.Time)
	for _, fact := range e.Events {
		before := d.State
		if err := d.Add(fact); err != nil {
			return nil, s, err
		}
		if _, evicts := fact.(Evicted); evicts {
			for _, m := range before.Messages.All()[:d.State.EvictedMessages-before.EvictedMessages] {
				left = append(left, Spoken{Message: m, SeenCount: m.Seen(before.Inferences), Evicted: true})
			}
		}
	}
	return left, after, nil
}

// Spoken are the messages of the conversation as it stands.
func (s *AgentState) Spoken() []Spoken {
	all := s.Messages.All()
	out := make([]Spoken, len(all))
	for i, m := range all {
		out[i] = Spoken{Message: m, SeenCount: m.Seen(s.Inferences)}
	}
	return out
}

// MarshalSpoken writes messages as a run's JSON does, those that were evicted marked.
func MarshalSpoken(messages []Spoken) ([]byte, error) {
	out := make([]messageJSON, len(messages))
	for i, m := range messages {
		content, err := MarshalBlock(m.Block)
		if err != nil {
			return nil, err
		}
		out[i] = messageJSON{m.Role, m.SeenCount, content, m.Evicted}
	}
	return json.Marshal(out)
}
