package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Bounds of the list of runs.
const (
	runsLimit    = 50
	maxSearched  = 400 // runs whose messages one search reads
	maxPreview   = 120 // characters of a run's first message
	maxSummaries = 5000
)

// runsPage is the view of runs.html.
type runsPage struct {
	frame
	Runs             []runRow
	None             string // said where there are no runs
	Statuses, Agents []filterOption
	Chosen           map[string]string // of the filters: status, agent, q, cursor
	Next             string            // the address of the next page of runs; "" = there is none
	Query            string
}

type runRow struct {
	RunHead
	runSummary
	Took string
}

// runSummary is what a list shows of a run besides its head.
type runSummary struct {
	Title  string // the beginning of its first text message; "" = none
	Tokens string
	Cost   run.USD
	at     time.Time // of the head it was made with
}

func (c *console) newRunsPage(r *http.Request) (page runsPage, err error) {
	q, err := readQuery(r, "status", "agent", "q", "cursor")
	if err != nil {
		return page, err
	}
	words := strings.TrimSpace(q["q"])
	if runID.MatchString(words) || approvalID.MatchString(words) || shortIDs.MatchString(words) {
		if whole, err := c.completeID(r.Context(), words); err == nil {
			return page, movedPage(map[byte]string{'r': runsPath, 'a': approvalsPath}[words[0]] + whole)
		}
	}
	find := RunQuery{Status: q["status"], Agent: q["agent"], Cursor: q["cursor"], Limit: runsLimit}
	failed := q["status"] == "failed" // a kind of end
	if failed {
		find.Status = string(run.RunDone)
	}
	for looked := 0; ; {
		heads, err := c.Read.Runs(r.Context(), find)
		if err != nil {
			return page, err
		}
		for _, h := range heads.Items {
			if failed && h.Reason != run.ReasonError {
				continue
			}
			if found, err := c.mentions(r.Context(), h.ID, words); err != nil || !found {
				if err != nil && !isNotFound(err) {
					return page, err
				}
				continue
			}
			row, err := c.newRunRow(r.Context(), h)
			if err != nil {
				return page, err
			}
			page.Runs = append(page.Runs, row)
		}
		looked += len(heads.Items)
		find.Cursor = heads.Cursor
		if find.Cursor == "" || words == "" && !failed || len(page.Runs) >= runsLimit || looked >= maxSearched {
			break
		}
	}
	page.None = "There are no runs yet."
	if q["status"]+q["agent"]+q["cursor"]+words != "" {
		page.None = "There are no such runs here."
	}
	if find.Cursor != "" {
		page.Next = filterAddress(navRuns, q, []string{"status", "agent", "q"}, "cursor", find.Cursor)
	}
	page.frame = c.newFrame("Runs", navRuns)
	page.Chosen, page.Query = q, words
	page.Statuses = newOptions(q["status"], "", "any", "waiting", "waiting", "running", "running", "done", "ended",
		"failed", "failed")
	page.Agents = c.agentOptions(q["agent"])
	return page, nil
}

// mentions reports whether a message of a run contains the words, whatever their case.
func (c *console) mentions(ctx context.Context, id, words string) (bool, error) {
	if words == "" {
		return true, nil
	}
	all, err := c.Conversation(ctx, id)
	words = strings.ToLower(words)
	return slices.ContainsFunc(all, func(m policy.SeenMessage) bool {
		text := ""
		switch b := m.Block.(type) {
		case run.Text:
			text = b.Text
		case run.ToolUse:
			text = b.Name + " " + string(b.Input)
		case run.ToolResult:
			text = b.Content
		}
		return strings.Contains(strings.ToLower(text), words)
	}), err
}

// newRunRow returns the row of a run. What its head does not say is read again if the run has moved since, and while it
// runs; the title never changes.
func (c *console) newRunRow(ctx context.Context, h RunHead) (runRow, error) {
	row := runRow{RunHead: h}
	if h.Status == run.RunDone {
		row.Took = formatTook(h.UpdatedAt.Sub(h.StartedAt))
	}
	key := c.Tenant + "/" + h.ID
	c.mu.Lock()
	known, ok := c.summaries[key]
	c.mu.Unlock()
	if ok && h.Status != run.RunRunning && known.at.Equal(h.UpdatedAt) {
		row.runSummary = known
		return row, nil
	}
	one, err := c.Read.RunWithoutMessages(ctx, h.ID)
	switch {
	case isNotFound(err): // taken out meanwhile
		return row, nil
	case err != nil:
		return row, err
	}
	if known.Title == "" {
		all, err := c.Conversation(ctx, h.ID)
		if err != nil && !isNotFound(err) {
			return row, err
		}
		known.Title = firstMessageText(all)
	}
	known.at, known.Tokens, known.Cost = h.UpdatedAt, formatNumber(one.Usage.Total()), one.Cost
	row.runSummary = known
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.summaries) >= maxSummaries {
		c.summaries = map[string]runSummary{}
	}
	c.summaries[key] = known
	return row, nil
}

func firstMessageText(all []policy.SeenMessage) string {
	for _, m := range all {
		if words, ok := m.Block.(run.Text); ok && m.Role == run.RoleUser && strings.TrimSpace(words.Text) != "" {
			text, _ := truncate(strings.Join(strings.Fields(words.Text), " "), maxPreview)
			return text
		}
	}
	return ""
}

// truncate returns the beginning of a text and the number of characters left out. What is cut has its secrets masked
// first: nothing finds the half of one that is left.
func truncate(s string, limit int) (begins string, left int) {
	if utf8.RuneCountInString(s) <= limit {
		return s, 0
	}
	r := []rune(mask.Text(s))
	if len(r) <= limit {
		return string(r), 0
	}
	return string(r[:limit]) + "…", len(r) - limit
}

// formatNumber formats a number with a space between thousands.
func formatNumber(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "\u202f" + digits[at:]
	}
	return digits
}

// formatUSD formats money; "" = none.
func formatUSD(usd run.USD) string {
	if usd == 0 {
		return ""
	}
	return "$" + usd.String()
}

func formatTook(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// reasonLabels are the reasons of a run's end for people.
var reasonLabels = map[run.Reason]string{
	run.ReasonNaturalEnd: "Done", run.ReasonCancelled: "Cancelled", run.ReasonError: "Failed",
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
		words := "Ended: " + strings.ReplaceAll(string(why), "_", " ")
		label = cmp.Or(reasonLabels[why], strings.Replace(words, "Ended: stopped:", "Stopped: ", 1))
	}
	return statusLabel{kind, label}
}
