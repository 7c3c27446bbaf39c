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
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// The bounds of a run's page.
const (
	storyMessages = 200
	storyEvents   = 100
	maxTree       = 200     // delegated runs
	maxShown      = 20_000  // characters of a message, and bytes of a call's arguments
	maxStory      = 600_000 // characters of all messages of a page: what is escaped takes several bytes each
	leastShown    = 500     // of each message, whatever the others take
	storySpans    = 20_000  // pieces of text of a page; what has more is shown as one piece
)

// runPage is the view of run.html: a run's story.
type runPage struct {
	frame
	Run           api.Run
	Seq           int64  // of the newest event
	EventTypes    string // that the page listens to
	Every         int    // milliseconds after which the page is read again; 0 = as events come
	Heading, Lede show.Text

	Range     string // the messages that are shown, in words
	Older     int    // the first of them; 0 = there are none before
	NotNewest bool
	Messages  []message
	Waits     []wait
	Facts     []show.Fact
	Output    *output
	Tree      []branch
	CallCount string
	Calls     []call
	Events    []api.Event
}

// wait is what a run waits for.
type wait struct {
	Tool       show.Text
	What, Left string
	Until      time.Time
	Arguments  *arguments
	More       bool   // of the arguments
	Approval   string // the request; "" = there is none
	Child      string // the run that asks or works; "" = there is none
	ChildLabel string
}

// output is what a run came to: words, lines of JSON, or why neither is shown.
type output struct {
	Words show.Text
	Lines *arguments
	Cut   string
}

// branch is a run in the tree of those that were delegated.
type branch struct {
	ID     string
	Agent  show.Text
	Status standing
	Depth  int
	Here   bool
}

// call is a call of a run.
type call struct {
	api.Call
	Tool                 show.Text
	Label, Detail, Waits string
	Approval             string // the request about it; "" = there is none
	Input                *arguments
	Cut                  string // why Input is not shown
}

// message is a message of the conversation.
type message struct {
	run.Spoken
	N     int
	Who   string
	Block block
}

// block is what a message has.
type block struct {
	Kind, Label string
	Text, Tool  show.Text
	Call        int // its place among the calls; 0 = it is none of them
	Input       *arguments
	Bad         bool
	Cut         string // what is left out
}

func (c *console) runPage(r *http.Request, id string) (page runPage, err error) {
	q, err := query(r, "before")
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
	from, to, err := window(q, len(all))
	if err != nil {
		return page, err
	}
	st := &story{console: c, run: one, spans: storySpans}
	heading := st.firstWords(all)
	if heading == nil {
		heading = show.Text{{Text: "Run " + short(id)}}
	}
	page = runPage{
		frame: c.frame(heading.String()+" · Countersign", trail(one.Root, one.Parent)), Run: one, Seq: one.Seq - 1,
		EventTypes: strings.Join(run.EventTypes(), " "),
		Heading:    heading, Lede: st.text("Agent " + one.Agent + ", run " + id),
		Range: spread(from, to, len(all)), Older: from, NotNewest: q["before"] != "", CallCount: callCount(len(one.Calls)),
	}
	if one.Status != run.RunDone {
		page.Every = 5000 // what is below it moves without it, and time goes by
	}
	for _, part := range []func(context.Context) error{ // in this order, since they share the room there is
		func(ctx context.Context) (err error) { page.Waits, err = st.waits(ctx); return err },
		func(context.Context) error { page.Facts = st.facts(); return nil },
		func(ctx context.Context) (err error) { page.Output, err = st.output(ctx); return err },
		func(ctx context.Context) (err error) { page.Tree, err = st.tree(ctx); return err },
		func(ctx context.Context) (err error) { page.Events, err = st.events(ctx); return err },
		func(ctx context.Context) (err error) {
			page.Messages, err = st.messages(ctx, all[from:to], from)
			return err
		},
		func(ctx context.Context) (err error) { page.Calls, err = st.calls(ctx); return err },
	} {
		if err := part(r.Context()); err != nil {
			return page, err
		}
	}
	return page, nil
}

// window is the part of a conversation that a page shows: the newest, or those before a message.
func window(q map[string]string, n int) (from, to int, err error) {
	to = n
	if q["before"] != "" {
		if to, err = strconv.Atoi(q["before"]); err != nil || to < 1 || to > n {
			return 0, 0, errNoPage
		}
	}
	return max(0, to-storyMessages), to, nil
}

func spread(from, to, n int) string {
	if from == 0 && to == n {
		return plural(n, "message")
	}
	return fmt.Sprintf("messages %d to %d of %d", from+1, to, n)
}

// callCount says how many calls a run's page has.
func callCount(n int) string {
	switch {
	case n == 0:
		return ""
	case n >= storyMessages:
		return "the newest " + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}

func plural[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// story makes the parts of a run's page.
type story struct {
	*console
	run   api.Run
	spans int // that there is room for
}

// text is a foreign text, in one piece where there is no room for more.
func (s *story) text(t string) show.Text {
	return s.fit(s.Show.Text(t))
}

func (s *story) fit(shown show.Text) show.Text {
	if len(shown) > s.spans {
		return show.Text{{Text: shown.String()}}
	}
	s.spans -= len(shown)
	return shown
}

// lines are arguments, in one piece where there is no room for more.
func (s *story) lines(all []show.Argument) *arguments {
	n := pieces(all) + len(all)
	if n > s.spans {
		return &arguments{Plain: plain(all)}
	}
	s.spans -= n
	return argumentsOf(all)
}

// call is a call among those that the page has, and its place.
func (s *story) call(id string) (n int, c api.Call, ok bool) {
	i := slices.IndexFunc(s.run.Calls, func(c api.Call) bool { return c.ID == id })
	if i < 0 {
		return 0, api.Call{}, false
	}
	return i + 1, s.run.Calls[i], true
}

// waitWords say what a call waits for.
var waitWords = map[run.WaitFor]string{
	run.ForApproval: "waits for somebody to approve it", run.ForOutcome: "was interrupted: somebody has to say what became of it",
	run.ForInput: "waits for an answer to what its tool asks", run.ForAnswer: "waits for its answer",
}

func (s *story) waits(ctx context.Context) ([]wait, error) {
	var out []wait
	below, err := s.Read.FindApprovals(ctx, approval.Query{Root: s.run.ID, Limit: homeApprovals})
	if err != nil {
		return nil, err
	}
	for _, a := range below.Approvals {
		if a.Run != s.run.ID && s.open(a) {
			out = append(out, wait{
				Tool: s.text(strings.Join(a.Tools, ", ")), What: "of agent " + s.Show.Text(a.Agent).String() + " waits for people",
				Until: a.ExpiresAt, Left: s.left(a.ExpiresAt), Approval: a.ID, Child: a.Run, ChildLabel: "The run that asks",
			})
		}
	}
	for _, w := range s.run.Waiting {
		_, call, _ := s.call(w.Call)
		lines, err := s.Arguments(ctx, s.run.ID, call.Tool, call.Input)
		if err != nil {
			return nil, err
		}
		begin, more := excerpt(lines)
		out = append(out, wait{
			Tool: s.text(cmp.Or(call.Tool, w.Call)), What: waitWords[w.For], Until: w.Expires, Left: s.left(w.Expires),
			Arguments: begin, More: more, Approval: w.Approval,
			Child: call.Run, ChildLabel: "The run that carries it out",
		})
	}
	return out, nil
}

func (s *story) left(until time.Time) string {
	if left := until.Sub(s.Clock.Now()); left > 0 {
		return duration(left) + " left"
	}
	return "its time is over"
}

func (s *story) facts() (facts []show.Fact) {
	add := func(label, value string) {
		if value != "" {
			facts = append(facts, show.Fact{Label: label, Value: show.Words(value)})
		}
	}
	r := s.run
	add("Agent", strings.TrimSpace(r.Agent+" "+r.Version))
	add("Started by", strings.Join(r.StartedBy, ", "))
	if !slices.Contains(r.StartedBy, r.Subject) {
		add("For, the caller says (nobody checked it)", r.Subject)
	}
	add("Started", moment(r.StartedAt))
	if !r.EndedAt.IsZero() {
		add("Ended", moment(r.EndedAt))
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
	add("Inferences", fmt.Sprintf("%d, by %s", r.Inferences, plural(r.ModelCalls, "model call")))
	add("Interactions", fmt.Sprintf("%d of %d", r.Interactions.Current, r.Interactions.Max))
	add("Execution units", strconv.FormatInt(r.ExecutionUnits, 10))
	if r.Inbox > 0 {
		add("In its inbox", plural(r.Inbox, "input"))
	}
	add("Continues", r.Continues)
	add("Carries out", r.ParentCall)
	add("Summary", r.Summary)
	return facts
}

// output is what the run came to: words as words, anything else line by line.
func (s *story) output(ctx context.Context) (*output, error) {
	var words string
	switch raw := s.run.Output; {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case len(raw) > maxStory:
		return &output{Cut: size(len(raw)) + ": see the run as JSON."}, nil
	case json.Unmarshal(raw, &words) == nil:
		return &output{Words: s.fit(show.Words(words))}, nil
	default:
		lines, err := s.Arguments(ctx, s.run.ID, "", raw)
		if err != nil {
			return nil, err
		}
		return &output{Lines: s.lines(lines)}, nil
	}
}

// tree is the run and all that were delegated below the one that nobody delegated, each behind the one that asked for it.
func (s *story) tree(ctx context.Context) ([]branch, error) {
	root := cmp.Or(s.run.Root, s.run.ID)
	below := map[string][]api.RunHead{}
	q := api.RunQuery{Root: root, Limit: maxTree}
	for n := 0; n < maxTree; {
		p, err := s.Read.Runs(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, h := range p.Runs {
			below[h.Parent] = append(below[h.Parent], h)
		}
		n += len(p.Runs)
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
	out := []branch{s.branch(top.ID, top.Agent, runStatus(top.Status, top.Reason), 0)}
	return s.add(out, below, root, 1), nil
}

func (s *story) branch(id, agent string, status standing, depth int) branch {
	return branch{id, s.text(agent), status, min(depth, maxDepth), id == s.run.ID}
}

func (s *story) add(out []branch, below map[string][]api.RunHead, of string, depth int) []branch {
	children := below[of]
	delete(below, of) // each is there once, whatever it says
	slices.SortStableFunc(children, func(a, b api.RunHead) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ID, b.ID))
	})
	for _, h := range children {
		out = append(out, s.branch(h.ID, h.Agent, runStatus(h.Status, h.Reason), depth))
		out = s.add(out, below, h.ID, depth+1)
	}
	return out
}

// events are the newest events, the newest first.
func (s *story) events(ctx context.Context) (out []api.Event, err error) {
	after := ""
	if from := s.run.Seq - storyEvents; from > 0 {
		after = strconv.FormatInt(from-1, 10)
	}
	for range 10 { // an entry has several; what is left out is the newest of very many, which the run's JSON has
		p, err := s.Read.Events(ctx, s.run.ID, after, storyMessages)
		if err != nil {
			return nil, err
		}
		out = append(out, p.Events...)
		if after = p.Cursor; after == "" {
			break
		}
	}
	slices.Reverse(out)
	return out[:min(len(out), 2*storyEvents)], nil
}

func (s *story) calls(ctx context.Context) ([]call, error) {
	var out []call
	waiting := map[string]api.Waiting{}
	for _, w := range s.run.Waiting {
		waiting[w.Call] = w
	}
	left := maxStory
	for _, c := range s.run.Calls {
		detail := []string{plural(c.Executions, "execution")}
		if c.Reason != "" {
			detail = append(detail, "reason: "+strings.ReplaceAll(string(c.Reason), "_", " "))
		}
		waits, request := "", ""
		if w, ok := waiting[c.ID]; ok {
			waits, request = "It "+waitWords[w.For]+", until "+moment(w.Expires)+" ("+s.left(w.Expires)+").", w.Approval
		}
		input, cut, err := s.input(ctx, c.Tool, c.Input, &left)
		if err != nil {
			return nil, err
		}
		out = append(out, call{
			Call: c, Tool: s.text(c.Tool), Label: strings.ReplaceAll(string(c.Status), "_", " "),
			Detail: strings.Join(detail, ", "), Waits: waits, Approval: request, Input: input, Cut: cut,
		})
	}
	return out, nil
}

// input are a call's arguments, or why they are not shown here. What is decided on is shown whole, on the request's page.
func (s *story) input(ctx context.Context, tool string, raw []byte, left *int) (*arguments, string, error) {
	if len(raw) > maxShown || len(raw) > *left {
		return nil, size(len(raw)) + " of arguments: see the run as JSON.", nil
	}
	*left -= len(raw)
	all, err := s.Arguments(ctx, s.run.ID, tool, raw)
	if err != nil {
		return nil, "", err
	}
	if len(all) == 0 {
		return nil, "No arguments.", nil
	}
	return s.lines(all), "", nil
}

// messages are the messages of a page. The newest have their share of it first.
func (s *story) messages(ctx context.Context, part []run.Spoken, from int) ([]message, error) {
	out := make([]message, len(part))
	left := maxStory
	for i, m := range slices.Backward(part) {
		block, err := s.block(ctx, m.Block, &left)
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
		out[i] = message{m, from + i + 1, who, block}
	}
	return out, nil
}

func times(n int64) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return strconv.FormatInt(n, 10) + " times"
}

// errBlock is a kind of message that these pages do not know.
var errBlock = errors.New("a message of an unknown kind")

func (s *story) block(ctx context.Context, b run.Block, left *int) (out block, err error) {
	switch b := b.(type) {
	case run.Text:
		out.Kind = "text"
		out.Text, out.Cut = s.words(b.Text, left)
	case run.Media:
		out.Kind, out.Label, out.Text = "media", "File", s.text(strings.TrimSpace(b.Name+" "+b.MediaType))
	case run.Reasoning:
		out.Kind, out.Label = "reasoning", "The model reasoned here. What it thought is its own."
	case run.ToolUse:
		out.Kind, out.Label, out.Tool = "tool_use", "as "+s.Show.Text(b.ID).String(), s.text(b.Name)
		if n, c, ok := s.call(b.ID); ok {
			out.Call, out.Label, out.Tool = n, strings.ReplaceAll(string(c.Status), "_", " "), s.text(c.Tool)
		}
		out.Input, out.Cut, err = s.input(ctx, b.Name, b.Input, left)
	case run.ToolResult:
		out.Kind, out.Label, out.Bad = "tool_result", "Result", b.IsError
		if b.IsError {
			out.Label = "Error"
		}
		name := b.ID
		if _, c, ok := s.call(b.ID); ok {
			name = c.Tool
		}
		out.Tool = s.text(name)
		out.Text, out.Cut = s.words(b.Content, left)
		if b.Blob != "" {
			out.Cut = "The result is in a file of its own."
		}
	default:
		err = errBlock
	}
	return out, err
}

// words is a text, as much of it as there is room for, and what is left out.
func (s *story) words(text string, left *int) (shown show.Text, omitted string) {
	begins, rest := cut(text, max(leastShown, min(maxShown, *left)))
	*left -= len(begins)
	if rest > 0 {
		omitted = plural(rest, "character") + " more: see the run as JSON."
	}
	return s.fit(show.Words(begins)), omitted
}
