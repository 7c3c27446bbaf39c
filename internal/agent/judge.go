package agent

import "encoding/json"

// judge is one policy's word on a planned reply without calls: the reply, with a correction where it is not the last word.
type judge func(d *Definition, s *AgentState, e Replied) Replied

// Judge says whether a planned reply to s may end the run, and puts it into the fact where it may not. Replies with calls end nothing and
// are not judged, nor is one that goes on. valid checks a value against the definition's output schema; its error is for the model to read.
func Judge(d *Definition, s *AgentState, e Replied, valid func(value json.RawMessage) error) Replied {
	if len(e.Calls) > 0 {
		return e
	}
	for _, says := range d.judges(valid) {
		if e.Correction != nil {
			break
		}
		e = says(d, s, e)
	}
	return e
}

// judges are asked in order; the first that finds something has the last word. An output of format json is what its schema says it is: a
// value may hold any words, so the heuristic has no say about it.
func (d *Definition) judges(valid func(value json.RawMessage) error) []judge {
	fits := func(d *Definition, s *AgentState, e Replied) Replied { return judgeOutput(d, s, e, valid) }
	switch {
	case d.Text == TextRequireTool && d.Output.Format == OutputJSON:
		return []judge{judgeCall, fits}
	case d.Text == TextRequireTool:
		return []judge{judgeCall}
	case d.Output.Format == OutputJSON:
		return []judge{fits}
	case d.Text == TextHeuristic:
		return []judge{judgeEmpty, judgeText}
	default:
		return nil
	}
}
