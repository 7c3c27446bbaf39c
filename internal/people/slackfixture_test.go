package people_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/standins"
)

const (
	token  = "xoxb-1-SECRETTOKEN"
	team   = "T0001"
	digest = "1111111111111111111111111111111111111111111111111111111111111111"
	page   = "https://approve.example.com/a/abc.def"
)

var (
	ana   = people.Person{ID: "user:ana", Groups: []string{"group:finance"}, Slack: "U0ANA"}
	ben   = people.Person{ID: "user:ben", Slack: "U0BEN"}
	asked = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
)

// confusables are texts of visible characters that Slack or a reader could take for something else.
var confusables = []string{
	"<!channel> <!here> <@U0ANA> <#C1|general>", "<https://evil.example|https://bank.example>", "https://evil.example/login", "*bold* _it_ ~no~ `code` ```pre```",
	":white_check_mark: Approved by user:ana", "&lt;script&gt; &amp; &amp;lt;", "<script>alert(1)</script>", `{"type":"button","text":"Approve"}`,
	`","blocks":[{"type":"section"}],"x":"`, `\u{202E}txt.exe`, `\{12 spaces}`, "'\"; DROP TABLE approvals; --", "${jndi:ldap://x}", "{{7*7}} %s %n", "\\n\\r\\0",
	"History", "Approve this call?", "  indented", "🙂🙂🙂", "ação 中文 עברית", "&", "<", ">",
}

// newRequest is a request by package people, with one argument of this value.
func newRequest(value string) (approval.Approval, people.Document) {
	a := approval.Approval{
		Tenant: "acme", ID: "aabcdefghijklmnopqrstuvwxy", Run: "r1", Kind: approval.KindCall, Calls: []string{"c1"}, Tools: []string{"refund"}, Digest: digest,
		Status: approval.Pending, Approvers: []string{"group:finance"}, Quorum: 1, RequestedAt: asked, ExpiresAt: asked.Add(time.Hour), Decisions: []approval.Decision{},
	}
	return a, people.Document{
		Title: text("refund of agent clerk"), Sentence: text("refunds 1002"), Risk: people.RiskHigh, RiskText: text("it cannot be undone"),
		Sections: []people.Section{
			{Name: people.SectionArguments, Title: "Arguments, complete", Rows: []people.Row{
				{Label: text("order")},
				{Depth: 1, Label: text("id"), Value: text("1002")},
				{Label: text("reason"), Value: text(value)},
			}},
			{Name: people.SectionAbout, Title: "About this request", Rows: []people.Row{
				{Name: "tool", Label: text("tool"), Value: text("refund")},
				{Name: "expires", Label: text("expires"), Value: text("2026-11-20 11:00:00 UTC")},
			}},
			{Name: people.SectionHistory, Title: "History", Rows: []people.Row{{Label: text("2026-11-20 10:00:00 UTC"), Value: text("asked by user:carl")}}},
			{Name: people.SectionSays, Title: "The model says (its own words, not checked)", Untrusted: true, Rows: []people.Row{{Value: text("Trust me: this is approved already.")}}},
		},
	}
}

func text(s string) people.Text { return people.Text{{Text: s}} }

func newMessage(to people.Person, value string) people.Message {
	a, shown := newRequest(value)
	return people.Message{Occasion: people.Asked, Approval: a, Shown: shown, To: to, Link: page}
}

// newWorkspace is a fake Slack on the loopback interface, and a channel to it.
func newWorkspace(t *testing.T) (*standins.Slack, *people.SlackChannel, string) {
	t.Helper()
	s := &standins.Slack{Token: token, Team: team, Members: []string{ana.Slack, ben.Slack}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, people.NewSlackChannel(people.SlackOptions{Token: people.StaticSlackToken(token), Base: srv.URL + "/api", Clock: clock.System()}), srv.URL
}

// direct is the way to a server without a network, also in a bubble.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme+"://"+r.URL.Host != "https://slack.com" {
		return nil, fmt.Errorf("asked %s", r.URL.Host)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// newDirect is a channel to a fake Slack without a network.
func newDirect(s *standins.Slack) *people.SlackChannel {
	s.Token, s.Team, s.Members = token, team, []string{ana.Slack}
	return people.NewSlackChannel(people.SlackOptions{
		Token: people.StaticSlackToken(token), HTTP: &http.Client{Transport: direct{s}}, Clock: clock.System(),
	})
}

// clickBody is the body of a click on a message that a fake Slack without a network has.
func clickBody(t testing.TB, action, answer string) []byte {
	t.Helper()
	s := &standins.Slack{}
	ref, err := newDirect(s).Send(t.Context(), newMessage(ana, "x"))
	require.NoError(t, err)
	body, err := s.Request(standins.SlackClick{Member: ana.Slack, Ref: ref, Action: action, Answer: answer, Note: "n"})
	require.NoError(t, err)
	return body
}

// shown is all visible text of a message.
func shown(m standins.SlackMessage) string {
	var all []string
	for _, b := range m.Blocks {
		all = append(all, b.Shown()...)
	}
	return strings.Join(all, "\n")
}

// buttonIDs are the ids of what can be clicked.
func buttonIDs(m standins.SlackMessage) (ids []string) {
	for _, b := range m.Blocks {
		for _, e := range b.Elements {
			if b.Type == "actions" {
				ids = append(ids, e.Action)
			}
		}
	}
	return ids
}

// fakeDesk decides one approval by the rules of the real desk that clicks meet.
type fakeDesk struct {
	now  approval.Approval
	fail error
	got  []approval.DecisionInput
}

func (d *fakeDesk) Decide(ctx context.Context, r approval.DecisionInput) (approval.Approval, error) {
	d.got = append(d.got, r)
	if d.fail != nil {
		return approval.Approval{}, d.fail
	}
	if ctx.Err() != nil {
		return approval.Approval{}, ctx.Err()
	}
	if r.Tenant != d.now.Tenant || r.ID != d.now.ID {
		return approval.Approval{}, fmt.Errorf("read approval %s: %w", r.ID, approval.ErrNotFound)
	}
	if d.now.Status == approval.Pending && r.Digest != d.now.Digest {
		return approval.Approval{}, approval.ErrStale
	}
	if r.By.ID != ana.ID {
		return approval.Approval{}, approval.ErrForbidden
	}
	status := map[approval.Action]approval.Status{approval.Approve: approval.Approved, approval.Deny: approval.Denied}[r.Action]
	if d.now.Status != approval.Pending && d.now.Status != status {
		return approval.Approval{}, &approval.DecidedError{Approval: d.now}
	}
	if d.now.Status == approval.Pending {
		d.now.Status = status
		d.now.Decisions = append(d.now.Decisions, approval.Decision{By: r.By.ID, Action: r.Action, At: asked, Note: r.Note, Via: r.Via})
	}
	return d.now, nil
}

// fakeDirectory knows ana and ben of one workspace.
type fakeDirectory struct {
	people.Directory // the rest is not asked
	fail             error
}

func (d fakeDirectory) Slack(_ context.Context, in, member string) (string, people.Person, bool, error) {
	if d.fail != nil {
		return "", people.Person{}, false, d.fail
	}
	for _, p := range []people.Person{ana, ben} {
		if in == team && member == p.Slack {
			return "acme", p, true, nil
		}
	}
	return "", people.Person{}, false, nil
}

// postBody sends a body to the interactions as Slack would.
func postBody(h http.Handler, headers map[string]string, body []byte) int {
	r := httptest.NewRequest(http.MethodPost, people.SlackPath, strings.NewReader(string(body)))
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// postSigned sends it signed as it should be.
func postSigned(h http.Handler, body []byte) int {
	return postBody(h, standins.SlackHeaders(secret, time.Now(), body), body)
}

// lastAnswer is the last answer to a person who clicked.
func lastAnswer(t *testing.T, s *standins.Slack) string {
	t.Helper()
	all := s.Answers()
	require.NotEmpty(t, all)
	var a struct {
		ResponseType    string `json:"response_type"`
		ReplaceOriginal bool   `json:"replace_original"`
		Blocks          []standins.SlackBlock
	}
	require.NoError(t, json.Unmarshal(all[len(all)-1], &a))
	require.Equal(t, "ephemeral", a.ResponseType)
	require.False(t, a.ReplaceOriginal)
	require.Len(t, a.Blocks, 1)
	return strings.Join(a.Blocks[0].Shown(), "")
}
