package show

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
)

// View is what is known of a request beside what is stored with it. The zero View knows nothing: then nothing is said of where calls go,
// and secrets are found by name and form alone.
type View struct {
	Definition *agent.Definition // the run's; nil = see Tools
	Tools      []agent.ToolSpec  // of the agent, where there is no definition
	ModelText  string            // what the model said beside the call; "" = nothing
	Unmasked   bool              // nothing is masked: for an approver who has asked for it, on record
}

// tool is the description of a tool, by its original name; the zero one of a tool that is not known.
func (v View) tool(name string) agent.ToolSpec {
	if v.Definition != nil {
		t, _ := v.Definition.Tool(name)
		return t
	}
	for _, t := range v.Tools {
		if t.Name == name {
			return t
		}
	}
	return agent.ToolSpec{}
}

// Schema is the schema of the arguments that a request is about; nil where it is not known, or the request is about tools.
func (v View) Schema(a approval.Approval) json.RawMessage {
	if a.Kind == approval.KindTools {
		return nil
	}
	t := v.tool(first(a.Tools))
	return t.Schema
}

// BuildRequest is what people are shown of a request: the same on every channel. It reads nothing and has no error: what cannot be read as JSON is
// shown as the bytes it is.
func BuildRequest(a approval.Approval, v View) Request {
	s := builder{a: a, view: v}
	r := Request{ID: a.ID, Status: string(a.Status), Title: s.titleText(), Facts: s.facts(), Bytes: len(a.Args)}
	t := v.tool(first(a.Tools))
	if a.Kind == approval.KindTools {
		for _, p := range a.Permissions {
			tool := s.buildTool(p)
			r.Tools, r.Risk = append(r.Tools, tool), higherRisk(r.Risk, tool.Risk)
		}
	} else {
		r.Arguments, r.Risk = s.arguments(a.Args, t.Schema), RiskOf(a.Effect, t.Undo != nil)
	}
	if a.Ticket != nil {
		r.Question, r.Asked = s.questionText(*a.Ticket)
	}
	r.Changed = s.preconditionChange()
	r.Note, r.Claim, r.Says = s.foreignText(a.RuleNote), s.foreignText(a.ClaimedSubject), s.foreignText(v.ModelText)
	r.History = s.history(t)
	r.Masked = s.masked
	return r
}

// builder makes a request for people, and remembers whether anything was masked.
type builder struct {
	a      approval.Approval
	view   View
	masked bool
}

func first(of []string) string {
	if len(of) == 0 {
		return ""
	}
	return of[0]
}

// titleText says what is asked, with names of the definition alone.
func (s *builder) titleText() Text {
	tools := namesText(s.a.Tools)
	switch s.a.Kind {
	case approval.KindTools:
		return slices.Concat(ownText("May "), bareText(s.a.Agent, nil), ownText(" call "), tools, ownText("?"))
	case approval.KindOutcome:
		return slices.Concat(ownText("What became of "), tools, ownText(" of "), bareText(s.a.Agent, nil), ownText("?"))
	case approval.KindInput:
		return slices.Concat(bareText(s.a.Agent, nil), ownText(" waits for an answer to "), tools)
	}
	return slices.Concat(ownText("May "), bareText(s.a.Agent, nil), ownText(" carry out "), tools, ownText("?"))
}

// namesText are names of the definition, which Check has read: it lets nothing odd pass, and neither does this.
func namesText(of []string) Text {
	var t Text
	for i, n := range of {
		if i > 0 {
			t = append(t, Span{Text: ", "})
		}
		t = append(t, bareText(n, nil)...)
	}
	return t.merged()
}

// FormatTime is a moment as people are shown it.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// The names of facts, in the order in which they are shown. A fact that has nothing to say is left out.
const (
	FactTool        = "tool"
	FactDescription = "does" // what the definition says of the tool; of an MCP server's, which says it itself, nothing
	FactEffect      = "effect"
	FactTarget      = "target"
	FactRisk        = "risk"
	FactAgent       = "agent"
	FactRun         = "run"
	FactParent      = "below"
	FactUndoes      = "undoes"
	FactRequester   = "requester"
	FactWhy         = "why" // the rule's note
	FactDepends     = "depends"
	FactEdited      = "edited"
	FactAsks        = "asks"
	FactApprovers   = "approvers"
	FactQuorum      = "quorum"
	FactFourEyes    = "four eyes"
	FactAsked       = "asked"
	FactExpires     = "expires"
	FactEscalates   = "escalates"
	FactGranted     = "if granted"
	FactGrantLimits = "stands" // how far a grant goes at most
	FactDenied      = "if denied"
	FactBinds       = "binds" // of one of several tools
)

// facts are B1's, in order.
func (s *builder) facts() []Fact {
	a := s.a
	var all []Fact
	add := func(name string, value Text) {
		if len(value) > 0 {
			all = append(all, Fact{Name: name, Label: labels[name], Value: value})
		}
	}
	t := s.view.tool(first(a.Tools))
	add(FactTool, namesText(a.Tools))
	if a.Kind != approval.KindTools {
		add(FactDescription, s.descriptionText(t))
		add(FactEffect, ownText(effectText(a.Effect)))
		add(FactTarget, s.targetText(t))
		add(FactRisk, ownText(s.riskText(a.Effect, t)))
	}
	add(FactAgent, bareText(strings.TrimSpace(a.Agent+" "+a.Version), nil))
	add(FactRun, s.runText())
	add(FactParent, s.parentText())
	add(FactUndoes, s.undoesText())
	add(FactRequester, s.requesterText())
	add(FactWhy, s.foreignText(a.RuleNote))
	add(FactDepends, s.preconditionText())
	add(FactEdited, s.editedText())
	add(FactAsks, ownText(decisionSubject(a)))
	add(FactApprovers, ApproversText(a.Approvers, a.Above))
	add(FactQuorum, s.quorumText())
	if a.FourEyes {
		add(FactFourEyes, s.fourEyesText())
	}
	add(FactAsked, ownText(FormatTime(a.RequestedAt)))
	add(FactExpires, ownText(FormatTime(a.ExpiresAt)+", then it is refused"))
	add(FactEscalates, s.escalationText())
	add(FactGranted, grantText(a))
	add(FactGrantLimits, s.grantLimits())
	add(FactDenied, ownText(denialText(a)))
	return all
}

var labels = map[string]string{
	FactTool: "tool", FactDescription: "does", FactEffect: "effect", FactTarget: "goes to", FactRisk: "risk", FactAgent: "agent", FactRun: "run",
	FactParent: "below", FactUndoes: "undoes", FactRequester: "started by", FactWhy: "policy", FactAsks: "asks", FactDepends: "depends on", FactEdited: "edited", FactApprovers: "approvers",
	FactQuorum: "quorum", FactFourEyes: "four eyes", FactAsked: "asked", FactExpires: "expires", FactEscalates: "escalates",
	FactGranted: "if granted", FactGrantLimits: "it stands", FactDenied: "if denied", FactBinds: "binds",
}

// descriptionText is the description of a tool by whoever has written the agent. An MCP server describes its tools itself: that is no fact.
func (s *builder) descriptionText(t agent.ToolSpec) Text {
	if t.MCP != nil {
		return nil
	}
	return s.foreignText(t.Description)
}

func (s *builder) runText() Text {
	t := bareText(s.a.Run, nil)
	if s.a.Kind != approval.KindTools && len(s.a.Calls) > 0 {
		t = slices.Concat(t, ownText(", call "), bareText(s.a.Call(), nil))
	}
	return t.merged()
}

func (s *builder) parentText() Text {
	if s.a.Root == "" {
		return nil
	}
	return slices.Concat(ownText("call "), bareText(s.a.ParentCall, nil), ownText(" of run "), bareText(s.a.Parent, nil), ownText(", for run "), bareText(s.a.Root, nil)).merged()
}

func (s *builder) undoesText() Text {
	u := s.a.Undoes
	if u == nil {
		return nil
	}
	return slices.Concat(ownText("call "), bareText(u.Call, nil), ownText(" of run "), bareText(u.Run, nil)).merged()
}

// requesterText is who started the run, as they were authenticated. Whom the run is for by the word of the API's caller is
// no fact: it is Request.Claim.
func (s *builder) requesterText() Text {
	claimed := func(id string) bool { return id == s.a.ClaimedSubject }
	return s.listText(slices.DeleteFunc(slices.Clone(s.a.Requesters), claimed))
}

// fourEyesText says whom four eyes keep from approving.
func (s *builder) fourEyesText() Text {
	if s.a.StarterUnknown {
		return ownText("nobody is known to have started the run: two different people approve")
	}
	return ownText("whoever started the run, is said to have it act for them, or told it what to do, may deny and not approve")
}

func (s *builder) listText(of []string) Text {
	var t Text
	for i, one := range of {
		if i > 0 {
			t = append(t, Span{Text: ", "})
		}
		t = append(t, s.foreignText(one)...)
	}
	return t.merged()
}

func (s *builder) escalationText() Text {
	a := s.a
	switch {
	case len(a.EscalateTo) == 0:
		return nil
	case !a.EscalatedAt.IsZero():
		return slices.Concat(ownText("since "+FormatTime(a.EscalatedAt)+" these decide as well: "), namesText(a.EscalateTo)).merged()
	}
	return slices.Concat(ownText("at "+FormatTime(a.EscalatesAt)+", then these decide as well: "), namesText(a.EscalateTo)).merged()
}

// ApproversText names who may decide: the approvers, and whom they must be among as well where agents that delegated the run have it asked.
func ApproversText(approvers []string, above [][]string) Text {
	sets := []string{}
	var all Text
	for i, set := range append([][]string{approvers}, above...) {
		if key := strings.Join(set, ", "); i == 0 || !slices.Contains(sets, key) {
			sets = append(sets, key)
		} else {
			continue
		}
		if i > 0 {
			all = append(all, Span{Text: "; and at once "})
		}
		if len(set) == 0 {
			all = append(all, Span{Text: "nobody"})
		}
		all = append(all, namesText(set)...)
	}
	return all.merged()
}

// quorumText says how many different people approve, and who has.
func (s *builder) quorumText() Text {
	a := s.a
	if a.Quorum < 2 {
		return nil
	}
	var have []string
	for _, d := range a.Decisions {
		if d.Action == approval.Edit { // a new action: what others said was of another one
			have = nil
		}
		if who := d.By; (d.Action == approval.Approve || d.Action == approval.Edit) && !slices.Contains(have, who) {
			have = append(have, who)
		}
	}
	t := ownText(fmt.Sprintf("%d different people approve, and one who denies is enough; %d of %d so far", a.Quorum, len(have), a.Quorum))
	if len(have) > 0 {
		t = slices.Concat(t, ownText(": "), namesText(have))
	}
	return t.merged()
}
