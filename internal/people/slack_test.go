package people_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/standins"
)

// A message has the sentence first, then all arguments, the facts and what the model said, and two buttons and a link.
// The fake refuses mrkdwn, emoji and unfurling.
func TestC1Message(t *testing.T) {
	s, c, _ := newWorkspace(t)
	ref, err := c.Send(t.Context(), newMessage(ana, "broken chair"))
	require.NoError(t, err)
	all := s.Messages()
	require.Len(t, all, 1)
	m := all[0]
	require.Equal(t, ref, m.Ref)
	require.Equal(t, ana.Slack, m.To)
	require.Equal(t, []string{"approve", "deny", "open"}, buttonIDs(m))
	require.Equal(t, strings.TrimSpace(`
Decision needed: refund of agent clerk
refunds 1002
high risk: it cannot be undone
You are asked to decide about this. Nothing is carried out before it is approved.
Arguments, complete
order:
  id: 1002
reason: broken chair
About this request
tool: refund
expires: 2026-11-20 11:00:00 UTC
History
2026-11-20 10:00:00 UTC: asked by user:carl
The model says (its own words, not checked)
Trust me: this is approved already.
Approve
Deny
Open page`), shown(m))
	require.NotContains(t, m.Text, "refund", "notifications hold words of ours alone")
	require.NotContains(t, string(m.Raw), "acme", "nothing of the tenant's beyond what is shown")

	read := newMessage(ana, "broken chair") // what it depends on is JSON among facts
	facts := &read.Shown.Sections[1].Rows
	*facts = slices.Insert(*facts, 1, people.Row{Depth: 1, Label: text("from")}, people.Row{Depth: 2, Label: text("iban"), Value: text("DE")})
	_, err = c.Send(t.Context(), read)
	require.NoError(t, err)
	require.Contains(t, shown(s.Messages()[1]), "\ntool: refund\n  from:\n    iban: DE\nexpires: ")
}

// What stands in an argument is shown as it is, once, and changes nothing else of the message.
func TestC1HostileText(t *testing.T) {
	for _, h := range confusables {
		t.Run(h, func(t *testing.T) {
			s, c, _ := newWorkspace(t)
			m := newMessage(ana, h)
			m.Shown.Title, m.Shown.Sentence = text("tool "+h), text(h)
			of := m.Shown.Sections
			of[0].Rows[0].Label, of[1].Rows[0].Value, of[2].Rows[0].Value, of[3].Rows[0].Value = text(h), text(h), text(h), text(h)
			_, err := c.Send(t.Context(), m)
			require.NoError(t, err)
			got := s.Messages()[0]
			want := strings.NewReplacer("&amp;", `\u{26}amp;`, "&lt;", `\u{26}lt;`, "&gt;", `\u{26}gt;`).Replace(h)
			ours := strings.Count("History\nTool Approve\nDeny", h)
			require.Equal(t, 7+ours, strings.Count(shown(got), want), "all seven places, complete:\n%s", shown(got))
			require.Equal(t, []string{"approve", "deny", "open"}, buttonIDs(got))
			require.NotContains(t, string(got.Raw), "mrkdwn")
			require.NotContains(t, got.Text, h)
		})
	}
}

// Whatever the arguments, Slack takes the message, and it either shows all of them with buttons or none of them
// without.
func TestB2NeverCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &standins.Slack{}
		c := newDirect(s)
		m := newMessage(ana, "")
		args, about := []people.Row{{Value: text("(none)")}}, &m.Shown.Sections[1]
		for i := range rapid.IntRange(0, 120).Draw(t, "arguments") {
			n := rapid.SampledFrom([]int{1, 10, 100, 1400, 2990, 3000, 3100}).Draw(t, "length")
			letters := rapid.SampledFrom([]string{"x", "é", "🙂", "\"", "&lt;"}).Draw(t, "letters")
			args = append(args, people.Row{
				Depth: rapid.IntRange(0, 5).Draw(t, "depth"), Label: text(fmt.Sprintf("key%d", i)), Value: text(strings.Repeat(letters, n)),
			})
		}
		for i := range rapid.IntRange(0, 25).Draw(t, "facts") {
			about.Rows = append(about.Rows, people.Row{Label: text(fmt.Sprintf("Fact %d", i)), Name: "fact", Value: text(strings.Repeat("y", rapid.SampledFrom([]int{1, 50, 1980, 2100}).Draw(t, "fact")))})
		}
		m.Shown.Sections[0].Rows = args
		if rapid.Bool().Draw(t, "no page") {
			m.Link = ""
		}
		if _, err := c.Send(t.Context(), m); err != nil {
			t.Fatalf("Slack refused it: %v", err)
		}
		got := s.Messages()[0]
		whole := strings.Contains(shown(got), "(none)")
		for _, a := range args[1:] {
			whole = whole && strings.Contains(shown(got), a.Label.String()+": "+strings.ReplaceAll(a.Value.String(), "&lt;", `\u{26}lt;`))
		}
		for _, f := range about.Rows {
			whole = whole && strings.Contains(shown(got), f.Text().String())
		}
		decides := strings.Contains(strings.Join(buttonIDs(got), " "), "approve")
		if decides != whole {
			t.Fatalf("buttons %v, all shown %v", buttonIDs(got), whole)
		}
		if !whole && (strings.Contains(shown(got), "key0:") || !strings.Contains(shown(got), "too long for this message")) {
			t.Fatalf("part of it is shown, or nobody says so: %.300s", shown(got))
		}
		if !whole && (strings.Contains(shown(got), "Trust me") || m.Link != "" && !strings.Contains(string(got.Raw), page)) {
			t.Fatalf("the model's words are there, or the page is not: %.300s", shown(got))
		}
	})
}

// A question stands in its message, however long the arguments are that it is about.
func TestAQuestionIsNotLeftOut(t *testing.T) {
	s, c, _ := newWorkspace(t)
	m := newMessage(ana, strings.Repeat("x", 20_000))
	m.Occasion, m.Approval.Thread = people.Question, []approval.Remark{{By: "user:ben", Text: "Which chair?"}}
	_, err := c.Send(t.Context(), m)
	require.NoError(t, err)
	require.Contains(t, shown(s.Messages()[0]), "The question\nuser:ben: Which chair?\nAbout")
	require.Contains(t, shown(s.Messages()[0]), people.TooLong)
}

// Once it is decided, the message says by whom and when, and there is nothing left to click but the page.
func TestC1UpdatedWhenDecided(t *testing.T) {
	s, c, _ := newWorkspace(t)
	m := newMessage(ana, "broken chair")
	ref, err := c.Send(t.Context(), m)
	require.NoError(t, err)
	m.Occasion = people.Decided
	m.Approval.Decisions = []approval.Decision{{By: "user:ana", At: asked.Add(5 * time.Minute)}}
	for _, status := range []approval.Status{
		approval.Approved, approval.Denied, approval.Expired, approval.Cancelled, approval.Voided,
	} {
		m.Approval.Status = status
		require.NoError(t, c.Update(t.Context(), ref, m))
		got := s.Messages()[0]
		require.Contains(t, shown(got), people.OutcomeText(m.Approval))
		require.Equal(t, []string{"open"}, buttonIDs(got), status)
		require.Contains(t, shown(got), "reason: broken chair")
		require.NotContains(t, string(got.Raw), "plain_text_input")
	}
	require.Len(t, s.Messages(), 1)
}

// Buttons are for requests that a click answers, and for those who are to answer.
func TestC1Buttons(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*people.Message)
		want   []string
	}{
		"reminded":           {func(m *people.Message) { m.Occasion = people.Reminder }, []string{"approve", "deny", "open"}},
		"escalated":          {func(m *people.Message) { m.Occasion = people.Escalated }, []string{"approve", "deny", "open"}},
		"answered":           {func(m *people.Message) { m.Occasion = people.Answer }, []string{"approve", "deny", "open"}},
		"no page":            {func(m *people.Message) { m.Link = "" }, []string{"approve", "deny"}},
		"a question":         {func(m *people.Message) { m.Occasion = people.Question }, []string{"open"}},
		"a code":             {func(m *people.Message) { m.Occasion, m.Code, m.Link = people.Code, "12345678", "" }, nil},
		"about tools":        {func(m *people.Message) { m.Approval.Kind = approval.KindTools }, []string{"open"}},
		"asks for input":     {func(m *people.Message) { m.Approval.Kind = approval.KindInput }, []string{"open"}},
		"its outcome":        {func(m *people.Message) { m.Approval.Kind = approval.KindOutcome }, []string{"open"}},
		"approved elsewhere": {func(m *people.Message) { m.Approval.Via = []approval.Via{agent.ViaPage} }, []string{"deny", "open"}},
		"not sealed":         {func(m *people.Message) { m.Approval.Digest = "" }, []string{"open"}},
		"decided":            {func(m *people.Message) { m.Approval.Status = approval.Denied }, []string{"open"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, ch, _ := newWorkspace(t)
			m := newMessage(ana, "x")
			c.change(&m)
			_, err := ch.Send(t.Context(), m)
			require.NoError(t, err)
			require.Equal(t, c.want, buttonIDs(s.Messages()[0]))
		})
	}
}

func TestWhoHasNoSlackIsNotSentTo(t *testing.T) {
	_, c, _ := newWorkspace(t)
	_, err := c.Send(t.Context(), newMessage(people.Person{ID: "user:dan"}, "x"))
	require.ErrorContains(t, err, "no member's id")
}

// What may pass is tried again within bounds, what will not is not, and no error has the token or the message in it.
func TestC1Refused(t *testing.T) {
	const body = `{"ok":false,"error":"ratelimited","why":"broken chair ` + token + `"}`
	for name, c := range map[string]struct {
		refuse    func(n int) *standins.SlackAnswer
		asked     int
		waits     time.Duration
		ok        bool
		code      string
		permanent bool
	}{
		"limited once": {refuse: first(1, standins.SlackAnswer{Status: 429, RetryAfter: "2", Body: body}), asked: 2, waits: 2 * time.Second, ok: true},
		"failing once": {refuse: first(1, standins.SlackAnswer{Status: 503, Body: "broken chair"}), asked: 2, waits: 200 * time.Millisecond, ok: true},
		"no JSON":      {refuse: first(9, standins.SlackAnswer{Status: 200, Body: "<html>"}), asked: 3, waits: 600 * time.Millisecond, code: "unknown"},
		"limited long": {refuse: first(9, standins.SlackAnswer{Status: 429, RetryAfter: "60", Body: body}), asked: 1, code: "ratelimited"},
		"for ever":     {refuse: first(9, standins.SlackAnswer{Status: 429, RetryAfter: "999999999999", Body: body}), asked: 3, waits: 600 * time.Millisecond, code: "ratelimited"},
		"always down":  {refuse: first(9, standins.SlackAnswer{Status: 500}), asked: 3, waits: 600 * time.Millisecond, code: "status_500"},
		"revoked":      {refuse: first(9, standins.SlackAnswer{Status: 200, Body: `{"ok":false,"error":"token_revoked"}`}), asked: 1, code: "token_revoked", permanent: true},
		"a long story": {refuse: first(9, standins.SlackAnswer{Status: 200, Body: `{"ok":false,"error":"broken chair ` + token + `"}`}), asked: 3, waits: 600 * time.Millisecond, code: "unknown"},
		"moved":        {refuse: first(9, standins.SlackAnswer{Status: 302}), asked: 1, code: "status_302", permanent: true},
		"no message":   {refuse: first(9, standins.SlackAnswer{Status: 200, Body: `{"ok":true}`}), asked: 1, code: "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &standins.Slack{Refuse: c.refuse}
				ch, began := newDirect(s), time.Now()
				_, err := ch.Send(t.Context(), newMessage(ana, "broken chair"))
				require.Equal(t, c.asked, s.Requests())
				require.Equal(t, c.waits, time.Since(began))
				if c.ok {
					require.NoError(t, err)
					return
				}
				require.NotContains(t, err.Error(), token)
				require.NotContains(t, err.Error(), "chair")
				var refused *people.SlackError
				require.True(t, errors.As(err, &refused), "%v", err)
				require.Equal(t, c.code, refused.Code)
				require.Equal(t, c.permanent, refused.Permanent())
			})
		})
	}
	t.Run("another app's token", func(t *testing.T) {
		s, _, url := newWorkspace(t)
		_, err := people.NewSlackChannel(people.SlackOptions{Token: people.StaticSlackToken("xoxb-other"), Base: url + "/api/", Clock: clock.System()}).Send(t.Context(), newMessage(ana, "x"))
		require.ErrorContains(t, err, "invalid_auth")
		require.NotContains(t, err.Error(), "xoxb")
		require.Empty(t, s.Messages())
	})
	t.Run("nobody there", func(t *testing.T) {
		_, err := people.NewSlackChannel(people.SlackOptions{Token: people.StaticSlackToken(token), Base: "http://127.0.0.1:1/", Clock: clock.System()}).Send(t.Context(), newMessage(ana, "x"))
		require.Error(t, err)
		require.NotContains(t, err.Error(), token)
	})
	t.Run("a message that is not there", func(t *testing.T) {
		_, c, _ := newWorkspace(t)
		require.ErrorContains(t, c.Update(t.Context(), "D1/17.1", newMessage(ana, "x")), "channel_not_found")
		require.ErrorContains(t, c.Update(t.Context(), "", newMessage(ana, "x")), "no message of Slack")
	})
}

func first(n int, a standins.SlackAnswer) func(int) *standins.SlackAnswer {
	return func(i int) *standins.SlackAnswer {
		if i <= n {
			return &a
		}
		return nil
	}
}
