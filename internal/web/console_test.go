package web_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web"
)

// id is one of a run.
const id = "raaaaaaaaaaaaaaaaaaaaaaaaa"

// runs is an API that has one run.
type runs struct {
	web.Reader // of what nothing here asks
	run        web.Run
}

func (r runs) RunWithoutMessages(context.Context, string) (web.Run, error) { return r.run, nil }
func (r runs) Run(context.Context, string) (web.Run, error)                { return r.run, nil }
func (r runs) Runs(context.Context, web.RunQuery) (web.Page[web.RunHead], error) {
	return web.Page[web.RunHead]{Items: []web.RunHead{}}, nil
}
func (r runs) Events(context.Context, string, string, int) (web.Page[web.Event], error) {
	return web.Page[web.Event]{}, nil
}
func (r runs) Approval(context.Context, string) (approval.Approval, error) {
	return approval.Approval{}, approval.ErrNotFound
}
func (r runs) FindApprovals(context.Context, approval.Query) (web.Page[approval.Approval], error) {
	return web.Page[approval.Approval]{}, nil
}

// manyDecided is an API that has more approved requests than an audit looks through, and one that was denied before
// them.
type manyDecided struct{ runs }

func (manyDecided) FindApprovals(_ context.Context, q approval.Query) (p web.Page[approval.Approval], err error) {
	decided := approval.Decision{At: time.Unix(2_000_000, 0), By: "user:ana", Action: approval.Approve}
	switch {
	case !q.Newest:
		return p, errors.New("the newest requests are what an audit is for")
	case q.Status == approval.Approved:
		p.Cursor = "next"
	case q.Status == approval.Denied:
		if p.Cursor = "next"; q.Cursor != "" {
			p.Cursor = ""
		}
		decided = approval.Decision{At: time.Unix(1_000_000, 0), By: "user:ben", Action: approval.Deny}
	default:
		return p, nil
	}
	for range q.Limit {
		p.Items = append(p.Items, approval.Approval{ID: "a", Status: q.Status, Decisions: []approval.Decision{decided}})
	}
	return p, nil
}

// An audit of more requests than it looks through says what is missing, on the page and in the export, and has those of
// the other statuses whole.
func TestAuditSaysWhatIsMissing(t *testing.T) {
	w := newHarness(t, asksToPay(five))
	w.console("user:ana", func(c *web.Console) { c.Read = manyDecided{} })
	const missing = "Of each status the newest 2,000 requests were looked through."
	require.Contains(t, w.do("GET", w.server.URL+"/audit", nil).body, missing)
	require.NotContains(t, w.do("GET", w.server.URL+"/audit?status=denied", nil).body, missing)
	export := strings.Split(strings.TrimSpace(w.do("GET", w.server.URL+"/audit.jsonl", nil).body), "\n")
	require.Contains(t, export[len(export)-1], missing)
	require.Len(t, slices.DeleteFunc(export, func(l string) bool { return !strings.Contains(l, `"user:ben"`) }), 2*200)
}

// A number that no page of the audit has is an address that is not there, however large it is; the navigation is.
func TestAuditHasNoPageOfThatNumber(t *testing.T) {
	w := newHarness(t, asksToPay(five))
	w.console("user:ana", func(c *web.Console) { c.Read = manyDecided{} })
	require.Equal(t, http.StatusOK, w.do("GET", w.server.URL+"/audit?page=23", nil).status)
	for _, page := range []string{"24", "184467440737095516", "-1", "0", "x"} {
		missing := w.do("GET", w.server.URL+"/audit?page="+page, nil)
		require.Equal(t, http.StatusNotFound, missing.status, page)
		require.Contains(t, missing.body, `<a href="/audit"`, "a way on")
	}
}

// manyGrants is an API whose standing grants take two pages, and that lists no run of an agent before a cursor.
type manyGrants struct {
	runs
	cursor string
}

func (m manyGrants) Runs(context.Context, web.RunQuery) (web.Page[web.RunHead], error) {
	return web.Page[web.RunHead]{Cursor: m.cursor}, nil
}

func (manyGrants) Grants(_ context.Context, of, cursor string, _ int) (p web.Page[web.Grant], err error) {
	if p.Cursor = "next"; cursor != "" {
		p.Cursor = ""
	}
	end := time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)
	p.Items = []web.Grant{{Agent: of, Tool: "pay", Pattern: "page " + cursor + ".", Expires: end, Uses: 3, Left: 2}}
	return p, nil
}

// An agent's page has all of its standing grants, so that each can be revoked there, and says how long each holds. It
// does not say that an agent has no runs where it has not looked at all of them.
func TestAgentPageHasEveryGrant(t *testing.T) {
	w := newHarness(t, asksToPay(five))
	for _, cursor := range []string{"", "more"} {
		w.console("user:ana", func(c *web.Console) {
			c.Read = manyGrants{cursor: cursor}
			c.Definition = func(name string) (*agent.Definition, bool) { return &agent.Definition{Name: name}, true }
		})
		page := w.do("GET", w.server.URL+"/agents/payer", nil).body
		require.Contains(t, page, "where page .")
		require.Contains(t, page, "where page next.")
		require.Contains(t, page, "24 Dec 2026, 18:00:00 UTC</time>, 2 of 3 uses left")
		require.Equal(t, cursor == "", strings.Contains(page, "There are no runs yet."))
		require.Equal(t, cursor != "", strings.Contains(page, `<a href="/runs?agent=payer">All of its runs</a>`))
	}
}

// console is the world's console, for somebody.
func (w *harness) console(by string, change func(*web.Console)) {
	c := &web.Console{
		Pages: w.pages, Tenant: local.Tenant, As: policy.Principal{ID: by, Groups: w.people[by].Groups}, Start: "abc", Key: "key", Token: "token", IDs: clock.NewIDs(w.clk),
		Read: runs{}, Conversation: func(context.Context, string) ([]policy.SeenMessage, error) { return nil, nil },
		Arguments: func(context.Context, string, string, []byte) ([]people.Row, error) { return nil, nil },
		Agents:    func() []string { return nil }, Definition: func(string) (*agent.Definition, bool) { return nil, false },
	}
	change(c)
	w.server = httptest.NewServer(c.Handler())
	w.t.Cleanup(w.server.Close)
}

// The console's word is recorded as the console's, of who looks, on the action that was shown; what is asked about a
// request as well.
func TestA9TheConsoleDecidesByTheDesk(t *testing.T) {
	w, a, _ := asked(t)
	desk := w.deskOf(&fakeDesk{})
	var remarks []web.Remark
	w.pages.Remark = func(_ context.Context, r web.Remark) error {
		remarks = append(remarks, r)
		return nil
	}
	w.console("user:ana", func(*web.Console) {})
	at := w.server.URL + "/approvals/" + a.ID
	require.Equal(t, http.StatusSeeOther, w.pressButton(at, "remark", "key", "key", "text", "Which invoice?").status)
	require.Equal(t, []web.Remark{{Tenant: local.Tenant, ID: a.ID, Text: "Which invoice?", By: policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}}, Via: agent.ViaConsole}}, remarks)
	gone := w.pressButton(at, "approve", "key", "token", "note", "Paid before.", "back", "/?agent=payer")
	require.Equal(t, http.StatusSeeOther, gone.status)
	require.Equal(t, "/?agent=payer", gone.header.Get("Location"))
	seen := func(cookie string) string {
		return w.do("GET", w.server.URL+"/?agent=payer", nil, "Cookie", cookie).body
	}
	require.Regexp(t, `notice-good.*\s*<p class="notice-head">Approved: pay.amount: 5, to: .*bob.*</p>\s*<p>Approved by user:ana at `,
		seen(gone.header.Get("Set-Cookie")))
	require.NotContains(t, seen("countersign-decided=none"), `class="notice-head"`)
	require.Equal(t, []approval.DecisionInput{{
		Tenant: local.Tenant, ID: a.ID, Action: approval.Approve, Note: "Paid before.", By: policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}}, Via: agent.ViaConsole, Digest: a.Digest,
	}}, desk.asked)
	require.Equal(t, run.RunDone, w.finish())
}

// What a tool's schema marks is masked in a run's story, where calls have the names that models know (B4).
func TestB4ConsoleMasksBySchema(t *testing.T) {
	put := agent.ToolSpec{Name: "vault.put", Kind: agent.KindService, Description: "Keeps a word.", Effect: run.EffectNonIdempotent,
		Schema: json.RawMessage(`{"type": "object", "properties": {"word": {"type": "string", "x-secret": true}}}`)}
	w, _, _ := asked(t, func(d *agent.Definition) { d.Tools = append(d.Tools, put) })
	c := w.m.Console(web.Caller{Tenant: local.Tenant}, nil)
	rows, err := c.Arguments(t.Context(), w.run, put.ModelName(), []byte(`{"word": "swordfish"}`))
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, `word: \{masked, 9 characters}`, rows[0].Text().String())
}

// queued is an API whose request of a run below comes behind a page of other runs' requests.
type queued struct {
	runs
	asked approval.Approval
}

func (r queued) FindApprovals(_ context.Context, q approval.Query) (p web.Page[approval.Approval], err error) {
	if p.Cursor = "next"; q.Cursor != "" {
		p.Cursor, p.Items = "", []approval.Approval{r.asked}
	}
	return p, nil
}

// However long what is asked, the queue and the page behind a link are there.
func TestLargestRequestsAreShown(t *testing.T) {
	w, a, at := asked(t)
	deep := strings.Repeat("[", 60) + strings.Repeat("0,", 120_000) + "0" + strings.Repeat("]", 60)
	a.Args = json.RawMessage(`{"` + strings.Repeat("k", 10_000) + `":` + deep + `}`)
	w.reading(func(r *approval.Approval) { r.Args = a.Args })
	require.Equal(t, http.StatusOK, w.do("GET", at, nil).status)
	a.Args = json.RawMessage(`{"a":"` + strings.Repeat("'", 250<<10) + `"}`)
	w.console("user:ana", func(c *web.Console) { c.Read = manyAsked{all: slices.Repeat([]approval.Approval{a}, 60)} })
	page := w.do("GET", w.server.URL, nil)
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.body, "There are more behind them.")
}

type manyAsked struct {
	runs
	all []approval.Approval
}

func (m manyAsked) FindApprovals(context.Context, approval.Query) (web.Page[approval.Approval], error) {
	return web.Page[approval.Approval]{Items: m.all}, nil
}

// What a run below asks is on the page of the run above, however many other requests are older; a link leads to the run
// that it continues. Why it stopped is said in words.
func TestConsoleShowsWhatRunsBelowAsk(t *testing.T) {
	w, a, _ := asked(t)
	a.Root = id
	w.console("user:ana", func(c *web.Console) {
		c.Read = queued{runs{run: web.Run{ID: id, Status: run.RunDone, Reason: "stopped:timeout_reached", Continues: a.Run, Calls: []web.Call{{ID: "c1", Tool: "pay", Run: a.Run}}}}, a}
	})
	page := w.do("GET", w.server.URL+"/runs/"+id, nil).body
	require.Contains(t, page, "</span>Stopped: timeout reached</span>")
	require.NotContains(t, page, "stopped:timeout_reached", "nor is it said twice")
	require.Contains(t, page, "The run that asks")
	require.Contains(t, page, `It continues <a href="/runs/`+a.Run+`">`)
}

// A request about a call that no message has, such as more budget, is on the page of its run and in its chat.
func TestConsoleShowsWhatNoMessageAsks(t *testing.T) {
	w, a, _ := asked(t)
	w.console("user:ana", func(c *web.Console) {
		c.Read = runs{run: web.Run{ID: id, Status: run.RunWaiting, Calls: []web.Call{{ID: "budget-1", Tool: "budget.raise"}},
			Waiting: []policy.WaitView{{Call: "budget-1", For: run.ForApproval, Approval: a.ID, Expires: a.ExpiresAt}}}}
	})
	for _, path := range []string{"/runs/", "/chat/"} {
		page := w.do("GET", w.server.URL+path+id, nil).body
		require.Contains(t, page, "<strong>budget.raise</strong> waits for somebody to approve it")
		require.Equal(t, 1, strings.Count(page, `id="`+a.ID+`"`), path)
	}
}

// A card says what an answer does, like the request's own page: how many approve, what is granted besides the call, and
// what a denial does. Who has answered reads on it that others have still to.
func TestCardsSayWhatAnAnswerDoes(t *testing.T) {
	w := newHarness(t, asksToPay(five), func(d *agent.Definition) {
		d.Permission.Scope, d.Permission.Grants = agent.ScopeTool, agent.GrantsStanding
		d.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAsk, Quorum: 2}}
	})
	a := w.pendingRequest()
	w.console("user:ana", func(c *web.Console) { c.Read = queued{runs{}, a} })
	for _, path := range []string{"/", "/approvals/together?" + url.Values{"agent": {a.Agent}, "tool": {"pay"}}.Encode()} {
		page := w.do("GET", w.server.URL+path, nil).body
		require.Contains(t, page, "2 different people approve", path)
		require.Contains(t, page, "in every run of "+a.Agent+" for 30 days", path)
		require.Contains(t, page, "the tool is not called any more in this run", path)
	}
	require.Equal(t, 2, strings.Count(w.do("GET", w.server.URL, nil).body, ` aria-describedby="`+a.ID+`-head"`), "a button says of what")
	at := w.server.URL + "/approvals/" + a.ID
	form := w.fillForm(w.do("GET", at, nil).body, "action", "approve", "key", "key")
	require.Equal(t, http.StatusSeeOther, w.do("POST", at, form).status)
	w.console("user:ana", func(c *web.Console) { c.Read = queued{runs{}, w.reload(a)} })
	const told = `<p class="notice-head">Your answer is recorded</p>`
	require.Contains(t, w.do("GET", w.server.URL, nil).body, told)
	before, _, _ := strings.Cut(w.do("GET", at, nil).body, "Arguments, complete")
	require.Contains(t, before, told, "what came of the press is on top, not below all that is shown")
}

// Who is not among the approvers is offered nothing, and gets nowhere with a form that somebody else was made.
func TestConsoleOffersWhatTheDeskAllows(t *testing.T) {
	w, a, _ := asked(t)
	w.console("user:ana", func(*web.Console) {})
	form := w.fillForm(w.do("GET", w.server.URL+"/approvals/"+a.ID, nil).body, "action", "approve", "key", "key")
	w.console("user:eve", func(*web.Console) {})
	at := w.server.URL + "/approvals/" + a.ID
	page := w.do("GET", at, nil)
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.body, "You are not among those who decide this.")
	require.NotContains(t, page.body, `<form method="post"`)
	require.Equal(t, http.StatusForbidden, w.do("POST", at, form).status)
	require.Equal(t, approval.Pending, w.reload(a).Status)
}

// However much, and however odd, what a run says is, its page is there, and says what it leaves out.
func TestConsoleStoriesAreBounded(t *testing.T) {
	w := newHarness(t, asksToPay(five))
	odd := strings.Repeat("\u202e<", 30_000)
	key := "AKIAIOSFODNN7EXAMPLE" // where the heading is cut, and where the message is
	words := run.Text{Text: strings.Repeat("x", 114) + " " + key + strings.Repeat(" x", 9928) + " " + key + strings.Repeat(" x", 9)}
	all := []policy.SeenMessage{{Message: run.Message{Role: run.RoleUser, Block: words}}, {Message: run.Message{Role: run.RoleAssistant, Block: words}}}
	one := web.Run{ID: id, Agent: odd, Status: run.RunDone, Seq: 5, Output: json.RawMessage(`"x"`)}
	for i := range 100 {
		all = append(all, policy.SeenMessage{Message: run.Message{Role: run.RoleUser, Block: run.Text{Text: odd}}})
		all = append(all, policy.SeenMessage{Message: run.Message{Role: run.RoleAssistant, Block: run.ToolUse{
			ID: fmt.Sprint(i, odd), Name: "pay", Input: json.RawMessage(`[` + strings.Repeat(`0,`, 3000) + `0]`),
		}}})
	}
	w.console("user:ana", func(c *web.Console) {
		c.Read = runs{run: one}
		c.Conversation = func(context.Context, string) ([]policy.SeenMessage, error) { return all, nil }
		c.Arguments = func(_ context.Context, _, _ string, raw []byte) ([]people.Row, error) {
			return make([]people.Row, len(raw)/2), nil
		}
	})
	page := w.do("GET", w.server.URL+"/runs/"+id, nil)
	require.Equal(t, http.StatusOK, page.status)
	require.Less(t, len(page.body), 16<<20)
	require.Equal(t, 200, strings.Count(page.body, `<li class="message`))
	require.Contains(t, page.body, "59500 characters more: see the run as JSON.")
	require.Contains(t, page.body, "of arguments: see the run as JSON.")
	require.NotContains(t, page.body, "\u202e")
	require.NotContains(t, page.body, "AKIA")
}

// Pictures of a conversation are shown, whatever they are said to be; what is no picture is named, and not served.
func TestConsoleShowsPictures(t *testing.T) {
	w := newHarness(t, asksToPay(five))
	png := "\x89PNG\r\n\x1a\n"
	media := func(kind, data string) policy.SeenMessage {
		return policy.SeenMessage{Message: run.Message{Role: run.RoleUser, Block: run.Media{Name: "x", MediaType: kind, Data: base64.StdEncoding.EncodeToString([]byte(data))}}}
	}
	all := []policy.SeenMessage{media("image/png", png), media("image/png", "<svg onload=alert(1)>"), media("image/svg+xml", "<svg/>"), media("text/plain", "hi")}
	all = append(all, policy.SeenMessage{Message: run.Message{Role: run.RoleUser, Block: run.Media{MediaType: "image/gif", Blob: "digest"}}})
	w.console("user:ana", func(c *web.Console) {
		c.Read = runs{run: web.Run{ID: id, Agent: "payer", Status: run.RunDone}}
		c.Conversation = func(context.Context, string) ([]policy.SeenMessage, error) { return all, nil }
		c.Blob = func(_ context.Context, digest string) ([]byte, error) { return []byte("GIF89a" + digest), nil }
	})
	page := w.do("GET", w.server.URL+"/runs/"+id, nil)
	require.Equal(t, http.StatusOK, page.status)
	var shown []string
	for _, found := range regexp.MustCompile(`<img src="([^"]+)"`).FindAllStringSubmatch(page.body, -1) {
		shown = append(shown, strings.TrimPrefix(found[1], "/runs/"+id+"/pictures/"))
	}
	require.Equal(t, []string{"1", "2", "5"}, shown)
	for n, want := range map[string]string{"1": "image/png", "5": "image/gif"} {
		got := w.do("GET", w.server.URL+"/runs/"+id+"/pictures/"+n, nil)
		require.Equal(t, http.StatusOK, got.status, n)
		require.Equal(t, []string{want, "nosniff"}, []string{got.header.Get("Content-Type"), got.header.Get("X-Content-Type-Options")})
	}
	for _, n := range []string{"2", "3", "4", "6", "0", "999999999"} {
		require.Equal(t, http.StatusNotFound, w.do("GET", w.server.URL+"/runs/"+id+"/pictures/"+n, nil).status, n)
	}
}

// A form of a run's page or a chat that is refused is there again, with the reason and with what was typed.
func TestConsoleSaysWhyAFormIsRefused(t *testing.T) {
	w, _, _ := asked(t)
	w.console("user:ana", func(c *web.Console) {
		c.Read = runs{run: web.Run{ID: id, Agent: "payer", Status: run.RunDone, Seq: 1}}
		c.WithModel = func(string, string) (*agent.Definition, error) { return nil, errors.New("no such model") }
	})
	for _, chat := range []string{"", "1"} {
		form := url.Values{"message": {"Words of an hour."}, "model": {"x"}, "key": {"key"}, "chat": {chat}}
		got := w.do("POST", w.server.URL+"/runs/"+id+"/continue", form)
		require.Equal(t, http.StatusBadRequest, got.status)
		require.Contains(t, got.body, "Nothing was changed")
		require.Contains(t, got.body, "The model: no such model")
		require.Contains(t, got.body, "Words of an hour.</textarea>")
	}
}

// What was typed into the fields of an agent's input is not left aside for JSON that was typed besides.
func TestConsoleTakesOneInput(t *testing.T) {
	w, _, _ := asked(t)
	w.console("user:ana", func(c *web.Console) {
		c.Definition = func(string) (*agent.Definition, bool) {
			d := &agent.Definition{Name: "payer"}
			d.Input.Schema = json.RawMessage(`{"type": "object", "properties": {"who": {"type": "string"}}}`)
			return d, true
		}
	})
	got := w.do("POST", w.server.URL+"/start", url.Values{"agent": {"payer"}, "arg.who": {"bob"}, "input": {`{"who": "eve"}`}, "key": {"key"}})
	require.Equal(t, http.StatusBadRequest, got.status)
	require.Contains(t, got.body, "Want the fields or an input as JSON, not both.")
	require.Contains(t, got.body, "bob</textarea>")
	byHand := `-d '{"agent": "payer", "input": {…}}' ` + w.server.URL + "/v1/runs</pre>"
	require.Contains(t, html.UnescapeString(got.body), byHand, "to be copied")
	got = w.do("GET", w.server.URL+"/start?agent="+url.QueryEscape(`a'; id #`), nil)
	require.Contains(t, html.UnescapeString(got.body), `-d '{"agent": "a\u0027; id #", `, "a link's name ends no quotes of a shell")
}

// The page of a run of a thousand messages holds the newest, whatever their number, and leads to the older ones; a bar
// of the timeline leads to its message.
func TestConsoleShowsALongRun(t *testing.T) {
	w := newHarness(t, asksToPay(five))
	var all []policy.SeenMessage
	var events []web.Event
	for seq := range int64(1000) {
		role := []run.Role{run.RoleUser, run.RoleAssistant}[seq%2]
		all = append(all, policy.SeenMessage{Message: run.Message{
			Role: role, Block: run.Text{Text: fmt.Sprint("Message ", seq)}, Source: run.Source{Seq: seq},
		}})
		if role == run.RoleUser {
			continue
		}
		replied := run.Replied{Model: "m", Requests: 1, Usage: run.Usage{Input: 1000, Output: 234}, Cost: 5_000_000_000_000}
		raw, err := run.MarshalEvent(replied)
		require.NoError(t, err)
		events = append(events, web.Event{ID: fmt.Sprintf("%d.0", seq), Seq: seq, Type: "replied", At: time.Unix(seq, 0),
			Data: raw[len(`{"replied":`) : len(raw)-1]})
	}
	w.console("user:ana", func(c *web.Console) {
		usage := run.Usage{Input: 500_000, Output: 117_000, CacheRead: 1000}
		c.Read = told{runs{run: web.Run{ID: id, Agent: "payer", Status: run.RunDone, Seq: 1000, Usage: usage}}, events}
		c.Conversation = func(context.Context, string) ([]policy.SeenMessage, error) { return all, nil }
	})
	newest, before := 1000, ""
	for ; newest > 0; newest -= 200 {
		page := w.do("GET", w.server.URL+"/runs/"+id+before, nil).body
		require.Equal(t, 200, strings.Count(page, `<li class="message`))
		require.Less(t, strings.Count(page, "<"), 12_000)
		require.True(t, strings.Contains(page, fmt.Sprintf(`id="m-%d"`, newest)))
		require.True(t, strings.Contains(page, fmt.Sprintf(">Message %d<", newest-1)))
		bars := regexp.MustCompile(`<li class="bar-model"><a href="([^"]+)">.*tokens, \$5`).FindAllStringSubmatch(page, -1)
		require.GreaterOrEqual(t, len(bars), 99)
		require.Equal(t, fmt.Sprintf("#m-%d", newest), bars[len(bars)-1][1])
		require.True(t, strings.Contains(page, "500\u202f000 in, 117\u202f000 out"))
		before = "?before=" + regexp.MustCompile(`name="before" value="(\d+)"|$`).FindStringSubmatch(page)[1]
	}
	require.Equal(t, "?before=", before)
}

// told is an API whose run has events.
type told struct {
	runs
	events []web.Event
}

func (r told) Events(_ context.Context, _, after string, limit int) (web.Page[web.Event], error) {
	from := 0
	for from < len(r.events) && after != "" && r.events[from].ID != after {
		from++
	}
	if after != "" {
		from++
	}
	to := min(len(r.events), from+limit)
	page := web.Page[web.Event]{Items: r.events[min(from, to):to]}
	if to < len(r.events) {
		page.Cursor = r.events[to-1].ID
	}
	return page, nil
}
