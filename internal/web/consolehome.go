package web

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// Bounds of the home page.
const (
	homeApprovals = 50
	homeRuns      = 25
	maxPreview    = 120 // characters of a run's first message
	maxPreviews   = 2000
)

// homePage is the view of home.html: open requests, the longest waiting first, and runs.
type homePage struct {
	frame
	Status      string // in a sentence
	Waiting     string // how many requests do
	Requests    []requestCard
	MoreWaiting bool

	Runs             []runRow
	None             string // said where there are no runs
	Statuses, Agents []filterOption
	Chosen           map[string]string // of the filters: status, agent, cursor
	Cursor           string            // of the next page of runs; "" = there is none
}

// requestCard is a request on the home page.
type requestCard struct {
	approval.Approval
	Shown show.Document
	Left  string
	Agent show.Text // the asking agent
}

// runRow is a run on the home page.
type runRow struct {
	api.RunHead
	Agent, Preview show.Text
}

// filterOption is a choice of a filter.
type filterOption struct {
	Value string
	Label show.Text
	On    bool
}

func (c *console) newHomePage(r *http.Request) (page homePage, err error) {
	q, err := readQuery(r, "status", "agent", "cursor")
	if err != nil {
		return page, err
	}
	waiting, err := c.Read.FindApprovals(r.Context(), approval.Query{Status: approval.Pending, Limit: homeApprovals})
	if err != nil {
		return page, err
	}
	runs, err := c.Read.Runs(r.Context(), api.RunQuery{Status: q["status"], Agent: q["agent"], Cursor: q["cursor"],
		Limit: homeRuns})
	if err != nil {
		return page, err
	}
	requests, err := c.newRequestCards(r.Context(), waiting.Items)
	if err != nil {
		return page, err
	}
	var rows []runRow
	for _, h := range runs.Items {
		preview, err := c.loadPreview(r.Context(), h.ID)
		if err != nil && !isNotFound(err) {
			return page, err
		}
		rows = append(rows, runRow{h, c.Show.Text(h.Agent), preview})
	}
	var statuses []filterOption
	for _, o := range [][2]string{{"", "any"}, {"waiting", "waiting"}, {"running", "running"}, {"done", "ended"}} {
		statuses = append(statuses, filterOption{o[0], show.Text{{Text: o[1]}}, o[0] == q["status"]})
	}
	title := "Console · Countersign"
	if len(requests) > 0 {
		title = "(" + strconv.Itoa(len(requests)) + ") " + title
	}
	none := "There are no runs yet."
	if q["status"]+q["agent"]+q["cursor"] != "" {
		none = "There are no such runs here."
	}
	count := strconv.Itoa(len(requests))
	if waiting.Cursor != "" {
		count += "+"
	}
	status := count + " requests wait for a decision."
	switch len(requests) {
	case 0:
		status = "Nobody is asked for anything."
	case 1:
		status = "1 request waits for a decision."
	}
	return homePage{
		frame:  c.newFrame(title, nil),
		Status: status, Waiting: count, Requests: requests, MoreWaiting: waiting.Cursor != "",
		Runs: rows, None: none, Chosen: q, Cursor: runs.Cursor,
		Statuses: statuses, Agents: c.agentOptions(q["agent"]),
	}, nil
}

// newRequestCards returns the cards of open requests.
func (c *console) newRequestCards(ctx context.Context, list []approval.Approval) (out []requestCard, err error) {
	now := c.Clock.Now()
	for _, a := range list {
		if !a.IsOpen(c.Clock.Now()) { // expired, but not yet recorded as expired
			continue
		}
		a.Tenant = c.Tenant
		shown, err := c.Show.Of(ctx, a)
		if err != nil {
			return nil, err
		}
		out = append(out, requestCard{Approval: a, Shown: shown, Left: show.FormatDuration(a.ExpiresAt.Sub(now)),
			Agent: c.Show.Text(a.Agent)})
	}
	return out, nil
}

// loadPreview returns the beginning of a run's first text message, which never changes; nil = none.
func (c *console) loadPreview(ctx context.Context, run string) (show.Text, error) {
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
	first := c.firstMessageText(all)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.previews) >= maxPreviews {
		c.previews = map[string]show.Text{}
	}
	c.previews[run] = first
	return first, nil
}

func (c *console) firstMessageText(all []policy.Spoken) show.Text {
	for _, m := range all {
		if words, ok := m.Block.(run.Text); ok && m.Role == run.RoleUser && strings.TrimSpace(words.Text) != "" {
			text, _ := truncate(strings.Join(strings.Fields(words.Text), " "), maxPreview)
			return c.Show.Text(text)
		}
	}
	return nil
}

// truncate returns the beginning of a text and the number of characters left out.
func truncate(s string, limit int) (begins string, left int) {
	if len(s) <= limit {
		return s, 0
	}
	r := []rune(s)
	if len(r) <= limit {
		return s, 0
	}
	return string(r[:limit]) + "…", len(r) - limit
}

// reasonLabels are the reasons of a run's end for people.
var reasonLabels = map[run.Reason]string{
	run.ReasonNaturalEnd: "Done", run.ReasonCancelled: "Called off", run.ReasonError: "Failed",
	run.ReasonMaxRounds: "Stopped: too many rounds",
}

// statusLabel is a run's status for the template "run-status".
type statusLabel struct{ Kind, Label string }

func newStatusLabel(s run.RunStatus, why run.Reason) statusLabel {
	kind, label := string(s), map[run.RunStatus]string{run.RunRunning: "Running", run.RunWaiting: "Waiting"}[s]
	if s == run.RunDone {
		kind = "ended"
		if why == run.ReasonNaturalEnd {
			kind = "done"
		}
		if label = reasonLabels[why]; label == "" {
			label = "Ended: " + strings.ReplaceAll(string(why), "_", " ")
		}
	}
	return statusLabel{kind, label}
}

func (c *console) agentOptions(chosen string) []filterOption {
	var names []string
	if c.Agents != nil {
		names = append(names, c.Agents()...)
	}
	if chosen != "" && !slices.Contains(names, chosen) {
		names = append(names, chosen)
	}
	all := []filterOption{{"", show.Text{{Text: "any"}}, chosen == ""}}
	for _, name := range names {
		all = append(all, filterOption{name, c.Show.Text(name), name == chosen})
	}
	return all
}
