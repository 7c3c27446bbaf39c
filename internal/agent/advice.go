package agent

import (
	"encoding/json"
	"slices"
	"strings"
)

// Advice is what a run knows of the approvals of its agent's tools under an advisory policy (seed 003, approval cache). The zero Advice
// knows nothing.
type Advice struct {
	Tools []ToolApproval `json:"tools,omitempty"` // sorted by tool, each once; never written in place
	Read  bool           `json:"read,omitempty"`  // the agent's record was read since the run began or was last resumed
}

// ToolApproval is somebody's word on a tool: it may be used as it is, or an approval is to be asked for first.
type ToolApproval struct {
	Tool     string `json:"tool"` // the name the model uses
	Value    bool   `json:"value"`
	Comments string `json:"comments,omitempty"`
}

// of is what is known of a tool.
func (a Advice) of(tool string) (ToolApproval, bool) {
	i, ok := slices.BinarySearchFunc(a.Tools, tool, func(t ToolApproval, name string) int { return strings.Compare(t.Tool, name) })
	if !ok {
		return ToolApproval{}, false
	}
	return a.Tools[i], true
}

// with is the advice after somebody's words, of which the newer count.
func (a Advice) with(tools []ToolApproval) Advice {
	known := slices.Clone(a.Tools)
	for _, t := range tools {
		i, ok := slices.BinarySearchFunc(known, t.Tool, func(t ToolApproval, name string) int { return strings.Compare(t.Tool, name) })
		if ok {
			known[i] = t
		} else {
			known = slices.Insert(known, i, t)
		}
	}
	a.Tools = known
	return a
}

func (s *AgentState) toolsJudged(e ToolsJudged) error {
	if err := s.awake("tools_judged"); err != nil {
		return err
	}
	s.Advice = s.Advice.with(e.Tools)
	s.Advice.Read = s.Advice.Read || e.Call == ""
	return nil
}

// Advises reports whether tools of the definition may be flagged: an advisory policy that names a tool to ask for approvals with.
func (d *Definition) Advises() bool {
	return d.Permission.Mode == ModeAdvisory && d.Permission.ApprovalTool != ""
}

// Flaggable are the tools of an advisory policy that want an approval, by the names the model uses, in order of definition. The policy is
// asked as if nothing were known of the arguments, so a rule that asks of some calls flags its tool.
func (d *Definition) Flaggable() []string {
	if !d.Advises() {
		return nil
	}
	var names []string
	for _, t := range d.Tools {
		if t.Name != d.Permission.ApprovalTool && Decide(d.Permission, t, json.RawMessage(`{}`)).Verdict == VerdictAsk {
			names = append(names, t.ModelName())
		}
	}
	return names
}

// flagged are the definition's tools as the model is offered them: what wants an approval and has none says so in its description.
func (d *Definition) flagged(s *AgentState) []ToolSpec {
	names := d.Flaggable()
	if len(names) == 0 {
		return d.Tools
	}
	tools := slices.Clone(d.Tools)
	for i, t := range tools {
		said, _ := s.Advice.of(t.ModelName())
		if slices.Contains(names, t.ModelName()) && !said.Value {
			tools[i].Description = strings.TrimSpace(t.Description + " " + textAskApproval(ModelName(d.Permission.ApprovalTool), said.Comments))
		}
	}
	return tools
}

// Unheard are the calls of the approval tool whose answers the model has not seen yet: what they say counts from its next inference on.
func (d *Definition) Unheard(s *AgentState) []Call {
	if !d.Advises() {
		return nil
	}
	var calls []Call
	all := s.Messages.All()
	for i := len(all) - 1; i >= 0 && all[i].Seen(s.Inferences) == 0; i-- {
		r, ok := all[i].Block.(ToolResult)
		if !ok || r.IsError {
			continue
		}
		if c, ok := s.Call(r.ID); ok && c.Tool == d.Permission.ApprovalTool && c.Status == StatusSucceeded {
			calls = append(calls, c)
		}
	}
	slices.Reverse(calls)
	return calls
}

// ReadApprovals reads the answer of an approval tool: {"approvals": [{"tool", "value", "comments"?}]}. Of a tool that is named twice the
// last word counts. ok is false for anything else: it is an answer like any other.
func ReadApprovals(answer []byte) (tools []ToolApproval, ok bool) {
	var form struct {
		Approvals []struct {
			Tool     string `json:"tool"`
			Value    *bool  `json:"value"`
			Comments string `json:"comments"`
		} `json:"approvals"`
	}
	if json.Unmarshal(answer, &form) != nil || len(form.Approvals) == 0 {
		return nil, false
	}
	var a Advice
	for _, said := range form.Approvals {
		if !validWord(said.Tool) || said.Value == nil {
			return nil, false
		}
		a = a.with([]ToolApproval{{Tool: said.Tool, Value: *said.Value, Comments: validText(said.Comments)}})
	}
	return a.Tools, true
}
