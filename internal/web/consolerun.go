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
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// Bounds of a run's page.
const (
	maxPageMessages = 200
	maxTree         = 200     // delegated runs
	maxItemText     = 20_000  // characters of a message, and bytes of a call's arguments
	maxPageText     = 600_000 // characters of all messages; an escaped one takes several bytes
	minMessageText  = 500     // of each message, even above maxPageText
	maxPageSpans    = 20_000  // spans of a page; more text is shown as one span each
)

type runPage struct {
	frame
	Run        Run
	Seq        int64  // of the newest event
	EventTypes string // the page listens to
	Heading    string
	Agent      people.Text
	Took       string
	Failure    *failure

	Range     string // the messages that are shown, in words
	Older     int    // index of the first; 0 = no older ones
	NotNewest bool
	Items     []chatItem
	Waits     []waitItem
	Facts     []people.Row
	Output    *resultBlock
	Tree      []treeNode
	Bars      []bar
	Events    []Event
	Typed     map[string]string // of a form that was refused
	Notice    *formResult

	Chat   bool           // the page is that of a chat
	Agents []filterOption // of a chat: whom it can be with
	With   string         // of a chat: the agent's name
	Unable string         // of a chat: why no run can be started; "" = it can
	Broken []AgentProblem // what is wrong with the agent's file, if a run would have to be started to go on
}

// failure is why a run failed, and what to do.
type failure struct {
	Code    string
	Message people.Text
	Advice  string
}

// waitItem is a request of a run below this one, or a call that another run carries out.
type waitItem struct {
	Tool       people.Text
	What, Left string
	Until      time.Time
	Card       *requestCard // nil = there is no request
	Child      string       // the run that asks or works; "" = there is none
	ChildLabel string
}

// treeNode is a run in the delegation tree.
type treeNode struct {
	ID     string
	Agent  people.Text
	Status statusLabel
	Depth  int
	Here   bool
}

// chatItem is a message of the conversation, or a call with its result.
type chatItem struct {
	N         int
	Who, Role string
	At        time.Time
	Spent     string // tokens and money of the reply that begins here
	Evicted   bool
	Fork      int64 // the entry to fork behind; -1 = none
	Text      people.Text
	Markdown  []markdownNode
	Label     string // of what is no text
	Picture   string // the path of a picture; "" = it is none
	Cut       string // what is left out
	Call      *callBlock
	turn      *turn
	hidden    bool
}

// callBlock is a call with all that became of it.
type callBlock struct {
	ID       string
	Tool     people.Text
	Status   run.CallStatus
	Label    string
	Detail   string // how long it took, and how often it ran
	Input    *arguments
	InputCut string
	Result   *resultBlock
	Decided  []decisionLine
	Waits    string
	Card     *requestCard // the open request about it; nil = there is none
	Child    string       // the run that carries it out
}

// decisionLine is what somebody decided about a call.
type decisionLine struct {
	What, Approval string
	Note           people.Text
	At             time.Time
}

// resultBlock is a call's result or a run's output: text, or JSON as a tree.
type resultBlock struct {
	Bad  bool
	Text people.Text
	Tree []jsonNode
	Cut  string // what is not shown
}

// newChatPage returns the view of chat.html: a run as a conversation, or the beginning of one, where id is "".
func (c *console) newChatPage(r *http.Request, id string) (page runPage, err error) {
	if id != "" {
		page, err = c.newRunPage(r, id)
		page.With = page.Run.Agent
	} else {
		var q map[string]string
		if q, err = readQuery(r, "agent"); err != nil {
			return page, err
		}
		page.Typed = map[string]string{}
		page.With = cmp.Or(slices.Concat([]string{q["agent"]}, c.Agents(), c.agentNames())...)
		if d, ok := c.Definition(page.With); ok && d.Input.Schema != nil {
			page.Unable = "This agent takes input of a form."
		}
		page.Broken = c.Broken()[page.With]
	}
	if err != nil {
		return page, err
	}
	page.Heading = "Chat"
	page.frame = c.newFrame("Chat", navChat)
	page.Chat, page.Agents = true, c.agentOptions(page.With)[1:]
	return page, nil
}

func (c *console) newRunPage(r *http.Request, id string) (page runPage, err error) {
	q, err := readQuery(r, "before", "model")
	if err != nil {
		return page, err
	}
	back := runsPath + id
	if strings.HasPrefix(r.URL.Path, chatPath) {
		back = r.URL.RequestURI()
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
	st := &pageBuilder{console: c, run: one, spans: maxPageSpans, left: maxPageText, back: back}
	if st.story, err = c.loadStory(r.Context(), id); err != nil {
		return page, err
	}
	st.story.mu.Lock()
	defer st.story.mu.Unlock()
	heading := cmp.Or(firstMessageText(all), "Run "+shortID(id))
	page = runPage{
		frame: c.newFrame(people.ForeignText(heading).String(), navRuns, runTrail(one.Root, one.Parent)...), Run: one,
		Seq: one.Seq - 1, EventTypes: eventTypes, Heading: heading,
		Agent: st.newText(strings.TrimSpace(one.Agent + " " + one.Version)),
		Range: shownRange, Older: from, NotNewest: q["before"] != "", Typed: map[string]string{"model": q["model"]},
	}
	if e := one.Error; e != nil {
		page.Failure = &failure{string(e.Code), st.newText(e.Message), cmp.Or(advice[e.Code],
			"Look at the last messages and at the log of this process. Then continue the run, or fork it.")}
	}
	page.Took = "not ended"
	if one.Status == run.RunDone {
		page.Took, page.Broken = formatTook(one.EndedAt.Sub(one.StartedAt)), c.Broken()[one.Agent]
	}
	// The parts share the bounds of the page, in this order.
	if page.Waits, err = st.newWaitItems(r.Context(), all[from:to]); err != nil {
		return page, err
	}
	page.Facts = st.newFacts()
	if page.Tree, err = st.loadTree(r.Context()); err != nil {
		return page, err
	}
	if page.Items, err = st.newChatItems(r.Context(), all[from:to], from); err != nil {
		return page, err
	}
	if page.Output, err = st.newOutput(r.Context(), all); err != nil {
		return page, err
	}
	page.Bars = st.newBars(page.Items)
	page.Events = slices.Clone(st.story.newest[max(0, len(st.story.newest)-maxKeptEvents):])
	slices.Reverse(page.Events)
	return page, nil
}

// eventTypes are the events of a stream after which the page is read again. It is read every five seconds besides,
// while the run goes on: runs below change without events of this run. What a model is writing comes beside the events,
// as deltas, where the process that serves the console asks models itself.
var eventTypes = strings.Trim(fmt.Sprint(stream.Types()), "[]") // with spaces between them

func formatCount[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// pageBuilder builds the parts of a run's page within the bounds.
type pageBuilder struct {
	*console
	run   Run
	story *story
	back  string // the path that forms lead back to
	spans int    // remaining spans
	left  int    // remaining characters of messages, and bytes of arguments and results
	cards int    // bytes of the requests that are shown
}

// newText renders foreign text, without marks if the page has too many spans.
func (s *pageBuilder) newText(t string) people.Text {
	return s.fitText(people.ForeignText(t))
}

func (s *pageBuilder) fitText(shown people.Text) people.Text {
	if len(shown) > s.spans {
		return people.Text{{Text: shown.String()}}
	}
	s.spans -= len(shown)
	return shown
}

// findCall returns a call of the page.
func (s *pageBuilder) findCall(id string) (c Call, ok bool) {
	i := slices.IndexFunc(s.run.Calls, func(c Call) bool { return c.ID == id })
	if i < 0 {
		return Call{}, false
	}
	return s.run.Calls[i], true
}

// waitLabels say what a call waits for.
var waitLabels = map[run.WaitFor]string{
	run.ForApproval: "waits for somebody to approve it",
	run.ForOutcome:  "was interrupted: somebody has to say what became of it",
	run.ForInput:    "waits for an answer to what its tool asks", run.ForAnswer: "waits for its answer",
}

// newWaitItems returns what the run waits for outside the part of its conversation that is shown.
func (s *pageBuilder) newWaitItems(ctx context.Context, part []policy.SeenMessage) (out []waitItem, err error) {
	var below []approval.Approval
	if slices.ContainsFunc(s.run.Calls, func(c Call) bool { return c.Run != "" }) || // of the newest calls
		slices.ContainsFunc(s.run.Waiting, func(w policy.WaitView) bool { return w.Run != "" }) {
		// A page of the list may be of other runs' requests alone.
		find := approval.Query{Status: approval.Pending, Root: s.run.ID}
		if below, _, err = s.findApprovals(ctx, find, queueLimit); err != nil {
			return nil, err
		}
	}
	for _, a := range below {
		if a.Run != s.run.ID && a.IsOpen(s.Clock.Now()) {
			item := waitItem{
				Tool: s.newText(strings.Join(a.Tools, ", ")), Until: a.ExpiresAt, Left: s.formatTimeLeft(a.ExpiresAt),
				What:  "of agent " + people.ForeignText(a.Agent).String() + " waits for people",
				Child: a.Run, ChildLabel: "The run that asks",
			}
			if item.Card, err = s.newCard(ctx, a); err != nil {
				return nil, err
			}
			out = append(out, item)
		}
	}
	for _, w := range s.run.Waiting {
		isShown := slices.ContainsFunc(part, func(m policy.SeenMessage) bool {
			use, ok := m.Block.(run.ToolUse)
			return ok && use.ID == w.Call
		})
		if call, _ := s.findCall(w.Call); !isShown || w.For == run.ForAnswer {
			out = append(out, waitItem{
				Tool: s.newText(cmp.Or(call.Tool, w.Call)), What: waitLabels[w.For], Until: w.Expires,
				Left: s.formatTimeLeft(w.Expires), Child: call.Run, ChildLabel: "The run that carries it out",
			})
			if !isShown && w.Approval != "" {
				if out[len(out)-1].Card, err = s.loadCard(ctx, w.Approval); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// loadCard returns the card of an open request, as the run's page has it.
func (s *pageBuilder) loadCard(ctx context.Context, id string) (*requestCard, error) {
	a, err := s.Get(ctx, s.Tenant, id)
	if err != nil {
		return nil, err
	}
	return s.newCard(ctx, a)
}

// newCard returns the card of a request; nil = the page has no room, and only the queue has it.
func (s *pageBuilder) newCard(ctx context.Context, a approval.Approval) (*requestCard, error) {
	if s.cards > queueBytes {
		return nil, nil
	}
	s.cards += storedSize(a)
	card, err := s.newRequestCard(ctx, a, s.back)
	return &card, err
}

func (s *pageBuilder) newFacts() (facts []people.Row) {
	add := func(label, value string) {
		if value != "" {
			facts = append(facts, people.Row{Label: people.Text{{Text: label}}, Value: people.ConversationText(value)})
		}
	}
	r := s.run
	add("Started by", strings.Join(r.StartedBy, ", "))
	if !slices.Contains(r.StartedBy, r.Subject) {
		add("For, the caller says (nobody checked it)", r.Subject)
	}
	add("Detail", r.Detail)
	addNumbers := func(label, format string, a, b int64) { // the spaces in them are ours, and nothing to be marked
		text := fmt.Sprintf(format, formatNumber(a), formatNumber(b))
		facts = append(facts, people.Row{Label: people.Text{{Text: label}}, Value: people.Text{{Text: text}}})
	}
	addNumbers("Tokens", "%s in, %s out", r.Usage.Input, r.Usage.Output)
	if r.Usage.CacheRead+r.Usage.CacheWrite > 0 {
		addNumbers("Tokens of the cache", "%s read, %s written", r.Usage.CacheRead, r.Usage.CacheWrite)
	}
	add("Inferences", fmt.Sprintf("%d, by %s", r.Inferences, formatCount(r.ModelCalls, "model call")))
	add("Interactions", fmt.Sprintf("%d of %d", r.Interactions.Current, r.Interactions.Max))
	add("Execution units", strconv.FormatInt(r.ExecutionUnits, 10))
	if r.Inbox > 0 {
		add("In its inbox", formatCount(r.Inbox, "input"))
	}
	add("Carries out", r.ParentCall)
	add("Summary", r.Summary)
	return facts
}

// newOutput returns the run's output as a tree; nil = there is none, or its newest message is the output.
func (s *pageBuilder) newOutput(ctx context.Context, all []policy.SeenMessage) (*resultBlock, error) {
	var words string
	switch raw := s.run.Output; {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case len(raw) > maxPageText:
		return &resultBlock{Cut: formatSize(len(raw)) + ": see the run as JSON."}, nil
	case json.Unmarshal(raw, &words) == nil && len(all) > 0 && all[len(all)-1].Block == run.Block(run.Text{Text: words}):
		return nil, nil
	default:
		lines, err := s.Arguments(ctx, s.run.ID, "", raw)
		return &resultBlock{Tree: s.fitTree(lines)}, err
	}
}

// newChatItems renders messages, each call with its result in one item. The newest ones use the text budget first.
func (s *pageBuilder) newChatItems(ctx context.Context, part []policy.SeenMessage, from int) ([]chatItem, error) {
	all := make([]chatItem, len(part))
	results := map[string]int{} // by call, of the results whose calls are not met yet
	for i, m := range slices.Backward(part) {
		item := chatItem{N: from + i + 1, Who: "Model", Role: string(m.Role), Evicted: m.Evicted, Fork: -1}
		if m.Role == run.RoleUser {
			item.Who = "User"
		}
		if m.Source.Run == "" {
			item.At = s.story.at[m.Source.Seq]
		}
		if err := s.fillItem(ctx, &item, m); err != nil {
			return nil, err
		}
		switch m.Block.(type) {
		case run.ToolResult:
			results[item.Call.ID] = i
		case run.ToolUse:
			if at, ok := results[item.Call.ID]; ok {
				item.Call.Result, all[at].hidden = all[at].Call.Result, true
			}
		}
		all[i] = item
	}
	for i, m := range part { // a reply is one entry: its first item says what it took
		if t := s.story.turns[m.Source.Seq]; t != nil && m.Role == run.RoleAssistant && m.Source.Run == "" &&
			(i == 0 || part[i-1].Source.Seq != m.Source.Seq) {
			all[i].turn = t
			all[i].Spent = formatTook(t.To.Sub(t.From)) + ", " + t.spent()
		}
	}
	return slices.DeleteFunc(all, func(m chatItem) bool { return m.hidden }), nil
}

// fillItem renders the block of a message.
func (s *pageBuilder) fillItem(ctx context.Context, item *chatItem, m policy.SeenMessage) (err error) {
	switch b := m.Block.(type) {
	case run.Text:
		if m.Source.Run == "" {
			item.Fork = m.Source.Seq
		}
		if m.Role == run.RoleUser {
			item.Text, item.Cut = s.cutText(b.Text)
			break
		}
		begins, cut := s.cutMessage(b.Text)
		item.Markdown, item.Cut = s.newMarkdown(begins), cut
	case run.Media:
		item.Label = "File"
		item.Text = s.newText(strings.TrimSpace(b.Name + " " + b.MediaType))
		if slices.Contains(pictureTypes, b.MediaType) {
			item.Picture = fmt.Sprintf("%s%s/pictures/%d", runsPath, s.run.ID, item.N)
		}
	case run.Reasoning:
		item.Label = "The model reasoned here. What it thought is its own."
	case run.ToolUse:
		item.Call, err = s.newCallBlock(ctx, b)
		if c, _ := s.findCall(b.ID); c.Undoes != "" {
			item.Who = "Undo"
		}
	case run.ToolResult:
		item.Who, item.Call = "Tool", &callBlock{ID: b.ID, Tool: s.newText(b.ID), Label: "result"}
		if c, ok := s.findCall(b.ID); ok {
			item.Call.Tool = s.newText(c.Tool)
		}
		result := &resultBlock{Bad: b.IsError}
		item.Call.Result = result
		raw := strings.TrimSpace(b.Content)
		if len(raw) > min(maxItemText, s.left) || strings.IndexAny(raw, "{[") != 0 || !json.Valid([]byte(raw)) {
			result.Text, result.Cut = s.cutText(b.Content)
			break
		}
		s.left -= len(raw)
		if b.Blob != "" {
			result.Cut = "The result is in a file of its own."
		}
		var lines []people.Row
		lines, err = s.Arguments(ctx, s.run.ID, "", []byte(raw))
		result.Tree = s.fitTree(lines)
	default:
		err = errors.New("a message of an unknown kind")
	}
	return err
}

// verbs are what people did, for the line of a decision.
var verbs = map[run.DecisionAction]string{
	run.ActionApprove: "Approved", run.ActionDeny: "Denied", run.ActionCancel: "Cancelled", run.ActionAskAgain: "Voided",
	run.ActionVoid: "Voided",
}

func (s *pageBuilder) newCallBlock(ctx context.Context, b run.ToolUse) (*callBlock, error) {
	out := &callBlock{ID: b.ID, Tool: s.newText(b.Name), Label: "earlier"}
	if len(b.Input) > min(maxItemText, s.left) { // a request's own page shows all arguments
		out.InputCut = formatSize(len(b.Input)) + " of arguments: see the run as JSON."
	} else {
		s.left -= len(b.Input)
		all, err := s.Arguments(ctx, s.run.ID, b.Name, b.Input)
		n := countSpans(all) + len(all)
		switch {
		case err != nil:
			return nil, err
		case len(all) == 0:
			out.InputCut = "No arguments."
		case n > s.spans:
			out.Input = &arguments{Plain: joinArguments(all)}
		default:
			s.spans -= n
			out.Input = newArguments(all)
		}
	}
	c, known := s.findCall(b.ID)
	if known {
		out.Status, out.Label = c.Status, strings.ReplaceAll(string(c.Status), "_", " ")
		out.Tool, out.Child = s.newText(c.Tool), c.Run
	}
	var detail []string
	if told := s.story.calls[b.ID]; told != nil {
		if c.Executions > 0 && !told.To.IsZero() {
			detail = append(detail, formatTook(told.To.Sub(told.From)))
		}
		for _, d := range told.Decided {
			by := strings.Join(append([]string{d.By}, d.With...), ", ")
			line := decisionLine{What: cmp.Or(verbs[d.Action], string(d.Action)) + " by " + people.ForeignText(by).String(),
				Approval: d.Approval, Note: s.newText(d.Note), At: d.At}
			if d.Args != nil {
				line.What = "Edited and " + strings.ToLower(line.What)
			}
			out.Decided = append(out.Decided, line)
		}
	}
	if c.Executions > 1 {
		detail = append(detail, formatCount(c.Executions, "attempt"))
	}
	if c.Reason != "" && string(c.Reason) != string(c.Status) {
		detail = append(detail, strings.ReplaceAll(string(c.Reason), "_", " "))
	}
	out.Detail = strings.Join(detail, ", ")
	for _, w := range s.run.Waiting {
		if w.Call != b.ID {
			continue
		}
		out.Waits = "It " + waitLabels[w.For] + " (" + s.formatTimeLeft(w.Expires) + ")."
		if w.Approval == "" {
			continue
		}
		var err error
		if out.Card, err = s.loadCard(ctx, w.Approval); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cutMessage returns as much of a text as the budget allows, and what was left out.
func (s *pageBuilder) cutMessage(text string) (begins, omitted string) {
	begins, rest := truncate(text, max(minMessageText, min(maxItemText, s.left)))
	s.left -= len(begins)
	if rest > 0 {
		omitted = formatCount(rest, "character") + " more: see the run as JSON."
	}
	return begins, omitted
}

// cutText renders as much of a text as the budget allows, and returns what was left out.
func (s *pageBuilder) cutText(text string) (shown people.Text, omitted string) {
	begins, omitted := s.cutMessage(text)
	return s.fitText(people.ConversationText(begins)), omitted
}
