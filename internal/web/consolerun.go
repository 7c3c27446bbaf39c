package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// Bounds of a run's page.
const (
	maxPageMessages = 200
	maxPageEvents   = 100
	maxTree         = 200     // delegated runs
	maxItemText     = 20_000  // characters of a message, and bytes of a call's arguments
	maxPageText     = 600_000 // characters of all messages; an escaped one takes several bytes
	minMessageText  = 500     // of each message, even above maxPageText
	maxPageSpans    = 20_000  // spans of a page; more text is shown as one span each
)

// runPage is the view of run.html.
type runPage struct {
	frame
	Run           api.Run
	Seq           int64  // of the newest event
	EventTypes    string // the page listens to
	Every         int    // milliseconds between reloads; 0 = on events only
	Heading, Lede show.Text

	Range     string // the messages that are shown, in words
	Older     int    // index of the first; 0 = no older ones
	NotNewest bool
	Messages  []messageItem
	Waits     []waitItem
	Facts     []show.Row
	Output    *runOutput
	Tree      []treeNode
	CallCount string
	Calls     []callItem
	Events    []api.Event
}

// waitItem is something that a run waits for.
type waitItem struct {
	Tool       show.Text
	What, Left string
	Until      time.Time
	Sentence   show.Text // of the request
	Approval   string    // the request; "" = there is none
	Child      string    // the run that asks or works; "" = there is none
	ChildLabel string
}

// runOutput is a run's output: text, lines of JSON, or why neither is shown.
type runOutput struct {
	Words show.Text
	Lines *arguments
	Cut   string
}

// treeNode is a run in the delegation tree.
type treeNode struct {
	ID     string
	Agent  show.Text
	Status statusLabel
	Depth  int
	Here   bool
}

// callItem is a call of a run.
type callItem struct {
	api.Call
	Tool                 show.Text
	Label, Detail, Waits string
	Approval             string // the request about it; "" = there is none
	Input                *arguments
	Cut                  string // why Input is not shown
}

// messageItem is a message of the conversation.
type messageItem struct {
	policy.Spoken
	N     int
	Who   string
	Block messageBlock
}

// messageBlock is the content of a message.
type messageBlock struct {
	Kind, Label string
	Text, Tool  show.Text
	Call        int // its place among the calls; 0 = it is none of them
	Input       *arguments
	Bad         bool
	Cut         string // what is left out
}

func (c *console) newRunPage(r *http.Request, id string) (page runPage, err error) {
	q, err := readQuery(r, "before")
	if err != nil {
		return page, err
	}
	one, err := c.Read.Run(r.Context(), id)
	if err != nil {
		return page, err
	}
	all, err := c.Conversation(r.Context(), id)
	if err != nil {
		return page, err
	}
	to := len(all) // the newest messages, or those before one
	if q["before"] != "" {
		if to, err = strconv.Atoi(q["before"]); err != nil || to < 1 || to > len(all) {
			return page, errNoPage
		}
	}
	from := max(0, to-maxPageMessages)
	shownRange := fmt.Sprintf("messages %d to %d of %d", from+1, to, len(all))
	if from == 0 && to == len(all) {
		shownRange = formatCount(len(all), "message")
	}
	st := &pageBuilder{console: c, run: one, spans: maxPageSpans}
	heading := st.firstMessageText(all)
	if heading == nil {
		heading = show.Text{{Text: "Run " + shortID(id)}}
	}
	page = runPage{
		frame: c.newFrame(heading.String()+" · Countersign", runTrail(one.Root, one.Parent)), Run: one, Seq: one.Seq - 1,
		EventTypes: strings.Join(run.EventTypes(), " "),
		Heading:    heading, Lede: st.newText("Agent " + one.Agent + ", run " + id),
		Range: shownRange, Older: from, NotNewest: q["before"] != "", CallCount: formatCallCount(len(one.Calls)),
	}
	if one.Status != run.RunDone {
		page.Every = 5000 // runs below change without events of this run
	}
	for _, part := range []func(context.Context) error{ // in this order, since they share the bounds
		func(ctx context.Context) (err error) { page.Waits, err = st.newWaitItems(ctx); return err },
		func(context.Context) error { page.Facts = st.newFacts(); return nil },
		func(ctx context.Context) (err error) { page.Output, err = st.newOutput(ctx); return err },
		func(ctx context.Context) (err error) { page.Tree, err = st.loadTree(ctx); return err },
		func(ctx context.Context) (err error) { page.Events, err = st.loadEvents(ctx); return err },
		func(ctx context.Context) (err error) {
			page.Messages, err = st.newMessageItems(ctx, all[from:to], from)
			return err
		},
		func(ctx context.Context) (err error) { page.Calls, err = st.newCallItems(ctx); return err },
	} {
		if err := part(r.Context()); err != nil {
			return page, err
		}
	}
	return page, nil
}

// formatCallCount returns how many calls a run's page has.
func formatCallCount(n int) string {
	switch {
	case n == 0:
		return ""
	case n >= maxPageMessages:
		return "the newest " + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}

func formatCount[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// pageBuilder builds the parts of a run's page within the bounds.
type pageBuilder struct {
	*console
	run   api.Run
	spans int // remaining spans
}

// newText renders foreign text, without marks if the page has too many spans.
func (s *pageBuilder) newText(t string) show.Text {
	return s.fitText(s.Show.Text(t))
}

func (s *pageBuilder) fitText(shown show.Text) show.Text {
	if len(shown) > s.spans {
		return show.Text{{Text: shown.String()}}
	}
	s.spans -= len(shown)
	return shown
}

// fitArguments renders arguments line by line, or as one text if the page has too many spans.
func (s *pageBuilder) fitArguments(all []show.Row) *arguments {
	n := countSpans(all) + len(all)
	if n > s.spans {
		return &arguments{Plain: joinArguments(all)}
	}
	s.spans -= n
	return newArguments(all)
}

// findCall returns a call of the page and its position from 1.
func (s *pageBuilder) findCall(id string) (n int, c api.Call, ok bool) {
	i := slices.IndexFunc(s.run.Calls, func(c api.Call) bool { return c.ID == id })
	if i < 0 {
		return 0, api.Call{}, false
	}
	return i + 1, s.run.Calls[i], true
}

// waitLabels say what a call waits for.
var waitLabels = map[run.WaitFor]string{
	run.ForApproval: "waits for somebody to approve it",
	run.ForOutcome:  "was interrupted: somebody has to say what became of it",
	run.ForInput:    "waits for an answer to what its tool asks", run.ForAnswer: "waits for its answer",
}

func (s *pageBuilder) newWaitItems(ctx context.Context) ([]waitItem, error) {
	var out []waitItem
	below, err := s.Read.FindApprovals(ctx, approval.Query{Root: s.run.ID, Limit: homeApprovals})
	if err != nil {
		return nil, err
	}
	for _, a := range below.Items {
		if a.Run != s.run.ID && a.IsOpen(s.Clock.Now()) {
			out = append(out, waitItem{
				Tool: s.newText(strings.Join(a.Tools, ", ")), What: "of agent " + s.Show.Text(a.Agent).String() +
					" waits for people",
				Until: a.ExpiresAt, Left: s.formatTimeLeft(a.ExpiresAt), Approval: a.ID, Child: a.Run,
				ChildLabel: "The run that asks",
			})
		}
	}
	for _, w := range s.run.Waiting {
		_, call, _ := s.findCall(w.Call)
		var sentence show.Text // nil = there is no request
		if w.Approval != "" {
			a, err := s.Get(ctx, s.Tenant, w.Approval)
			if err != nil {
				return nil, err
			}
			shown, err := s.Show.Of(ctx, a)
			if err != nil {
				return nil, err
			}
			sentence = s.fitText(shown.Sentence)
		}
		out = append(out, waitItem{
			Tool: s.newText(cmp.Or(call.Tool, w.Call)), What: waitLabels[w.For], Until: w.Expires,
			Left:     s.formatTimeLeft(w.Expires),
			Sentence: sentence, Approval: w.Approval,
			Child: call.Run, ChildLabel: "The run that carries it out",
		})
	}
	return out, nil
}

func (s *pageBuilder) formatTimeLeft(until time.Time) string {
	if left := until.Sub(s.Clock.Now()); left > 0 {
		return show.FormatDuration(left) + " left"
	}
	return "its time is over"
}

func (s *pageBuilder) newFacts() (facts []show.Row) {
	add := func(label, value string) {
		if value != "" {
			facts = append(facts, show.Row{Label: show.Text{{Text: label}}, Value: show.Words(value)})
		}
	}
	r := s.run
	add("Agent", strings.TrimSpace(r.Agent+" "+r.Version))
	add("Started by", strings.Join(r.StartedBy, ", "))
	if !slices.Contains(r.StartedBy, r.Subject) {
		add("For, the caller says (nobody checked it)", r.Subject)
	}
	add("Started", formatMinute(r.StartedAt))
	if !r.EndedAt.IsZero() {
		add("Ended", formatMinute(r.EndedAt))
	}
	add("Reason", string(r.Reason))
	add("Detail", r.Detail)
	if r.Error != nil {
		add("Error", string(r.Error.Code)+": "+r.Error.Message)
	}
	add("Tokens", fmt.Sprintf("%d in, %d out", r.Usage.Input, r.Usage.Output))
	if r.Usage.CacheRead+r.Usage.CacheWrite > 0 {
		add("Tokens of the cache", fmt.Sprintf("%d read, %d written", r.Usage.CacheRead, r.Usage.CacheWrite))
	}
	if r.Cost != 0 {
		add("Cost", r.Cost.String()+" USD")
	}
	add("Inferences", fmt.Sprintf("%d, by %s", r.Inferences, formatCount(r.ModelCalls, "model call")))
	add("Interactions", fmt.Sprintf("%d of %d", r.Interactions.Current, r.Interactions.Max))
	add("Execution units", strconv.FormatInt(r.ExecutionUnits, 10))
	if r.Inbox > 0 {
		add("In its inbox", formatCount(r.Inbox, "input"))
	}
	add("Continues", r.Continues)
	add("Carries out", r.ParentCall)
	add("Summary", r.Summary)
	return facts
}

// newOutput renders the run's output: a string as text, anything else line by line.
func (s *pageBuilder) newOutput(ctx context.Context) (*runOutput, error) {
	var words string
	switch raw := s.run.Output; {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case len(raw) > maxPageText:
		return &runOutput{Cut: formatSize(len(raw)) + ": see the run as JSON."}, nil
	case json.Unmarshal(raw, &words) == nil:
		return &runOutput{Words: s.fitText(show.Words(words))}, nil
	default:
		lines, err := s.Arguments(ctx, s.run.ID, "", raw)
		if err != nil {
			return nil, err
		}
		return &runOutput{Lines: s.fitArguments(lines)}, nil
	}
}

// loadTree returns the delegation tree of the run's root, each run behind its parent.
func (s *pageBuilder) loadTree(ctx context.Context) ([]treeNode, error) {
	root := cmp.Or(s.run.Root, s.run.ID)
	below := map[string][]api.RunHead{}
	q := api.RunQuery{Root: root, Limit: maxTree}
	for n := 0; n < maxTree; {
		p, err := s.Read.Runs(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, h := range p.Items {
			below[h.Parent] = append(below[h.Parent], h)
		}
		n += len(p.Items)
		if q.Cursor = p.Cursor; q.Cursor == "" {
			break
		}
	}
	if len(below) == 0 {
		return nil, nil
	}
	top := s.run
	if root != top.ID {
		var err error
		if top, err = s.Read.Run(ctx, root); err != nil {
			return nil, err
		}
	}
	out := []treeNode{s.newTreeNode(top.ID, top.Agent, newStatusLabel(top.Status, top.Reason), 0)}
	return s.appendChildren(out, below, root, 1), nil
}

func (s *pageBuilder) newTreeNode(id, agent string, status statusLabel, depth int) treeNode {
	return treeNode{id, s.newText(agent), status, min(depth, maxDepth), id == s.run.ID}
}

func (s *pageBuilder) appendChildren(out []treeNode, below map[string][]api.RunHead, of string, depth int) []treeNode {
	children := below[of]
	delete(below, of) // visit each run once, even in a cycle
	slices.SortStableFunc(children, func(a, b api.RunHead) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ID, b.ID))
	})
	for _, h := range children {
		out = append(out, s.newTreeNode(h.ID, h.Agent, newStatusLabel(h.Status, h.Reason), depth))
		out = s.appendChildren(out, below, h.ID, depth+1)
	}
	return out
}

// loadEvents returns the newest events, newest first.
func (s *pageBuilder) loadEvents(ctx context.Context) (out []api.Event, err error) {
	after := ""
	if from := s.run.Seq - maxPageEvents; from > 0 {
		after = strconv.FormatInt(from-1, 10)
	}
	for range 10 { // an entry has several events; beyond this bound the newest are left out
		p, err := s.Read.Events(ctx, s.run.ID, after, maxPageMessages)
		if err != nil {
			return nil, err
		}
		out = append(out, p.Items...)
		if after = p.Cursor; after == "" {
			break
		}
	}
	slices.Reverse(out)
	return out[:min(len(out), 2*maxPageEvents)], nil
}

func (s *pageBuilder) newCallItems(ctx context.Context) ([]callItem, error) {
	var out []callItem
	waiting := map[string]api.Waiting{}
	for _, w := range s.run.Waiting {
		waiting[w.Call] = w
	}
	left := maxPageText
	for _, c := range s.run.Calls {
		detail := []string{formatCount(c.Executions, "execution")}
		if c.Reason != "" {
			detail = append(detail, "reason: "+strings.ReplaceAll(string(c.Reason), "_", " "))
		}
		waits, request := "", ""
		if w, ok := waiting[c.ID]; ok {
			waits, request = "It "+waitLabels[w.For]+", until "+formatMinute(w.Expires)+" ("+s.formatTimeLeft(w.Expires)+").",
				w.Approval
		}
		input, cut, err := s.newInput(ctx, c.Tool, c.Input, &left)
		if err != nil {
			return nil, err
		}
		out = append(out, callItem{
			Call: c, Tool: s.newText(c.Tool), Label: strings.ReplaceAll(string(c.Status), "_", " "),
			Detail: strings.Join(detail, ", "), Waits: waits, Approval: request, Input: input, Cut: cut,
		})
	}
	return out, nil
}

// newInput renders a call's arguments, or returns why they are not shown here. A request's own page shows all of
// them.
func (s *pageBuilder) newInput(ctx context.Context, tool string, raw []byte, left *int) (*arguments, string, error) {
	if len(raw) > maxItemText || len(raw) > *left {
		return nil, formatSize(len(raw)) + " of arguments: see the run as JSON.", nil
	}
	*left -= len(raw)
	all, err := s.Arguments(ctx, s.run.ID, tool, raw)
	if err != nil {
		return nil, "", err
	}
	if len(all) == 0 {
		return nil, "No arguments.", nil
	}
	return s.fitArguments(all), "", nil
}

// newMessageItems renders messages. The newest ones use the text budget first.
func (s *pageBuilder) newMessageItems(ctx context.Context, part []policy.Spoken, from int) ([]messageItem, error) {
	out := make([]messageItem, len(part))
	left := maxPageText
	for i, m := range slices.Backward(part) {
		block, err := s.newMessageBlock(ctx, m.Block, &left)
		if err != nil {
			return nil, err
		}
		who := "Model"
		if m.Role == run.RoleUser {
			who = "User"
			if _, is := m.Block.(run.ToolResult); is {
				who = "Tool"
			}
		}
		out[i] = messageItem{m, from + i + 1, who, block}
	}
	return out, nil
}

func formatTimes(n int64) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return strconv.FormatInt(n, 10) + " times"
}

// errUnknownBlock is the error of a message kind that the pages do not know.
var errUnknownBlock = errors.New("a message of an unknown kind")

func (s *pageBuilder) newMessageBlock(ctx context.Context, b run.Block, left *int) (out messageBlock, err error) {
	switch b := b.(type) {
	case run.Text:
		out.Kind = "text"
		out.Text, out.Cut = s.cutText(b.Text, left)
	case run.Media:
		out.Kind, out.Label, out.Text = "media", "File", s.newText(strings.TrimSpace(b.Name+" "+b.MediaType))
	case run.Reasoning:
		out.Kind, out.Label = "reasoning", "The model reasoned here. What it thought is its own."
	case run.ToolUse:
		out.Kind, out.Label, out.Tool = "tool_use", "as "+s.Show.Text(b.ID).String(), s.newText(b.Name)
		if n, c, ok := s.findCall(b.ID); ok {
			out.Call, out.Label, out.Tool = n, strings.ReplaceAll(string(c.Status), "_", " "), s.newText(c.Tool)
		}
		out.Input, out.Cut, err = s.newInput(ctx, b.Name, b.Input, left)
	case run.ToolResult:
		out.Kind, out.Label, out.Bad = "tool_result", "Result", b.IsError
		if b.IsError {
			out.Label = "Error"
		}
		name := b.ID
		if _, c, ok := s.findCall(b.ID); ok {
			name = c.Tool
		}
		out.Tool = s.newText(name)
		out.Text, out.Cut = s.cutText(b.Content, left)
		if b.Blob != "" {
			out.Cut = "The result is in a file of its own."
		}
	default:
		err = errUnknownBlock
	}
	return out, err
}

// cutText renders as much of a text as the budget allows, and returns what was left out.
func (s *pageBuilder) cutText(text string, left *int) (shown show.Text, omitted string) {
	begins, rest := truncate(text, max(minMessageText, min(maxItemText, *left)))
	*left -= len(begins)
	if rest > 0 {
		omitted = formatCount(rest, "character") + " more: see the run as JSON."
	}
	return s.fitText(show.Words(begins)), omitted
}
