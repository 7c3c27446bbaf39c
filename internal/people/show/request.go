package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/run"
)

// View is what is known of a request besides what is stored with it. With the zero View, targets are not shown, and
// secrets are found by name and form alone.
type View struct {
	Definition *agent.Definition // the run's; nil = see Tools
	Tools      []agent.ToolSpec  // of the agent, where there is no definition
	ModelText  string            // the model's text beside the call; "" = none
	Unmasked   bool              // nothing is masked; this is recorded (Desk.RecordUnmasking)
}

// tool is the description of a tool by its original name; the zero ToolSpec if the tool is not known.
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

// Schema is the schema of the arguments of a request; nil if it is not known, or the request is about tools.
func (v View) Schema(a approval.Approval) json.RawMessage {
	if a.Kind == approval.KindTools {
		return nil
	}
	t := v.tool(first(a.Tools))
	return t.Schema
}

// BuildDocument returns what people are shown of a request, the same on every channel. It reads nothing and has no
// error: invalid JSON is shown as the bytes it is.
func BuildDocument(a approval.Approval, v View) Document {
	s := builder{a: a, view: v}
	t := v.tool(first(a.Tools))
	d := Document{ID: a.ID, Status: string(a.Status), Title: s.titleText(), Sentence: s.sentence()}
	if a.Kind == approval.KindTools {
		for _, p := range a.Permissions {
			s.addTool(&d, p)
		}
	} else {
		d.Risk, d.RiskText = RiskOf(a.Effect, t.Undo != nil), riskText(a.Effect, t)
		d.add(s.argumentsSection("Arguments, complete", a.Args, t.Schema))
	}
	d.add(Section{Name: Depends, Title: "What it depends on", Rows: s.dependsRows()})
	at := len(d.Sections)
	warnings := s.warnings()
	d.add(Section{Name: Who, Title: "Who decides, until when", Rows: s.whoRows()})
	d.add(Section{Name: About, Title: "About this request", Rows: s.aboutRows(t)})
	d.add(Section{Name: History, Title: "History", Rows: s.history(t)})
	claim := aloneRow(s.foreignText(a.ClaimedSubject))
	d.add(untrusted(Claim, "The caller says the run is for (nobody checked it)", claim))
	d.add(untrusted(Asks, "The tool asks (its own words, not checked)", s.questionRows()))
	d.add(untrusted(Says, "The model says (its own words, not checked)", aloneRow(s.foreignText(v.ModelText))))
	if d.Masked = s.masked; s.masked {
		warnings.add(FactMasked, ownText("secrets are masked; the decision is on what is stored, with them"))
	}
	if len(warnings) > 0 {
		d.Sections = slices.Insert(d.Sections, at, Section{Name: Warnings, Title: "Warnings", Rows: warnings})
	}
	return d
}

func untrusted(name Name, title string, lines []Row) Section {
	return Section{Name: name, Title: title, Untrusted: true, Rows: lines}
}

func aloneRow(t Text) []Row {
	if len(t) == 0 {
		return nil
	}
	return []Row{{Value: t}}
}

// builder builds a Document and records whether anything was masked.
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

// FormatTime is a time as people are shown it.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// The names of facts. An empty fact is left out.
const (
	FactTool        = "tool"
	FactDescription = "does" // the description of the tool; none for MCP tools
	FactTarget      = "target"
	FactRisk        = "risk" // of one of several tools
	FactAgent       = "agent"
	FactRun         = "run"
	FactParent      = "below"
	FactUndoes      = "undoes"
	FactRequester   = "requester"
	FactWhy         = "why" // the rule's note
	FactDepends     = "depends"
	FactWas         = "was" // what the precondition gave before
	FactEdited      = "edited"
	FactMasked      = "masked"
	FactAsks        = "asks"
	FactApprovers   = "approvers"
	FactQuorum      = "quorum"
	FactFourEyes    = "four eyes"
	FactVia         = "via" // the channels by which it is approved
	FactAsked       = "asked"
	FactExpires     = "expires"
	FactEscalates   = "escalates"
	FactGranted     = "if granted"
	FactGrantLimits = "stands" // how far a grant goes at most
	FactDenied      = "if denied"
	FactBinds       = "binds" // of one of several tools
)

// labels are the labels of facts that are not their names.
var labels = map[string]string{
	FactTarget: "runs in", FactVia: "channels", FactRequester: "started by", FactWhy: "policy", FactDepends: "depends on",
	FactWas: "changed", FactGrantLimits: "it stands",
}

// facts collects the lines of a section.
type facts []Row

func (f *facts) add(name string, value Text) {
	if len(value) > 0 {
		*f = append(*f, Row{Name: name, Label: ownText(cmp.Or(labels[name], name)), Value: value})
	}
}

// dependsRows say what a decision is about besides the arguments.
func (s *builder) dependsRows() (all facts) {
	all.add(FactAsks, ownText(decisionSubject(s.a)))
	all.add(FactDepends, s.preconditionText())
	if u := s.a.Undoes; u != nil {
		all.add(FactUndoes, slices.Concat(ownText("call "), bareText(u.Call, nil), ownText(" of run "),
			bareText(u.Run, nil)).merged())
	}
	all.add(FactWhy, s.foreignText(s.a.RuleNote))
	return all
}

// warnings say what is not as it was.
func (s *builder) warnings() (all facts) {
	all.add(FactWas, s.preconditionChange())
	if original := s.a.OriginalArgs; original != nil {
		schema := s.view.tool(first(s.a.Tools)).Schema
		all.add(FactEdited, slices.Concat(ownText("the arguments are a person's; the model asked for "),
			s.jsonText(original, schema)).merged())
	}
	return all
}

// whoRows say who decides, and until when.
func (s *builder) whoRows() (all facts) {
	a := s.a
	all.add(FactApprovers, ApproversText(a.Approvers, a.Above))
	all.add(FactQuorum, s.quorumText())
	switch {
	case a.FourEyes && a.StarterUnknown:
		all.add(FactFourEyes, ownText("nobody is known to have started the run: two different people approve"))
	case a.FourEyes:
		all.add(FactFourEyes, ownText("whoever started the run, is said to have it act for them, or told it what to do, "+
			"may deny and not approve"))
	}
	all.add(FactVia, ownText(viaText(a)))
	all.add(FactExpires, ownText(FormatTime(a.ExpiresAt)+", then it is refused"))
	switch {
	case len(a.EscalateTo) == 0:
	case !a.EscalatedAt.IsZero():
		since := ownText("since " + FormatTime(a.EscalatedAt) + " these decide as well: ")
		all.add(FactEscalates, slices.Concat(since, namesText(a.EscalateTo)).merged())
	default:
		at := ownText("at " + FormatTime(a.EscalatesAt) + ", then these decide as well: ")
		all.add(FactEscalates, slices.Concat(at, namesText(a.EscalateTo)).merged())
	}
	all.add(FactGranted, grantText(a))
	all.add(FactGrantLimits, s.grantLimits())
	all.add(FactDenied, ownText(denialText(a)))
	return all
}

// aboutRows are the other facts of approvals.md, B1.
func (s *builder) aboutRows(t agent.ToolSpec) (all facts) {
	a := s.a
	all.add(FactTool, namesText(a.Tools))
	if a.Kind != approval.KindTools {
		all.add(FactDescription, s.descriptionText(t))
		all.add(FactTarget, s.targetText(t))
	}
	all.add(FactAgent, bareText(strings.TrimSpace(a.Agent+" "+a.Version), nil))
	run := bareText(a.Run, nil)
	if a.Kind != approval.KindTools && len(a.Calls) > 0 {
		run = slices.Concat(run, ownText(", call "), bareText(a.Call(), nil))
	}
	all.add(FactRun, run.merged())
	if a.Root != "" {
		all.add(FactParent, slices.Concat(ownText("call "), bareText(a.ParentCall, nil), ownText(" of run "),
			bareText(a.Parent, nil), ownText(", for run "), bareText(a.Root, nil)).merged())
	}
	// The authenticated people who started the run. The subject that the API's caller claims is no fact: see Claim.
	var requesters Text
	claimed := func(id string) bool { return id == a.ClaimedSubject }
	for i, id := range slices.DeleteFunc(slices.Clone(a.Requesters), claimed) {
		if i > 0 {
			requesters = append(requesters, Span{Text: ", "})
		}
		requesters = append(requesters, s.foreignText(id)...)
	}
	all.add(FactRequester, requesters.merged())
	all.add(FactAsked, ownText(FormatTime(a.RequestedAt)))
	return all
}

// viaText names the channels by which a request is approved; "" = every one.
func viaText(a approval.Approval) string {
	c := a.ChannelsOf(approval.DecisionInput{})
	text := c.Words()
	switch {
	case c.Via == nil && c.Confirm == "":
		return ""
	case c.TakeCode(run.ViaPage) && c.Allow(run.ViaPage):
		text += "; on its page with a code that is sent by another channel than the link"
	}
	return text + "; denied by every channel"
}

// descriptionText is the description of a tool by the agent's author. An MCP server's own description is no fact.
func (s *builder) descriptionText(t agent.ToolSpec) Text {
	if t.MCP != nil {
		return nil
	}
	return s.foreignText(t.Description)
}

// ApproversText names who may decide: the approvers, and the sets of delegating agents that they must be in as well.
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

// quorumText says how many different people must approve, and who has.
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

// history is the history of a request, in order of time.
func (s *builder) history(t agent.ToolSpec) []Row {
	a := s.a
	type event struct {
		at    time.Time
		lines []Row
	}
	var all []event
	add := func(at time.Time, args []Row, parts ...Text) {
		lines := []Row{{Label: ownText(FormatTime(at)), Value: slices.Concat(parts...).merged()}}
		for _, l := range args {
			l.Depth++
			lines = append(lines, l)
		}
		all = append(all, event{at, lines})
	}
	add(a.RequestedAt, nil, ownText("asked by "), bareText(a.Agent, nil))
	if !a.EscalatedAt.IsZero() {
		add(a.EscalatedAt, nil, ownText("asked as well: "), namesText(a.EscalateTo))
	}
	for _, r := range a.Thread {
		add(r.At, nil, s.foreignText(r.By), ownText(" said"), s.noteText(r.Text))
	}
	for _, d := range a.Decisions {
		var args []Row
		switch {
		case d.Action == approval.Edit:
			args = s.arguments(d.Args, t.Schema)
		case a.Kind == approval.KindInput:
			args = s.arguments(d.Args, nil)
		}
		verb := ownText(decisionVerb(d.Action, a.Kind))
		if len(d.Tools) > 0 {
			verb = slices.Concat(verb, ownText(" "), namesText(d.Tools))
		}
		add(d.At, args, verb, ownText(" by "), s.foreignText(d.By), s.noteText(d.Note), s.decisionGrantText(d.Grant))
	}
	if a.Status == approval.Expired {
		add(a.ExpiresAt, nil, ownText("expired"))
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.at.UnixMilli(), b.at.UnixMilli()) })
	var lines []Row
	for _, e := range all {
		lines = append(lines, e.lines...)
	}
	return lines
}

// noteText is what a person wrote, behind the words before it.
func (s *builder) noteText(text string) Text {
	if text == "" {
		return nil
	}
	return slices.Concat(ownText(`: "`), s.foreignText(text), ownText(`"`))
}

// preconditionText says what the call's precondition returned when people were asked.
func (s *builder) preconditionText() Text {
	k := s.a.Precondition
	if k == nil {
		return nil
	}
	return slices.Concat(namesText([]string{k.Tool}), ownText(" of "), s.jsonText(k.Args, s.view.tool(k.Tool).Schema), ownText(resultVerb(k.IsError)), s.contentText(k.Content, k.IsError),
		ownText(", at "+FormatTime(k.At)+"; read again before the call runs")).merged()
}

// preconditionChange says what the precondition returned when people were asked before, if that is why they are asked
// again.
func (s *builder) preconditionChange() Text {
	k := s.a.Precondition
	if k == nil || k.Was == nil {
		return nil
	}
	w := k.Was
	return slices.Concat(ownText("when it was asked before, "), namesText([]string{k.Tool}), ownText(" of "), s.jsonText(w.Args, s.view.tool(k.Tool).Schema),
		ownText(resultVerb(w.IsError)), s.contentText(w.Content, w.IsError), ownText(", at "+FormatTime(w.At))).merged()
}

func resultVerb(failed bool) string {
	if failed {
		return " failed: "
	}
	return " says "
}

// contentText is a tool's result: JSON with secrets masked, or a text.
func (s *builder) contentText(content string, failed bool) Text {
	if !failed && json.Valid([]byte(content)) {
		return s.jsonText(json.RawMessage(content), nil)
	}
	return s.foreignText(content)
}

// jsonText is a JSON value with secrets masked by its schema and by form; the schema may be nil.
func (s *builder) jsonText(raw, schema json.RawMessage) Text {
	text := string(raw)
	if masked := mask.JSON(raw, schema); masked != text && !s.view.Unmasked {
		s.masked, text = true, masked
	}
	return PlainQuotes(s.foreignText(text))
}
