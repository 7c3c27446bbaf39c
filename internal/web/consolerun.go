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

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
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

// runData is a run's story.
func (c *console) runData(r *http.Request, id string) (map[string]any, error) {
	q, err := query(r, "before")
	if err != nil {
		return nil, err
	}
	run, err := c.Read.Run(r.Context(), id)
	if err != nil {
		return nil, err
	}
	all, err := c.Conversation(r.Context(), id)
	if err != nil {
		return nil, err
	}
	from, to, err := window(q, len(all))
	if err != nil {
		return nil, err
	}
	st := &story{console: c, run: run, spans: storySpans}
	status := runStatus(run.Status, run.Reason)
	data := map[string]any{
		"run": run.ID, "trail": ancestors(run), "seq": strconv.FormatInt(run.Seq-1, 10), "eventTypes": strings.Join(agent.EventTypes(), " "), "status": status,
		"range": spread(from, to, len(all)), "older": older(from), "newest": q["before"] != "", "every": "0",
		"callCount": callCount(len(run.Calls)),
	}
	if run.Status != agent.RunDone {
		data["every"] = "5000" // what is below it moves without it, and time goes by
	}
	st.heading(data, all)
	data["statusLine"] = status.(map[string]any)["label"].(string) + " at event " + strconv.FormatInt(run.Seq-1, 10)
	for _, part := range []struct {
		name string
		make func(context.Context) (any, error)
	}{ // in this order, since they share the room there is
		{"waits", st.waits}, {"facts", st.facts}, {"output", st.output}, {"tree", st.tree}, {"events", st.events},
		{"messages", func(ctx context.Context) (any, error) { return st.messages(ctx, all[from:to], from) }}, {"calls", st.calls},
	} {
		if data[part.name], err = part.make(r.Context()); err != nil {
			return nil, err
		}
	}
	events := data["events"].([]any)
	data["eventCount"] = strconv.Itoa(len(events))
	return data, nil
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

func older(from int) string {
	if from == 0 {
		return ""
	}
	return strconv.Itoa(from)
}

func plural[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ancestors is the way to a run that another delegated.
func ancestors(run api.Run) []any {
	var way []any
	for _, id := range []string{run.Root, run.Parent} {
		if id != "" && (len(way) == 0 || id != run.Root) {
			way = append(way, map[string]any{"run": id, "label": "Run " + short(id)})
		}
	}
	return way
}

// story makes the parts of a run's page.
type story struct {
	*console
	run   api.Run
	spans int // that there is room for
}

// text is a foreign text, in one piece where there is no room for more.
func (s *story) text(t string) []any {
	return s.fit(s.Show.Text(t))
}

func (s *story) fit(shown show.Text) []any {
	if len(shown) > s.spans {
		return Text(show.Text{{Text: shown.String()}})
	}
	s.spans -= len(shown)
	return Text(shown)
}

// lines are arguments, in one piece where there is no room for more.
func (s *story) lines(all []show.Argument) any {
	n := 0
	for _, a := range all {
		n += len(a.Key) + len(a.Value) + 1
	}
	if n > s.spans {
		return map[string]any{"plain": plain(all), "lines": nil}
	}
	s.spans -= n
	return Arguments(all)
}

func (s *story) heading(data map[string]any, all []agent.Spoken) {
	first := s.firstWords(all)
	if first == nil {
		first = show.Text{{Text: "Run " + short(s.run.ID)}}
	}
	data["heading"], data["title"] = Text(first), first.String()+" · Countersign"
	data["lede"] = s.text("Agent " + s.run.Agent + ", run " + s.run.ID)
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
var waitWords = map[agent.WaitFor]string{
	agent.ForApproval: "waits for somebody to approve it", agent.ForOutcome: "was interrupted: somebody has to say what became of it",
	agent.ForInput: "waits for an answer to what its tool asks", agent.ForAnswer: "waits for its answer",
}

func (s *story) waits(ctx context.Context) (any, error) {
	var out []any
	below, err := s.Read.FindApprovals(ctx, approval.Query{Root: s.run.ID, Limit: homeApprovals})
	if err != nil {
		return nil, err
	}
	for _, a := range below.Approvals {
		if a.Run != s.run.ID && s.open(a) {
			out = append(out, map[string]any{
				"arguments": nil, "more": false, "tool": s.text(strings.Join(a.Tools, ", ")), "what": "of agent " + s.Show.Text(a.Agent).String() + " waits for people", "until": when(a.ExpiresAt), "left": s.left(a.ExpiresAt),
				"approval": a.ID, "child": a.Run, "childLabel": "The run that asks",
			})
		}
	}
	for _, w := range s.run.Waiting {
		_, call, _ := s.call(w.Call)
		lines, err := s.Arguments(ctx, s.run.ID, call.Tool, call.Input)
		if err != nil {
			return nil, err
		}
		arguments, more := excerpt(lines)
		out = append(out, map[string]any{
			"arguments": arguments, "more": more,
			"tool": s.text(cmp.Or(call.Tool, w.Call)), "what": waitWords[w.For], "until": when(w.Expires), "left": s.left(w.Expires), "approval": w.Approval, "child": call.Run,
			"childLabel": "The run that carries it out",
		})
	}
	return out, nil
}

func (s *story) left(until time.Time) string {
	if left := until.Sub(s.Clock.Now()); left > 0 {
		return span(left) + " left"
	}
	return "its time is over"
}

func (s *story) facts(context.Context) (any, error) {
	var facts []show.Fact
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
	return Facts(facts), nil
}

// output is what the run came to: words as words, anything else line by line.
func (s *story) output(ctx context.Context) (any, error) {
	out := map[string]any{"words": nil, "lines": nil, "cut": ""}
	var words string
	switch raw := s.run.Output; {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case len(raw) > maxStory:
		out["cut"] = size(len(raw)) + ": see the run as JSON."
	case json.Unmarshal(raw, &words) == nil:
		out["words"] = s.fit(show.Words(words))
	default:
		lines, err := s.Arguments(ctx, s.run.ID, "", raw)
		if err != nil {
			return nil, err
		}
		out["lines"] = s.lines(lines)
	}
	return out, nil
}

// tree is the run and all that were delegated below the one that nobody delegated, each behind the one that asked for it.
func (s *story) tree(ctx context.Context) (any, error) {
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
	out := []any{s.branch(top.ID, top.Agent, runStatus(top.Status, top.Reason), 0)}
	return s.add(out, below, root, 1), nil
}

func (s *story) branch(id, agent string, status any, depth int) any {
	return map[string]any{"id": id, "short": short(id), "agent": s.text(agent), "status": status, "depth": strconv.Itoa(min(depth, maxDepth)), "here": id == s.run.ID}
}

func (s *story) add(out []any, below map[string][]api.RunHead, of string, depth int) []any {
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
func (s *story) events(ctx context.Context) (any, error) {
	after := ""
	if from := s.run.Seq - storyEvents; from > 0 {
		after = strconv.FormatInt(from-1, 10)
	}
	out := []any{}
	for range 10 { // an entry has several; what is left out is the newest of very many, which the run's JSON has
		p, err := s.Read.Events(ctx, s.run.ID, after, storyMessages)
		if err != nil {
			return nil, err
		}
		for _, e := range p.Events {
			out = append(out, map[string]any{"id": e.ID, "type": e.Type, "when": when(e.At)})
		}
		if after = p.Cursor; after == "" {
			break
		}
	}
	slices.Reverse(out)
	return out[:min(len(out), 2*storyEvents)], nil
}

func (s *story) calls(ctx context.Context) (any, error) {
	var out []any
	waiting := map[string]api.Waiting{}
	for _, w := range s.run.Waiting {
		waiting[w.Call] = w
	}
	left := maxStory
	for i, c := range s.run.Calls {
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
		out = append(out, map[string]any{
			"n": strconv.Itoa(i + 1), "tool": s.text(c.Tool), "status": string(c.Status), "label": strings.ReplaceAll(string(c.Status), "_", " "), "detail": strings.Join(detail, ", "),
			"waits": waits, "approval": request, "child": c.Run, "input": input, "cut": cut, "bytes": size(len(c.Input)),
		})
	}
	return out, nil
}

// input are a call's arguments, or why they are not shown here. What is decided on is shown whole, on the request's page.
func (s *story) input(ctx context.Context, tool string, raw []byte, left *int) (lines any, cut string, err error) {
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
func (s *story) messages(ctx context.Context, part []agent.Spoken, from int) (any, error) {
	out := make([]any, len(part))
	left := maxStory
	for i, m := range slices.Backward(part) {
		block, err := s.block(ctx, m.Block, &left)
		if err != nil {
			return nil, err
		}
		who := "Model"
		if m.Role == agent.RoleUser {
			who = "User"
			if _, is := m.Block.(agent.ToolResult); is {
				who = "Tool"
			}
		}
		out[i] = map[string]any{
			"n": strconv.Itoa(from + i + 1), "role": string(m.Role), "who": who, "seen": times(m.SeenCount), "evicted": m.Evicted, "block": block,
		}
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

func (s *story) block(ctx context.Context, b agent.Block, left *int) (any, error) {
	out := map[string]any{"kind": "", "text": nil, "label": "", "tool": nil, "call": "", "input": nil, "bad": false, "cut": ""}
	switch b := b.(type) {
	case agent.Text:
		out["kind"] = "text"
		s.words(out, b.Text, left)
	case agent.Media:
		out["kind"], out["label"], out["text"] = "media", "File", s.text(strings.TrimSpace(b.Name+" "+b.MediaType))
	case agent.Reasoning:
		out["kind"], out["label"] = "reasoning", "The model reasoned here. What it thought is its own."
	case agent.ToolUse:
		out["kind"], out["label"], out["tool"] = "tool_use", "as "+s.Show.Text(b.ID).String(), s.text(b.Name)
		if n, c, ok := s.call(b.ID); ok {
			out["call"], out["label"] = strconv.Itoa(n), strings.ReplaceAll(string(c.Status), "_", " ")
			out["tool"] = s.text(c.Tool)
		}
		var err error
		if out["input"], out["cut"], err = s.input(ctx, b.Name, b.Input, left); err != nil {
			return nil, err
		}
	case agent.ToolResult:
		out["kind"], out["label"], out["bad"] = "tool_result", "Result", b.IsError
		if b.IsError {
			out["label"] = "Error"
		}
		name := b.ID
		if _, c, ok := s.call(b.ID); ok {
			name = c.Tool
		}
		out["tool"] = s.text(name)
		s.words(out, b.Content, left)
		if b.Blob != "" {
			out["cut"] = "The result is in a file of its own."
		}
	default:
		return nil, errBlock
	}
	return out, nil
}

// words adds a text, as much of it as there is room for.
func (s *story) words(out map[string]any, text string, left *int) {
	begins, rest := cut(text, max(leastShown, min(maxShown, *left)))
	*left -= len(begins)
	out["text"] = s.fit(show.Words(begins))
	if rest > 0 {
		out["cut"] = plural(rest, "character") + " more: see the run as JSON."
	}
}
