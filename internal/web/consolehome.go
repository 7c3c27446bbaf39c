package web

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// The bounds of the first page.
const (
	homeApprovals = 50
	homeRuns      = 25
	maxPreview    = 120 // characters of a run's first message
	maxPreviews   = 2000
)

// homePage is the view of home.html: who waits, the one who has waited longest first, and the runs.
type homePage struct {
	frame
	Status      string // in a sentence
	Waiting     string // how many requests do
	Requests    []card
	MoreWaiting bool

	Runs             []row
	None             string // said where there are no runs
	Statuses, Agents []option
	Chosen           map[string]string // of the filters: status, agent, cursor
	Cursor           string            // of the next page of runs; "" = there is none
}

// card is a request on the first page.
type card struct {
	approval.Approval
	Shown        show.Request
	Arguments    *arguments
	More         bool // of the arguments
	Risk         *risk
	Left, Quorum string
	By, Agent    show.Text // who may decide, and who asks
}

// row is a run on the first page.
type row struct {
	api.RunHead
	Agent, Preview show.Text
}

// option is one of a filter's choices.
type option struct {
	Value string
	Label show.Text
	On    bool
}

func (c *console) homePage(r *http.Request) (page homePage, err error) {
	q, err := query(r, "status", "agent", "cursor")
	if err != nil {
		return page, err
	}
	waiting, err := c.Read.FindApprovals(r.Context(), approval.Query{Status: approval.Pending, Limit: homeApprovals})
	if err != nil {
		return page, err
	}
	runs, err := c.Read.Runs(r.Context(), api.RunQuery{Status: q["status"], Agent: q["agent"], Cursor: q["cursor"], Limit: homeRuns})
	if err != nil {
		return page, err
	}
	requests, err := c.requests(r.Context(), waiting.Approvals)
	if err != nil {
		return page, err
	}
	rows, err := c.rows(r.Context(), runs.Runs)
	if err != nil {
		return page, err
	}
	none := "There are no runs yet."
	if q["status"]+q["agent"]+q["cursor"] != "" {
		none = "There are no such runs here."
	}
	count := strconv.Itoa(len(requests))
	if waiting.Cursor != "" {
		count += "+"
	}
	return homePage{
		frame:  c.frame(title(len(requests)), nil),
		Status: waitingLine(count, len(requests)), Waiting: count, Requests: requests, MoreWaiting: waiting.Cursor != "",
		Runs: rows, None: none, Chosen: q, Cursor: runs.Cursor,
		Statuses: statusOptions(q["status"]), Agents: c.agentOptions(q["agent"]),
	}, nil
}

func title(waiting int) string {
	if waiting == 0 {
		return "Console · Countersign"
	}
	return "(" + strconv.Itoa(waiting) + ") Console · Countersign"
}

func waitingLine(count string, n int) string {
	switch n {
	case 0:
		return "Nobody is asked for anything."
	case 1:
		return "1 request waits for a decision."
	}
	return count + " requests wait for a decision."
}

// requests are those that are open.
func (c *console) requests(ctx context.Context, list []approval.Approval) (out []card, err error) {
	now := c.Clock.Now()
	for _, a := range list {
		if !c.open(a) { // its time is over, and what ends it has not come by yet
			continue
		}
		a.Tenant = c.Tenant
		shown, err := c.Show.Of(ctx, a)
		if err != nil {
			return nil, err
		}
		risky := riskOf(shown.Facts, shown.Risk)
		if risky == nil && shown.Risk != "" { // several tools: the highest of theirs
			risky = &risk{Level: shown.Risk}
		}
		lines, more := excerpt(askedWith(shown))
		out = append(out, card{
			Approval: a, Shown: shown, Arguments: lines, More: more, Risk: risky,
			Left: duration(a.ExpiresAt.Sub(now)), Quorum: quorum(a), By: c.Show.Text(deciders(a)), Agent: c.Show.Text(a.Agent),
		})
	}
	return out, nil
}

// The bounds of what a card shows of arguments, in lines and in characters of each. A request's own page has all of them.
const (
	cardLines = 6
	cardValue = 160
)

// askedWith are the arguments of what a request asks; of several tools those of each call, below the tool's name.
func askedWith(r show.Request) []show.Argument {
	all := r.Arguments
	for _, t := range r.Tools {
		for _, c := range t.Calls {
			all = append(all, show.Argument{Key: t.Name, Kind: "object"})
			for _, a := range c {
				a.Depth++
				all = append(all, a)
			}
		}
	}
	return all
}

// excerpt is how arguments begin; more says that there is more of them.
func excerpt(all []show.Argument) (begin *arguments, more bool) {
	lines := slices.Clone(all[:min(len(all), cardLines)])
	more = len(lines) < len(all)
	for i, a := range lines {
		var cut bool
		lines[i].Value, cut = beginning(a.Value, cardValue)
		more = more || cut
	}
	return argumentsOf(lines), more
}

// beginning is how a text begins; cut says that it goes on.
func beginning(t show.Text, limit int) (begin show.Text, cut bool) {
	for _, s := range t {
		r := []rune(s.Text)
		if len(r) <= limit {
			begin, limit = append(begin, s), limit-len(r)
			continue
		}
		if s.Kind == show.Plain {
			begin = append(begin, show.Span{Text: string(r[:limit])})
		}
		return append(begin, show.Span{Text: "…"}), true
	}
	return begin, false
}

// deciders names who may decide: one of the approvers, who is among those of each delegating agent's policy as well.
func deciders(a approval.Approval) string {
	if a.Kind == approval.KindTools {
		return "different people for each tool"
	}
	first := a.Approvers
	if !a.EscalatedAt.IsZero() {
		first = slices.Concat(first, a.EscalateTo)
	}
	var sets []string
	for _, set := range append([][]string{first}, a.Above...) {
		names := strings.Join(set, ", ")
		if len(set) == 0 {
			names = "nobody"
		}
		if !slices.Contains(sets, names) {
			sets = append(sets, names)
		}
	}
	return strings.Join(sets, "; and at once ")
}

func (c *console) rows(ctx context.Context, heads []api.RunHead) ([]row, error) {
	var out []row
	for _, h := range heads {
		first, err := c.preview(ctx, h.ID)
		if err != nil && !absent(err) {
			return nil, err
		}
		out = append(out, row{h, c.Show.Text(h.Agent), first})
	}
	return out, nil
}

// preview is the beginning of a run's first message of words, which never changes; nil = it has none.
func (c *console) preview(ctx context.Context, run string) (show.Text, error) {
	c.mu.Lock()
	known, ok := c.previews[run]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	all, err := c.Conversation(ctx, run)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	first := c.firstWords(all)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.previews) >= maxPreviews {
		c.previews = map[string]show.Text{}
	}
	c.previews[run] = first
	return first, nil
}

func (c *console) firstWords(all []run.Spoken) show.Text {
	for _, m := range all {
		if words, ok := m.Block.(run.Text); ok && m.Role == run.RoleUser && strings.TrimSpace(words.Text) != "" {
			text, _ := cut(strings.Join(strings.Fields(words.Text), " "), maxPreview)
			return c.Show.Text(text)
		}
	}
	return nil
}

// cut is the beginning of a text, and how many characters are left out.
func cut(s string, limit int) (begins string, left int) {
	if len(s) <= limit {
		return s, 0
	}
	r := []rune(s)
	if len(r) <= limit {
		return s, 0
	}
	return string(r[:limit]) + "…", len(r) - limit
}

// endings are why runs end, for people.
var endings = map[run.Reason]string{
	run.ReasonNaturalEnd: "Done", run.ReasonCancelled: "Called off", run.ReasonError: "Failed", run.ReasonMaxRounds: "Stopped: too many rounds",
}

// standing is how a run stands, for the template "run-status".
type standing struct{ Kind, Label string }

func runStatus(s run.RunStatus, why run.Reason) standing {
	kind, label := string(s), map[run.RunStatus]string{run.RunRunning: "Running", run.RunWaiting: "Waiting"}[s]
	if s == run.RunDone {
		kind = "ended"
		if why == run.ReasonNaturalEnd {
			kind = "done"
		}
		if label = endings[why]; label == "" {
			label = "Ended: " + strings.ReplaceAll(string(why), "_", " ")
		}
	}
	return standing{kind, label}
}

func statusOptions(chosen string) (all []option) {
	for _, o := range [][2]string{{"", "any"}, {"waiting", "waiting"}, {"running", "running"}, {"done", "ended"}} {
		all = append(all, option{o[0], show.Text{{Text: o[1]}}, o[0] == chosen})
	}
	return all
}

func (c *console) agentOptions(chosen string) []option {
	var names []string
	if c.Agents != nil {
		names = append(names, c.Agents()...)
	}
	if chosen != "" && !slices.Contains(names, chosen) {
		names = append(names, chosen)
	}
	all := []option{{"", show.Text{{Text: "any"}}, chosen == ""}}
	for _, name := range names {
		all = append(all, option{name, c.Show.Text(name), name == chosen})
	}
	return all
}
