package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
)

// Bounds of the queue.
const (
	queueLimit = 50      // requests that it shows
	queueBytes = 1 << 20 // bytes of requests that it shows, but for the first; HTML can take 20 times as many
	maxQueued  = 1000    // requests that it looks through
	maxBuilt   = 200     // requests whose risk it finds out
)

// queuePage is the view of queue.html: open requests, the longest waiting first.
type queuePage struct {
	frame
	Notice  *formResult // of the decision that led here
	Status  string      // in a sentence
	Waiting string      // how many requests do
	Cards   []requestCard
	Alike   []alikeGroup
	More    bool
	Hidden  int // requests that the filters leave out

	Mine, Filtered        bool
	Agents, Risks, Within []filterOption
}

// requestCard is a request as a card: on the queue, and in the run that asks.
type requestCard struct {
	requestPage
	Left             string
	Agent, Run, Root string           // that ask
	Sections         []people.Section // what a decision needs; the request's own page has the rest
}

// alikeGroup is several requests of one agent about the same tool, which the visitor may approve at once.
type alikeGroup struct {
	Tool  people.Text
	Agent string
	Count int
	Link  string
}

type filterOption struct {
	Value, Label string
	On           bool
}

func newOptions(chosen string, pairs ...string) (all []filterOption) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, filterOption{pairs[i], pairs[i+1], pairs[i] == chosen})
	}
	return all
}

func (c *console) agentOptions(chosen string) []filterOption {
	names := c.agentNames()
	if chosen != "" && !slices.Contains(names, chosen) {
		names = append(names, chosen)
	}
	all := newOptions(chosen, "", "any")
	for _, name := range names {
		all = append(all, filterOption{name, name, name == chosen})
	}
	return all
}

// filterAddress returns the address of a page with those of the filters that are set, and more parameters.
func filterAddress(path string, q map[string]string, filters []string, more ...string) string {
	v := url.Values{}
	for _, name := range filters {
		if q[name] != "" {
			v.Set(name, q[name])
		}
	}
	for i := 0; i < len(more); i += 2 {
		v.Set(more[i], more[i+1])
	}
	return strings.TrimSuffix(path+"?"+v.Encode(), "?")
}

// withinSpans are the choices of the filter by expiry.
var withinSpans = map[string]time.Duration{"": 1 << 62, "hour": time.Hour, "day": 24 * time.Hour}

func (c *console) newQueuePage(r *http.Request) (page queuePage, err error) {
	q, err := readQuery(r, "mine", "agent", "risk", "within")
	within, known := withinSpans[q["within"]]
	if err != nil || !known {
		return page, errNoPage
	}
	now := c.Clock.Now()
	all, more, err := c.openRequests(r.Context())
	if err != nil {
		return page, err
	}
	built, size := 0, 0
	for _, a := range all {
		if page.More = len(page.Cards) == queueLimit || built == maxBuilt || size > queueBytes; page.More {
			break
		}
		if q["agent"] != "" && a.Agent != q["agent"] || a.ExpiresAt.Sub(now) > within ||
			q["mine"] != "" && (!a.CanDecide(c.As, now) || a.HasDecided(c.As.ID)) {
			continue
		}
		card, err := c.newRequestCard(r.Context(), a, r.URL.RequestURI())
		if err != nil {
			return page, err
		}
		built++
		if q["risk"] == "" || string(card.Shown.Risk) == q["risk"] {
			page.Cards = append(page.Cards, card)
			size += storedSize(a)
		}
	}
	title := "Approvals"
	if len(all) > 0 {
		title = "(" + strconv.Itoa(len(all)) + ") " + title
	}
	page.frame = c.newFrame(title, navApprovals)
	page.More, page.Hidden = page.More || more, len(all)-len(page.Cards)
	page.Waiting, page.Mine = strconv.Itoa(len(all)), q["mine"] != ""
	page.Filtered = q["agent"]+q["risk"]+q["within"]+q["mine"] != ""
	if more {
		page.Waiting += "+"
	}
	switch page.Status = page.Waiting + " requests wait for a decision."; len(all) {
	case 0:
		page.Status = "Nobody is asked for anything."
	case 1:
		page.Status = "1 request waits for a decision."
	}
	if decided, err := r.Cookie(decidedCookie); err == nil {
		if page.Notice, err = c.newDecidedNotice(r.Context(), decided.Value); err != nil {
			return page, err
		}
	}
	page.Alike = findAlike(page.Cards)
	page.Agents = c.agentOptions(q["agent"])
	page.Risks = newOptions(q["risk"], "", "any", "high", "high", "medium", "medium", "low", "low", "none", "none")
	page.Within = newOptions(q["within"], "", "any time", "hour", "an hour", "day", "a day")
	return page, nil
}

// newDecidedNotice says what became of a request; nil = there is no such request.
func (c *console) newDecidedNotice(ctx context.Context, id string) (*formResult, error) {
	a, err := c.Get(ctx, c.Tenant, id)
	switch {
	case errors.Is(err, approval.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case a.Status == approval.Pending:
		return answerRecorded, nil
	}
	known, err := c.View(ctx, a)
	return &formResult{
		Head: people.StatusText(a.Kind, a.Status) + ": " + people.RequestSentence(a, known), Text: people.OutcomeText(a),
	}, err
}

func storedSize(a approval.Approval) int {
	stored, _ := json.Marshal(a) // what was read can be written
	return len(stored)
}

// openRequests returns the requests that wait for a decision, the longest waiting first, and whether there are more.
func (c *console) openRequests(ctx context.Context) (all []approval.Approval, more bool, err error) {
	now := c.Clock.Now()
	all, more, err = c.findApprovals(ctx, approval.Query{Status: approval.Pending}, maxQueued)
	expired := func(a approval.Approval) bool { return !a.IsOpen(now) } // and is not yet recorded as expired
	return slices.DeleteFunc(all, expired), more, err
}

// findApprovals returns requests, page by page until there are most or more, and whether there are more.
func (c *console) findApprovals(
	ctx context.Context, find approval.Query, most int,
) (all []approval.Approval, more bool, err error) {
	for find.Limit = maxPageMessages; ; {
		page, err := c.Read.FindApprovals(ctx, find)
		if err != nil {
			return nil, false, err
		}
		all = append(all, page.Items...)
		if find.Cursor = page.Cursor; find.Cursor == "" || len(all) >= most {
			return all, find.Cursor != "", nil
		}
	}
}

// newRequestCard returns the card of a request. back is the path that its forms lead back to.
func (c *console) newRequestCard(ctx context.Context, a approval.Approval, back string) (card requestCard, err error) {
	a.Tenant = c.Tenant
	page, err := c.newRequestPage(ctx, c.newVisit(a), formResult{})
	if err != nil {
		return card, err
	}
	page.Prefix, page.Action, page.Back = a.ID+"-", approvalsPath+a.ID, back
	card = requestCard{requestPage: page, Left: c.formatTimeLeft(a.ExpiresAt), Agent: a.Agent, Run: a.Run, Root: a.Root}
	for _, s := range page.Shown.Sections {
		if slices.Contains([]people.SectionName{
			people.SectionWarnings, people.SectionArguments, people.SectionDepends, people.SectionWho, people.SectionAsks,
		}, s.Name) {
			card.Sections = append(card.Sections, s)
		}
	}
	return card, nil
}

func (c *console) formatTimeLeft(until time.Time) string {
	if left := until.Sub(c.Clock.Now()); left > 0 {
		return people.FormatDuration(left) + " left"
	}
	return "its time is over"
}

// isAlike reports whether two requests can be approved at once: one agent asks both about the same tool.
func (card requestCard) isAlike(agent, tool string) bool {
	return card.May.Approve && card.Kind == approval.KindCall && card.Agent == agent &&
		card.Shown.Fact(people.FactTool).String() == tool
}

// findAlike returns the groups of two requests or more.
func findAlike(cards []requestCard) (groups []alikeGroup) {
	for _, card := range cards {
		tool := card.Shown.Fact(people.FactTool)
		if !card.isAlike(card.Agent, tool.String()) {
			continue
		}
		link := togetherPath + "?" + url.Values{"agent": {card.Agent}, "tool": {tool.String()}}.Encode()
		i := slices.IndexFunc(groups, func(g alikeGroup) bool { return g.Link == link })
		if i < 0 {
			i = len(groups)
			groups = append(groups, alikeGroup{Tool: tool, Agent: card.Agent, Link: link})
		}
		groups[i].Count++
	}
	return slices.DeleteFunc(groups, func(g alikeGroup) bool { return g.Count < 2 })
}

// togetherPage is the view of together.html: several requests, which one form approves.
type togetherPage struct {
	frame
	Heading string
	Notice  *formResult
	Cards   []togetherCard
}

// togetherCard is one of the requests, with what became of it once the form was sent.
type togetherCard struct {
	requestCard
	Digest, Token string
	Outcome       string // "" = not decided yet
	Bad           bool
}

func (c *console) newTogetherPage(r *http.Request) (page togetherPage, err error) {
	q, err := readQuery(r, "agent", "tool")
	if err != nil {
		return page, err
	}
	waiting, _, err := c.openRequests(r.Context())
	if err != nil {
		return page, err
	}
	for _, a := range waiting {
		if a.Agent != q["agent"] || !slices.Equal(a.Tools, []string{q["tool"]}) || len(page.Cards) == queueLimit {
			continue
		}
		card, err := c.newRequestCard(r.Context(), a, "")
		if err != nil {
			return page, err
		}
		if card.isAlike(q["agent"], q["tool"]) {
			page.Cards = append(page.Cards, togetherCard{requestCard: card, Digest: a.Digest, Token: a.ID + "." + card.Form})
		}
	}
	page.frame = c.newFrame("Approve several", navApprovals)
	page.Heading = "Approve " + formatCount(len(page.Cards), "call") + " of " + q["tool"]
	return page, nil
}

// approveTogether approves each request of a form that still is as it was shown. Each is a decision of its own.
func (c *console) approveTogether(r *http.Request, form map[string]string) (togetherPage, error) {
	var cards []togetherCard
	done := 0
	for _, token := range strings.Fields(form["form"]) {
		id, state, _ := strings.Cut(token, ".")
		if !approvalID.MatchString(id) {
			return togetherPage{}, errNoPage
		}
		a, err := c.Get(r.Context(), c.Tenant, id)
		if err != nil {
			return togetherPage{}, err
		}
		v := c.newVisit(a)
		outcome := "It was not approved: the form was not one of this page."
		if before, ours := verifyForm(v.link, state); ours {
			outcome = before.describeChanges(newFormState(a, c.As.ID))
		}
		if outcome == "" {
			err := c.applyForm(r.Context(), v, map[string]string{"action": "approve", "note": form["note"]})
			var status int
			if status, outcome = explainError(err); err != nil && status == 0 {
				return togetherPage{}, err
			}
		}
		if a, err = c.Get(r.Context(), c.Tenant, id); err != nil {
			return togetherPage{}, err
		}
		card, err := c.newRequestCard(r.Context(), a, "")
		if err != nil {
			return togetherPage{}, err
		}
		out := togetherCard{requestCard: card, Digest: a.Digest, Outcome: outcome, Bad: outcome != ""}
		if !out.Bad {
			done++
			out.Outcome = "Your approval is recorded."
		}
		cards = append(cards, out)
	}
	return togetherPage{c.newFrame("Approve several", navApprovals), "Approve several", &formResult{Bad: done < len(cards),
		Head: "Approved: " + strconv.Itoa(done) + " of " + formatCount(len(cards), "call")}, cards}, nil
}
