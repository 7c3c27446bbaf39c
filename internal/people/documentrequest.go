package people

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/run"
)

// DocumentView is what is known of a request besides what is stored with it. With the zero DocumentView, targets are
// not shown, and secrets are found by name and form alone.
type DocumentView struct {
	Definition *agent.Definition // the run's; nil = it is not known
	ModelText  string            // the model's text beside the call; "" = none
	Unmasked   bool              // nothing is masked; this is recorded (Desk.RecordUnmasking)
	Zone       *time.Location    // of times; nil = UTC
}

func (v DocumentView) timeText(t time.Time) Text {
	return Text{{Text: FormatTimeIn(t, v.Zone), Kind: SpanTime}}
}

// tool is the description of a tool by its original name; the zero ToolSpec if the tool is not known.
func (v DocumentView) tool(name string) (t agent.ToolSpec) {
	if v.Definition != nil {
		t, _ = v.Definition.Tool(name)
	}
	return t
}

// Schema is the schema of the arguments of a request; nil if it is not known, or the request is about tools.
func (v DocumentView) Schema(a approval.Approval) json.RawMessage {
	if a.Kind == approval.KindTools {
		return nil
	}
	return v.tool(firstOf(a.Tools)).Schema
}

// BuildDocument returns what people are shown of a request, the same on every channel. It reads nothing and has no
// error: invalid JSON is shown as the bytes it is.
func BuildDocument(a approval.Approval, v DocumentView) Document {
	s := documentBuilder{a: a, view: v}
	t := v.tool(firstOf(a.Tools))
	title := textf(wordings[a.Kind].title, BareText(a.Agent), namesText(a.Tools)) // with names of the definition alone
	d := Document{Title: title, Sentence: s.sentence()}
	if a.Kind == approval.KindTools {
		for _, p := range a.Permissions {
			s.addTool(&d, p)
		}
	} else {
		d.Risk, d.RiskText = RiskOf(a.Effect, t.Undo != nil), riskText(a.Effect, t)
		d.add(s.argumentsSection("Arguments, complete", a.Args, t.Schema))
	}
	d.add(Section{Name: SectionDepends, Title: "What it depends on", Rows: s.dependsRows()})
	at := len(d.Sections)
	warnings := s.warnings()
	d.add(Section{Name: SectionWho, Title: "Who decides, until when", Rows: s.whoRows()})
	d.add(Section{Name: SectionAbout, Title: "About this request", Rows: s.aboutRows(t)})
	d.add(Section{Name: SectionHistory, Title: "History", Rows: s.history(t)})
	claim := aloneRow(s.foreignText(a.ClaimedSubject))
	says := aloneRow(s.foreignText(v.ModelText))
	d.add(Section{SectionClaim, "The caller says the run is for (nobody checked it)", true, claim})
	d.add(Section{SectionAsks, "The tool asks (its own words, not checked)", true, s.questionRows()})
	d.add(Section{SectionSays, "The model says (its own words, not checked)", true, says})
	if d.Masked = s.masked; s.masked {
		warnings.add("masked", ownText("secrets are masked; the decision is on what is stored, with them"))
	}
	if len(warnings) > 0 {
		d.Sections = slices.Insert(d.Sections, at, Section{Name: SectionWarnings, Title: "Warnings", Rows: warnings})
	}
	return d
}

func aloneRow(t Text) []Row {
	if len(t) == 0 {
		return nil
	}
	return []Row{{Value: t}}
}

// documentBuilder builds a Document and records whether anything was masked.
type documentBuilder struct {
	a      approval.Approval
	view   DocumentView
	masked bool
}

func firstOf(of []string) string {
	if len(of) == 0 {
		return ""
	}
	return of[0]
}

// namesText are names of the definition, which Check has read: it lets nothing odd pass, and neither does this.
func namesText(of []string) Text {
	texts := make([]Text, len(of))
	for i, n := range of {
		texts[i] = BareText(n)
	}
	return joinTexts(texts)
}

// FormatTime is a time as people are shown it who may be anywhere.
func FormatTime(t time.Time) string { return FormatTimeIn(t, time.UTC) }

// FormatTimeIn is a time as people are shown it in a zone, which it names; nil = UTC.
func FormatTimeIn(t time.Time, zone *time.Location) string {
	return t.In(cmp.Or(zone, time.UTC)).Format("2006-01-02 15:04:05 MST")
}

// FactTool is the name of the fact that says which tools are asked about.
const FactTool = "tool"

// factLabels are the labels of facts that are not their names.
var factLabels = map[string]string{
	"target": "runs in", "via": "channels", "requester": "started by", "why": "policy", "depends": "depends on",
	"wrong": "looks wrong", "was": "changed", "stands": "it stands",
}

type facts []Row

func (f *facts) add(name string, value Text) {
	if len(value) > 0 {
		*f = append(*f, Row{Name: name, Label: ownText(cmp.Or(factLabels[name], name)), Value: value})
	}
}

// dependsRows say what a decision is about besides the arguments.
func (s *documentBuilder) dependsRows() (all facts) {
	mode := run.TicketMode("")
	if s.a.Ticket != nil {
		mode = s.a.Ticket.Mode
	}
	all.add("asks", textf(wordings[s.a.Kind].subject, ownText(answerEffects[mode])))
	if k := s.a.Precondition; k != nil {
		rows := s.contentRows()
		if len(rows) == 0 {
			all.add("depends", textf("%1; read again before the call runs",
				s.checkedText(k.Tool, k.Args, k.Content, k.IsError, k.At)))
		} else {
			all.add("depends", textf("%1 of %2, read at %3; read again before the call runs", BareText(k.Tool),
				s.jsonText(k.Args, s.view.tool(k.Tool).Schema), s.view.timeText(k.At)))
		}
		for _, row := range rows {
			row.Depth++
			all = append(all, row)
		}
	}
	if u := s.a.Undoes; u != nil {
		all.add("undoes", textf("call %1 of run %2", BareText(u.Call), BareText(u.Run)))
	}
	all.add("why", s.foreignText(s.a.RuleNote))
	return all
}

// contentRows are the fields of what the request depends on, where it is a JSON object; nil = it is not. What looks
// wrong by the agent's definition is marked.
func (s *documentBuilder) contentRows() []Row {
	k, t := s.a.Precondition, s.view.tool(firstOf(s.a.Tools))
	content := json.RawMessage(k.Content)
	if k.IsError || jsonx.JSONKind(content) != '{' || !json.Valid(content) {
		return nil
	}
	rows := s.arguments(content, nil)
	if t.Precondition == nil {
		return rows
	}
	for _, w := range t.Precondition.Warn {
		path, err := jsonx.ParsePointer(w.Path)
		if len(t.Precondition.Compare) > 0 { // the content has values by their pointers
			path, w.Path = []string{w.Path}, jsonx.FormatPointer([]string{w.Path})
		}
		if err != nil || !jsonx.Fits([]run.Condition{w}, content) {
			continue
		}
		var at []string
		for i, row := range rows {
			at = append(at[:row.Depth], strings.Trim(row.Label.String(), `[]"`))
			rows[i].Wrong = row.Wrong || slices.Equal(at, path)
		}
	}
	return rows
}

// warnings say what looks wrong, and what is not as it was.
func (s *documentBuilder) warnings() (all facts) {
	if s.a.Precondition != nil {
		for _, row := range s.contentRows() {
			if row.Wrong {
				all.add("wrong", textf("%1 is %2", row.Label, row.Value))
			}
		}
	}
	if k := s.a.Precondition; k != nil && k.Was != nil { // that is why people are asked again
		all.add("was", textf("when it was asked before, %1",
			s.checkedText(k.Tool, k.Was.Args, k.Was.Content, k.Was.IsError, k.Was.At)))
	}
	most, known := mostApprovers(s.a)
	asks := s.a.Kind == approval.KindCall || s.a.Kind == approval.KindInput
	if asks && known && most < s.a.Quorum && s.a.Status == approval.Pending {
		all.add("too few", ownText(fmt.Sprintf(
			"it takes %d people to approve it, and at most %d can: it can only be denied, or expire", s.a.Quorum, most)))
	}
	original, schema := s.a.OriginalArgs, s.view.tool(firstOf(s.a.Tools)).Schema
	switch {
	case s.a.EditedBy != "" && original != nil:
		all.add("edited", textf("the arguments are a person's; %1 had changed those of the model to %2",
			BareText(s.a.EditedBy), s.jsonText(original, schema)))
	case s.a.EditedBy != "":
		all.add("edited", textf("the arguments are those of %1, who changed the model's", BareText(s.a.EditedBy)))
	case original != nil:
		all.add("edited", textf("the arguments are a person's; the model asked for %1", s.jsonText(original, schema)))
	}
	return all
}

// mostApprovers returns how many people can approve the request at most. known = a set has only names.
func mostApprovers(a approval.Approval) (most int, known bool) {
	approvers, above := a.ApproversAt(a.ExpiresAt)
	named := slices.DeleteFunc(append([][]string{approvers}, above...), func(set []string) bool {
		return slices.ContainsFunc(set, func(id string) bool { return strings.HasPrefix(id, "group:") })
	})
	people := slices.Compact(slices.Sorted(slices.Values(slices.Concat(named...))))
	people = slices.DeleteFunc(people, func(id string) bool {
		lacks := func(set []string) bool { return !slices.Contains(set, id) }
		return slices.ContainsFunc(named, lacks) || a.FourEyes && slices.Contains(a.Requesters, id)
	})
	return len(people), len(named) > 0
}

func (s *documentBuilder) whoRows() (all facts) {
	a := s.a
	all.add("approvers", ApproversText(a.Approvers, a.Above))
	all.add("quorum", QuorumText(a))
	switch {
	case a.FourEyes && a.StarterUnknown:
		all.add("four eyes", ownText("nobody is known to have started the run: two different people approve"))
	case a.FourEyes:
		all.add("four eyes", ownText("whoever started the run, is said to have it act for them, or told it what to do, "+
			"may deny and not approve"))
	}
	if c := a.ChannelsOf(""); c.Via != nil || c.Confirm != "" {
		words := c.Words()
		switch {
		case !c.Allow(agent.ViaPage):
		case c.Confirm == agent.ConfirmOIDC:
			words += "; on its page by whoever has signed in as the person that the link was sent to"
		case c.Confirm == agent.ConfirmCode:
			words += "; on its page with a code that is sent by another channel than the link"
		}
		all.add("via", ownText(words+"; denied by every channel"))
	}
	expired := "%1, then it is refused"
	if a.Kind == approval.KindOutcome {
		expired = "%1, then the model is told that nobody knows"
	}
	all.add("expires", textf(expired, s.view.timeText(a.ExpiresAt)))
	if len(a.EscalateTo)+len(a.AboveTo) > 0 {
		words, at := "at %1, then %2", a.EscalatesAt
		if !a.EscalatedAt.IsZero() {
			words, at = "since %1 %2", a.EscalatedAt
		}
		who := textf("these decide as well: %1", namesText(a.EscalateTo))
		if len(a.Above) > 0 { // whoever joins one set may have to be in the others
			who = textf("these decide: %1", ApproversText(a.ApproversAt(a.EscalatesAt)))
		}
		all.add("escalates", textf(words, s.view.timeText(at), who))
	}
	all.add("if granted", grantText(a))
	for _, p := range a.Permissions {
		if p.Bounds != nil { // the same for each of the agent's tools
			all.add("stands", s.boundsText(*p.Bounds, " at most"))
			break
		}
	}
	denied := wordings[a.Kind].denied
	switch {
	case a.Kind == approval.KindOutcome:
	case run.IsBudgetTool(firstOf(a.Tools)):
		denied = "the run gets no more, and ends"
	case a.Undoes != nil:
		denied = "nothing is taken back"
	case a.Scope == agent.ScopeTool:
		denied = "the tool is not called any more in this run, and the model is told so"
	}
	all.add("if denied", ownText(denied))
	return all
}

// aboutRows are the other facts of approvals.md, B1.
func (s *documentBuilder) aboutRows(t agent.ToolSpec) (all facts) {
	a := s.a
	all.add(FactTool, namesText(a.Tools))
	if a.Kind != approval.KindTools {
		all.add("does", s.descriptionText(t))
		all.add("target", s.targetText(t))
	}
	all.add("agent", BareText(strings.TrimSpace(a.Agent+" "+a.Version)))
	run := BareText(a.Run)
	if a.Kind != approval.KindTools && len(a.Calls) > 0 {
		run = textf("%1, call %2", run, BareText(a.Call()))
	}
	all.add("run", run)
	if a.Root != "" {
		all.add("below", textf("call %1 of run %2, for run %3", BareText(a.ParentCall), BareText(a.Parent), BareText(a.Root)))
	}
	// The authenticated people who started the run. The subject that the API's caller claims is no fact: see
	// SectionClaim.
	var requesters []Text
	for _, id := range a.Requesters {
		if id != a.ClaimedSubject {
			requesters = append(requesters, s.foreignText(id))
		}
	}
	all.add("requester", joinTexts(requesters))
	all.add("asked", s.view.timeText(a.RequestedAt))
	return all
}

// descriptionText is the description of a tool by the agent's author. An MCP server's own description is no fact.
func (s *documentBuilder) descriptionText(t agent.ToolSpec) Text {
	if t.MCP != nil {
		return nil
	}
	return s.foreignText(t.Description)
}

// ApproversText names who may decide: the approvers, and the sets of delegating agents that they must be in as well.
func ApproversText(approvers []string, above [][]string) Text {
	var known []string
	var all []Text
	for _, set := range append([][]string{approvers}, above...) {
		key := strings.Join(set, ", ")
		if slices.Contains(known, key) {
			continue
		}
		names := namesText(set)
		if len(set) == 0 {
			names = ownText("nobody")
		}
		known, all = append(known, key), append(all, names)
	}
	return fitTexts(all, "; and at once ", math.MaxInt)
}

func (s *documentBuilder) history(t agent.ToolSpec) []Row {
	a := s.a
	type event struct {
		at    time.Time
		lines []Row
	}
	var all []event
	add := func(at time.Time, args []Row, parts ...Text) {
		lines := []Row{{Label: s.view.timeText(at), Value: slices.Concat(parts...).merged()}}
		for _, l := range args {
			l.Depth++
			lines = append(lines, l)
		}
		all = append(all, event{at, lines})
	}
	var answers json.RawMessage // the schema of answers to the tool's question
	if q := a.Ticket; q != nil {
		if answers = q.ResponseSchema; q.Mode == run.TicketPass { // they become the arguments
			answers = t.Schema
		}
	}
	add(a.RequestedAt, nil, ownText("asked by "), BareText(a.Agent))
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
		case a.Kind == approval.KindInput, a.Kind == approval.KindOutcome:
			args = s.arguments(d.Args, answers)
		}
		verb := ownText(decisionVerb(d.Action, a.Kind))
		if len(d.Tools) > 0 {
			verb = textf("%1 %2", verb, namesText(d.Tools))
		}
		var bounds Text
		if d.Grant != nil && !d.Grant.Zero() {
			bounds = textf(", to stand %1", s.boundsText(*d.Grant, ""))
		}
		add(d.At, args, verb, ownText(" by "), s.foreignText(d.By), s.noteText(d.Note), bounds)
	}
	if a.Status == approval.Expired {
		add(a.ExpiresAt, nil, ownText("expired"))
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.at.UnixMilli(), b.at.UnixMilli()) })
	var lines []Row
	for _, e := range all {
		lines = append(lines, e.lines...)
	}
	if a.Status == approval.Voided { // the request does not have the time
		lines = append(lines, Row{Value: ownText(voidedText(a))})
	}
	return lines
}

// noteText is what a person wrote, behind the words before it.
func (s *documentBuilder) noteText(text string) Text {
	if text == "" {
		return nil
	}
	return textf(`: "%1"`, s.foreignText(text))
}

func (s *documentBuilder) checkedText(
	tool string, args json.RawMessage, content string, failed bool, at time.Time,
) Text {
	words := "%1 of %2 says %3, at %4"
	if failed {
		words = "%1 of %2 failed: %3, at %4"
	}
	result := s.foreignText(content)
	if !failed && json.Valid([]byte(content)) {
		result = s.jsonText(json.RawMessage(content), nil)
	}
	return textf(words, BareText(tool), s.jsonText(args, s.view.tool(tool).Schema), result, s.view.timeText(at))
}

// jsonText is a JSON value with secrets masked by its schema and by form; the schema may be nil.
func (s *documentBuilder) jsonText(raw, schema json.RawMessage) Text {
	if compact, err := jsonx.CompactJSON(raw, jsonx.JSONLimits{}); err == nil { // as mask.JSON writes it
		raw = compact
	}
	text := string(raw)
	if masked := mask.JSON(raw, schema); masked != text && !s.view.Unmasked {
		s.masked, text = true, masked
	}
	return PlainQuotes(s.foreignText(text))
}
