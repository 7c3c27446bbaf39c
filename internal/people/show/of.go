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
	Says       string            // what the model said beside the call; "" = nothing
	Uncovered  bool              // nothing is masked: for an approver who has asked for it, on record
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

// Of is what people are shown of a request: the same on every channel. It reads nothing and has no error: what cannot be read as JSON is
// shown as the bytes it is.
func Of(a approval.Approval, v View) Request {
	s := shower{a: a, v: v}
	r := Request{ID: a.ID, Status: string(a.Status), Title: s.title(), Facts: s.facts(), Bytes: len(a.Args)}
	t := v.tool(first(a.Tools))
	if a.Kind == approval.KindTools {
		for _, p := range a.Permissions {
			tool := s.tool(p)
			r.Tools, r.Risk = append(r.Tools, tool), higher(r.Risk, tool.Risk)
		}
	} else {
		r.Arguments, r.Risk = s.arguments(a.Args, t.Schema), RiskOf(a.Effect, t.Undo != nil)
	}
	if a.Ticket != nil {
		r.Question, r.Asked = s.question(*a.Ticket)
	}
	r.Changed = s.changed()
	r.Note, r.Claim, r.Says = s.foreign(a.RuleNote), s.foreign(a.Claimed), s.foreign(v.Says)
	r.History = s.history(t)
	r.Masked = s.masked
	return r
}

// shower makes a request for people, and remembers whether anything was masked.
type shower struct {
	a      approval.Approval
	v      View
	masked bool
}

func first(of []string) string {
	if len(of) == 0 {
		return ""
	}
	return of[0]
}

// title says what is asked, with names of the definition alone.
func (s *shower) title() Text {
	tools := names(s.a.Tools)
	switch s.a.Kind {
	case approval.KindTools:
		return slices.Concat(word("May "), bare(s.a.Agent, nil), word(" call "), tools, word("?"))
	case approval.KindOutcome:
		return slices.Concat(word("What became of "), tools, word(" of "), bare(s.a.Agent, nil), word("?"))
	case approval.KindInput:
		return slices.Concat(bare(s.a.Agent, nil), word(" waits for an answer to "), tools)
	}
	return slices.Concat(word("May "), bare(s.a.Agent, nil), word(" carry out "), tools, word("?"))
}

// names are names of the definition, which Check has read: it lets nothing odd pass, and neither does this.
func names(of []string) Text {
	var t Text
	for i, n := range of {
		if i > 0 {
			t = append(t, Span{Text: ", "})
		}
		t = append(t, bare(n, nil)...)
	}
	return t.joined()
}

// Stamp is a moment as people are shown it.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// The names of facts, in the order in which they are shown. A fact that has nothing to say is left out.
const (
	FactTool      = "tool"
	FactDoes      = "does" // what the definition says of the tool; of an MCP server's, which says it itself, nothing
	FactEffect    = "effect"
	FactTarget    = "target"
	FactRisk      = "risk"
	FactAgent     = "agent"
	FactRun       = "run"
	FactBelow     = "below"
	FactUndoes    = "undoes"
	FactRequester = "requester"
	FactWhy       = "why" // the rule's note
	FactDepends   = "depends"
	FactEdited    = "edited"
	FactAsks      = "asks"
	FactApprovers = "approvers"
	FactQuorum    = "quorum"
	FactFourEyes  = "four eyes"
	FactAsked     = "asked"
	FactExpires   = "expires"
	FactEscalates = "escalates"
	FactGranted   = "if granted"
	FactStands    = "stands" // how far a grant goes at most
	FactDenied    = "if denied"
	FactBinds     = "binds" // of one of several tools
)

// facts are B1's, in order.
func (s *shower) facts() []Fact {
	a := s.a
	var all []Fact
	add := func(name string, value Text) {
		if len(value) > 0 {
			all = append(all, Fact{Name: name, Label: labels[name], Value: value})
		}
	}
	t := s.v.tool(first(a.Tools))
	add(FactTool, names(a.Tools))
	if a.Kind != approval.KindTools {
		add(FactDoes, s.does(t))
		add(FactEffect, word(effectOf(a.Effect)))
		add(FactTarget, s.target(t))
		add(FactRisk, word(s.risk(a.Effect, t)))
	}
	add(FactAgent, bare(strings.TrimSpace(a.Agent+" "+a.Version), nil))
	add(FactRun, s.run())
	add(FactBelow, s.below())
	add(FactUndoes, s.undoes())
	add(FactRequester, s.requester())
	add(FactWhy, s.foreign(a.RuleNote))
	add(FactDepends, s.depends())
	add(FactEdited, s.edited())
	add(FactAsks, word(asks(a)))
	add(FactApprovers, Deciders(a.Approvers, a.Above))
	add(FactQuorum, s.quorum())
	if a.FourEyes {
		add(FactFourEyes, s.fourEyes())
	}
	add(FactAsked, word(Stamp(a.RequestedAt)))
	add(FactExpires, word(Stamp(a.ExpiresAt)+", then it is refused"))
	add(FactEscalates, s.escalates())
	add(FactGranted, granted(a))
	add(FactStands, s.stands())
	add(FactDenied, word(denied(a)))
	return all
}

var labels = map[string]string{
	FactTool: "tool", FactDoes: "does", FactEffect: "effect", FactTarget: "goes to", FactRisk: "risk", FactAgent: "agent", FactRun: "run",
	FactBelow: "below", FactUndoes: "undoes", FactRequester: "started by", FactWhy: "policy", FactAsks: "asks", FactDepends: "depends on", FactEdited: "edited", FactApprovers: "approvers",
	FactQuorum: "quorum", FactFourEyes: "four eyes", FactAsked: "asked", FactExpires: "expires", FactEscalates: "escalates",
	FactGranted: "if granted", FactStands: "it stands", FactDenied: "if denied", FactBinds: "binds",
}

// does is the description of a tool by whoever has written the agent. An MCP server describes its tools itself: that is no fact.
func (s *shower) does(t agent.ToolSpec) Text {
	if t.MCP != nil {
		return nil
	}
	return s.foreign(t.Description)
}

func (s *shower) run() Text {
	t := bare(s.a.Run, nil)
	if s.a.Kind != approval.KindTools && len(s.a.Calls) > 0 {
		t = slices.Concat(t, word(", call "), bare(s.a.Call(), nil))
	}
	return t.joined()
}

func (s *shower) below() Text {
	if s.a.Root == "" {
		return nil
	}
	return slices.Concat(word("call "), bare(s.a.ParentCall, nil), word(" of run "), bare(s.a.Parent, nil), word(", for run "), bare(s.a.Root, nil)).joined()
}

func (s *shower) undoes() Text {
	u := s.a.Undoes
	if u == nil {
		return nil
	}
	return slices.Concat(word("call "), bare(u.Call, nil), word(" of run "), bare(u.Run, nil)).joined()
}

// requester is who started the run, as they were authenticated. Whom the run is for by the word of the API's caller is
// no fact: it is Request.Claim.
func (s *shower) requester() Text {
	claimed := func(id string) bool { return id == s.a.Claimed }
	return s.list(slices.DeleteFunc(slices.Clone(s.a.Requesters), claimed))
}

// fourEyes says whom four eyes keep from approving.
func (s *shower) fourEyes() Text {
	if s.a.NoStarter {
		return word("nobody is known to have started the run: two different people approve")
	}
	return word("whoever started the run, is said to have it act for them, or told it what to do, may deny and not approve")
}

func (s *shower) list(of []string) Text {
	var t Text
	for i, one := range of {
		if i > 0 {
			t = append(t, Span{Text: ", "})
		}
		t = append(t, s.foreign(one)...)
	}
	return t.joined()
}

func (s *shower) escalates() Text {
	a := s.a
	switch {
	case len(a.EscalateTo) == 0:
		return nil
	case !a.EscalatedAt.IsZero():
		return slices.Concat(word("since "+Stamp(a.EscalatedAt)+" these decide as well: "), names(a.EscalateTo)).joined()
	}
	return slices.Concat(word("at "+Stamp(a.EscalatesAt)+", then these decide as well: "), names(a.EscalateTo)).joined()
}

// Deciders names who may decide: the approvers, and whom they must be among as well where agents that delegated the run have it asked.
func Deciders(approvers []string, above [][]string) Text {
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
		all = append(all, names(set)...)
	}
	return all.joined()
}

// quorum says how many different people approve, and who has.
func (s *shower) quorum() Text {
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
	t := word(fmt.Sprintf("%d different people approve, and one who denies is enough; %d of %d so far", a.Quorum, len(have), a.Quorum))
	if len(have) > 0 {
		t = slices.Concat(t, word(": "), names(have))
	}
	return t.joined()
}
