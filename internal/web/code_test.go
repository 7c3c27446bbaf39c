package web_test

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web"
)

// pigeon is a channel that keeps what it sends. It reaches whoever has an address or a member's id for it.
type pigeon struct {
	name string
	mu   sync.Mutex
	sent []people.Message
	fail error
}

func (p *pigeon) Name() string { return p.name }

func (p *pigeon) Reaches(who people.Person) bool {
	return p.name == "email" && who.Email != "" || p.name == "slack" && who.Slack != ""
}

func (p *pigeon) Send(_ context.Context, m people.Message) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail == nil {
		p.sent = append(p.sent, m)
	}
	return "", p.fail
}

func (p *pigeon) Update(context.Context, string, people.Message) error { return nil }

// newestCode is the code in the newest message.
func (p *pigeon) newestCode(t *testing.T) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NotEmpty(t, p.sent)
	m := p.sent[len(p.sent)-1]
	require.Equal(t, people.Code, m.Occasion)
	require.Empty(t, m.Link)
	require.Regexp(t, `^[0-9]{8}$`, m.Code)
	return m.Code
}

// confirming is a harness whose rule wants a code of who approves on a page, and the channels that carry it.
func confirming(t *testing.T) (w *harness, slack, mail *pigeon, logs *strings.Builder) {
	return confirmingBy(t, asksToPay(five), func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{Tool: "*", Verdict: agent.VerdictAsk, Confirm: agent.ConfirmCode}}
	})
}

func confirmingBy(
	t *testing.T, lines string, change func(*agent.Definition),
) (w *harness, slack, mail *pigeon, logs *strings.Builder) {
	w = newHarness(t, lines, change)
	w.people["user:ana"] = people.Person{ID: "user:ana", Groups: []string{"group:operators"}, Email: "ana@example.com", Slack: "U1"}
	slack, mail, logs = &pigeon{name: "slack"}, &pigeon{name: "email"}, &strings.Builder{}
	w.pages.Codes = &people.Notifier{Table: w.rows, Clock: w.clk, Channels: []people.Channel{mail, slack}}
	w.pages.Log = slog.New(slog.NewTextHandler(logs, nil))
	return w, slack, mail, logs
}

// A25: who opens a link approves with a code that came by another channel than the link, once and in time.
func TestA26ACodeConfirms(t *testing.T) {
	w, slack, mail, logs := confirming(t)
	a := w.pendingRequest()
	at := w.newLink(a, "user:ana")
	page := w.do("GET", at, nil).body
	require.Contains(t, page, "sent to you by Slack")
	require.Contains(t, page, `name="action" value="code"`)

	without := w.pressButton(at, "approve", "note", "fine")
	require.Equal(t, http.StatusUnprocessableEntity, without.status)
	require.Contains(t, without.body, "type the code that was sent to you, or ask for one")
	require.Contains(t, w.pressButton(at, "approve", "code", "12345678").body, "Ask for a new one")
	review := w.pressButton(at, "review", "args", `{"amount": 3, "to": "eva"}`)
	require.Contains(t, review.body, "Look at what you change", "a review decides nothing and takes no code")
	require.Empty(t, slack.sent, "looking and trying sends nothing")

	sent := w.pressButton(at, "code", "note", "fine")
	require.Equal(t, http.StatusOK, sent.status)
	require.Contains(t, sent.body, "A code was sent to you by Slack")
	require.Contains(t, sent.body, "fine", "what was typed is kept")
	require.Empty(t, mail.sent, "the link came by mail")
	code := slack.newestCode(t)
	require.Contains(t, w.pressButton(at, "code").body, "Wait a minute")
	require.Len(t, slack.sent, 1)

	wrong := "0" + code[1:]
	if wrong == code {
		wrong = "1" + code[1:]
	}
	tried := w.pressButton(at, "approve", "code", wrong)
	require.Equal(t, http.StatusUnprocessableEntity, tried.status)
	require.Contains(t, tried.body, "4 of 5 tries are left")
	require.Equal(t, approval.Pending, w.reload(a).Status)

	require.Equal(t, http.StatusSeeOther, w.pressButton(at, "approve", "code", code[:4]+" "+code[4:]).status)
	require.Equal(t, run.RunDone, w.finish())
	require.Len(t, w.paid, 1)
	d := w.reload(a).Decisions[0]
	require.Equal(t, []any{agent.ViaPage, agent.ConfirmCode}, []any{d.Via, d.Confirmed})
	for _, it := range w.rows.All() {
		require.NotContains(t, string(it.Body)+it.PK+it.SK, code, "nothing stored has the code")
	}
	require.NotContains(t, at+page+sent.body+tried.body+logs.String(), code)
}

// A26: five wrong tries, or ten minutes, end a code; then a new one works, and the old one does not.
func TestA26ACodeEnds(t *testing.T) {
	w, slack, _, _ := confirming(t)
	a := w.pendingRequest()
	at := w.newLink(a, "user:ana")
	require.Equal(t, http.StatusOK, w.pressButton(at, "code").status)
	first := slack.newestCode(t)
	for left := 4; left >= 0; left-- {
		require.Contains(t, w.pressButton(at, "approve", "code", "x").body, string(rune('0'+left))+" of 5 tries are left")
	}
	require.Contains(t, w.pressButton(at, "approve", "code", first).body, "none that still works")

	w.clk.advance(time.Minute)
	require.Equal(t, http.StatusOK, w.pressButton(at, "code").status)
	second := slack.newestCode(t)
	require.NotEqual(t, first, second)
	w.clk.advance(approval.CodeLife)
	require.Contains(t, w.pressButton(at, "approve", "code", second).body, "none that still works")

	require.Equal(t, http.StatusOK, w.pressButton(at, "code").status)
	require.Contains(t, w.pressButton(at, "approve", "code", second).body, "4 of 5 tries are left")
	third := slack.newestCode(t)
	other, err := w.links.URL(t.Context(), a, "user:ana", "slack")
	require.NoError(t, err)
	require.NotEqual(t, http.StatusSeeOther, w.pressButton(other, "approve", "code", third).status,
		"who reads Slack alone has both the link and the code")
	require.Equal(t, approval.Pending, w.reload(a).Status)
	require.Equal(t, http.StatusUnprocessableEntity, w.pressButton(at, "edit", "code", third, "args", "{").status)
	require.Equal(t, http.StatusSeeOther, w.pressButton(at, "edit", "code", third, "args", `{"amount": 6}`).status,
		"a refused edit uses up no code")
	require.Equal(t, run.RunDone, w.finish())
}

// A26: of a request about several tools, one that takes a code is approved alone before one that takes a sign-in.
func TestA26EachToolHasItsOwnConfirmation(t *testing.T) {
	lines := `{"calls": [{"id": "c1", "name": "pay", "input": ` + five + `}, {"id": "c2", "name": "look", "input": {}}]}` + "\n{\"text\": \"Paid.\"}"
	w, slack, _, _ := confirmingBy(t, lines, func(d *agent.Definition) {
		d.Permission.Mode = agent.ModeBlockAndRetry
		d.Tools = append(d.Tools, agent.ToolSpec{Name: "look", Kind: agent.KindService,
			Effect: run.EffectNonIdempotent, Schema: []byte(`{"type":"object"}`)})
		d.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAsk, Confirm: agent.ConfirmOIDC},
			{Tool: "look", Verdict: agent.VerdictAsk, Confirm: agent.ConfirmCode}}
	})
	a := w.pendingRequest()
	at := w.newLink(a, "user:ana")
	page := w.do("GET", at, nil).body
	require.Equal(t, 1, strings.Count(page, `value="approve"`), "of look alone")
	require.Equal(t, 1, strings.Count(page, `name="code"`))
	require.Contains(t, page, "To allow some of the tools takes a code")
	require.Equal(t, http.StatusOK, w.pressButton(at, "code").status)
	code := slack.newestCode(t)
	require.Equal(t, http.StatusForbidden, w.pressButton(at, "approve", "tool", "pay", "code", code).status)
	require.Equal(t, http.StatusForbidden, w.pressButton(at, "approve", "code", code).status)
	require.Equal(t, http.StatusSeeOther, w.pressButton(at, "approve", "tool", "look", "code", code).status)
	for _, p := range w.reload(a).Permissions {
		require.Equal(t, p.Tool == "look", p.Verdict != "", p.Tool)
	}
	require.NotContains(t, w.do("GET", at, nil).body, `value="approve"`)
}

// A26: whoever has no second channel is told so, and may deny. A code that cannot be sent approves nothing.
func TestA26NoSecondChannel(t *testing.T) {
	w, slack, _, logs := confirming(t)
	a := w.pendingRequest()
	bob := w.newLink(a, "user:bob")
	page := w.do("GET", bob, nil).body
	require.Contains(t, page, "none is known that reaches you")
	require.NotContains(t, page, `value="approve"`)
	require.NotContains(t, page, `value="code"`)
	require.Contains(t, page, `value="deny"`)
	require.Equal(t, http.StatusBadRequest, w.pressButton(bob, "code").status)
	require.Equal(t, http.StatusUnprocessableEntity, w.pressButton(bob, "approve", "code", "12345678").status)

	slack.fail = context.DeadlineExceeded
	ana := w.newLink(a, "user:ana")
	require.Equal(t, http.StatusServiceUnavailable, w.pressButton(ana, "code").status)
	require.NotContains(t, logs.String(), "12345678")
	require.Equal(t, approval.Pending, w.reload(a).Status)
	require.Equal(t, http.StatusSeeOther, w.pressButton(bob, "deny").status, "a denial takes none")
	require.Equal(t, run.RunDone, w.finish())
	require.Empty(t, w.paid)
}

// The message with a code has the code, no link and no button; a mail's subject does not have it.
func TestA26TheMessage(t *testing.T) {
	sent := people.NewMail(people.Message{Occasion: people.Code, Code: "12345678", Approval: approval.Approval{ID: "a1", Status: approval.Pending}})
	for _, text := range []string{sent.Text, sent.HTML} {
		require.Contains(t, text, "1234 5678")
		require.NotContains(t, text, "http")
	}
	require.NotRegexp(t, regexp.MustCompile(`[0-9]`), sent.Subject)
}

// A25: a page whose channel does not count offers no approval and says where; one that is sent all the same is refused.
func TestA25ThePageIsNoChannelOfTheRule(t *testing.T) {
	w, a, at := asked(t, func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{Tool: "*", Verdict: agent.VerdictAsk, Via: []run.Via{agent.ViaSlack, agent.ViaAPI}}}
	})
	page := w.do("GET", at, nil).body
	require.Contains(t, page, "It is approved by Slack, API, and not here. You may deny it here.")
	require.NotContains(t, page, `value="approve"`)
	require.NotContains(t, page, `value="edit"`)
	for _, action := range []string{"approve", "edit"} {
		refused := w.pressButton(at, action, "args", `{"amount": 5}`)
		require.Equal(t, http.StatusForbidden, refused.status)
		require.Contains(t, refused.body, "The policy lets people approve this by Slack, API.")
	}
	require.Empty(t, w.reload(a).Decisions)
	require.Equal(t, http.StatusSeeOther, w.pressButton(at, "deny").status)
	require.Equal(t, run.RunDone, w.finish())
}

var _ web.Codes = (*people.Notifier)(nil)
