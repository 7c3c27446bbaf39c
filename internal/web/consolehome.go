package web

import (
	"context"
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

// The bounds of the first page.
const (
	homeApprovals = 50
	homeRuns      = 25
	maxPreview    = 120 // characters of a run's first message
	maxPreviews   = 2000
)

// homeData is what the first page shows: who waits, the one who has waited longest first, and the runs.
func (c *console) homeData(r *http.Request) (map[string]any, error) {
	q, err := query(r, "status", "agent", "cursor")
	if err != nil {
		return nil, err
	}
	waiting, err := c.Read.FindApprovals(r.Context(), approval.Query{Status: approval.Pending, Limit: homeApprovals})
	if err != nil {
		return nil, err
	}
	runs, err := c.Read.Runs(r.Context(), api.RunQuery{Status: q["status"], Agent: q["agent"], Cursor: q["cursor"], Limit: homeRuns})
	if err != nil {
		return nil, err
	}
	requests, hidden, err := c.requests(r.Context(), waiting.Approvals)
	if err != nil {
		return nil, err
	}
	rows, err := c.rows(r.Context(), runs.Runs)
	if err != nil {
		return nil, err
	}
	none := "There are no runs yet."
	if q["status"]+q["agent"]+q["cursor"] != "" {
		none = "There are no such runs here."
	}
	count := strconv.Itoa(len(requests))
	if waiting.Cursor != "" {
		count += "+"
	}
	return map[string]any{
		"title": title(len(requests)), "trail": nil, "status": waitingLine(count, len(requests)), "waiting": count, "approvals": requests, "moreWaiting": waiting.Cursor != "",
		"runs": rows, "none": none, "statuses": statusOptions(q["status"]), "agents": c.agentOptions(q["agent"]), "paged": runs.Cursor != "" || q["cursor"] != "",
		"unread": c.unread(slices.Concat(waiting.Unread, hidden, runs.Unread)), "inside": q["cursor"] != "", "cursor": runs.Cursor, "statusValue": q["status"], "agentValue": q["agent"],
	}, nil
}

// unread names what the lists could not read; nil = nothing.
func (c *console) unread(items []api.Unread) any {
	if len(items) == 0 {
		return nil
	}
	names := make([]string, len(items))
	for i, u := range items {
		names[i] = u.Item + " (" + string(u.Why) + ")"
	}
	return Text(c.Show.Text("What cannot be read: " + strings.Join(names, ", ") + "."))
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

// requests are those that are open; hidden are those of runs that cannot be read: nobody can know what is secret in them.
func (c *console) requests(ctx context.Context, list []approval.Approval) (out []any, hidden []api.Unread, err error) {
	now := c.Clock.Now()
	for _, a := range list {
		if !c.open(a) { // its time is over, and what ends it has not come by yet
			continue
		}
		a.Tenant = c.Tenant
		shown, err := c.Show.Of(ctx, a)
		if why := api.UnreadBy(err); why != "" {
			hidden = append(hidden, api.Unread{Item: a.ID, Why: why})
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		_, risk := withoutRisk(shown.Facts, shown.Risk)
		if risk == nil && shown.Risk != "" { // several tools: the highest of theirs
			risk = map[string]any{"level": string(shown.Risk), "label": riskLabels[shown.Risk], "text": ""}
		}
		arguments, more := excerpt(askedWith(shown))
		out = append(out, map[string]any{
			"arguments": arguments, "more": more, "level": string(shown.Risk),
			"id": a.ID, "title": Text(shown.Title), "agent": Text(c.Show.Text(a.Agent)), "run": a.Run, "short": short(a.Run), "root": a.Root, "rootShort": short(a.Root),
			"left": span(a.ExpiresAt.Sub(now)), "until": when(a.ExpiresAt), "approvers": Text(c.Show.Text(deciders(a))), "quorum": quorum(a), "risk": risk,
		})
	}
	return out, hidden, nil
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
func excerpt(all []show.Argument) (begin any, more bool) {
	lines := slices.Clone(all[:min(len(all), cardLines)])
	more = len(lines) < len(all)
	for i, a := range lines {
		var cut bool
		lines[i].Value, cut = beginning(a.Value, cardValue)
		more = more || cut
	}
	return Arguments(lines), more
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

func (c *console) rows(ctx context.Context, heads []api.RunHead) ([]any, error) {
	var out []any
	for _, h := range heads {
		first, err := c.preview(ctx, h.ID)
		if err != nil && !absent(err) && api.UnreadBy(err) == "" {
			return nil, err
		}
		out = append(out, map[string]any{
			"id": h.ID, "short": short(h.ID), "status": runStatus(h.Status, h.Reason), "agent": Text(c.Show.Text(h.Agent)), "preview": Text(first),
			"child": h.Parent != "", "started": stamp(h.StartedAt), "updated": stamp(h.UpdatedAt),
		})
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

func (c *console) firstWords(all []agent.Spoken) show.Text {
	for _, m := range all {
		if words, ok := m.Block.(agent.Text); ok && m.Role == agent.RoleUser && strings.TrimSpace(words.Text) != "" {
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

func when(t time.Time) any {
	return map[string]any{"at": machine(t), "text": t.UTC().Format("2 Jan 2006, 15:04:05 UTC")}
}

// stamp is when where it stands beside that it is UTC.
func stamp(t time.Time) any {
	return map[string]any{"at": machine(t), "text": t.UTC().Format("2 Jan 2006, 15:04:05")}
}

// endings are why runs end, for people.
var endings = map[agent.Reason]string{
	agent.ReasonNaturalEnd: "Done", agent.ReasonCancelled: "Called off", agent.ReasonError: "Failed", agent.ReasonMaxRounds: "Stopped: too many rounds",
}

// runStatus is a run's status for the template "run-status".
func runStatus(s agent.RunStatus, why agent.Reason) any {
	kind, label := string(s), map[agent.RunStatus]string{agent.RunRunning: "Running", agent.RunWaiting: "Waiting"}[s]
	if s == agent.RunDone {
		kind = "ended"
		if why == agent.ReasonNaturalEnd {
			kind = "done"
		}
		if label = endings[why]; label == "" {
			label = "Ended: " + strings.ReplaceAll(string(why), "_", " ")
		}
	}
	return map[string]any{"kind": kind, "label": label}
}

func statusOptions(chosen string) []any {
	var out []any
	for _, o := range [][2]string{{"", "any"}, {"waiting", "waiting"}, {"running", "running"}, {"done", "ended"}} {
		out = append(out, map[string]any{"value": o[0], "label": o[1], "on": o[0] == chosen})
	}
	return out
}

func (c *console) agentOptions(chosen string) []any {
	names := []string{}
	if c.Agents != nil {
		names = append(names, c.Agents()...)
	}
	if chosen != "" && !slices.Contains(names, chosen) {
		names = append(names, chosen)
	}
	out := []any{map[string]any{"value": "", "label": Text(show.Text{{Text: "any"}}), "on": chosen == ""}}
	for _, name := range names {
		out = append(out, map[string]any{"value": name, "label": Text(c.Show.Text(name)), "on": name == chosen})
	}
	return out
}
