package people_test

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
)

const mailPage = "https://approve.example.com/a/abc.def?x=1&y=2"

var mailedAt = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// oddTexts are texts of visible characters that a mail program or a reader could take for something else.
var oddTexts = []string{
	"<script>alert(1)</script>", `" onmouseover="alert(1)`, "' style='x", "</div></body></html>", "<a href=https://evil.example>Approve</a>", "<!-- ", "-->", "<![CDATA[", "]]>",
	"<img src=x onerror=alert(1)>", "<style>*{display:none}</style>", "&lt;b&gt; &amp;amp; &#x3c;", "&", "<", ">", "https://evil.example/approve?id=1", "javascript:alert(1)",
	"Facts", "Subject: Approved", "Bcc: everybody@example.com", ".", "--", "=3D=0A", "=_countersign", "{{.}} ${x} %s", `\u{202E}gpj.exe`, `\{40 spaces}`, "ação 中文 עברית 🙂", "=?utf-8?q?x?=",
	`{"Approve": true}`, "  two  spaces  within",
}

func newMail(value string) people.Message {
	return people.Message{
		Occasion: people.Asked, Link: mailPage, To: people.Person{ID: "user:ana", Email: "ana@example.com"},
		Approval: approval.Approval{ID: "aabc", Status: approval.Pending, Kind: approval.KindCall, ExpiresAt: mailedAt.Add(time.Hour)},
		Shown: people.Document{
			Title: text("refund of agent clerk"), Sentence: text("refunds " + value), Risk: people.RiskHigh, RiskText: text("it cannot be undone"),
			Sections: []people.Section{
				{Name: people.SectionArguments, Title: "Arguments, complete", Rows: []people.Row{{Label: text("order")}, {Depth: 1, Label: text("id"), Value: text("7")}, {Label: text("reason"), Value: text(value)}}},
				{Name: people.SectionWarnings, Title: "Warnings", Rows: []people.Row{{Name: "was", Label: text("changed"), Value: text("3 → " + value)}}},
				{Name: people.SectionWho, Title: "Who decides", Rows: []people.Row{{Name: "approvers", Label: text("approvers"), Value: text("group:finance")}}},
				{Name: people.SectionHistory, Title: "History", Rows: []people.Row{{Label: text("2026-11-20"), Value: text("h " + value)}}},
				{Name: people.SectionSays, Title: "The model says", Untrusted: true, Rows: []people.Row{{Value: text("s " + value)}}},
			},
		},
	}
}

// valuePlaces is how often newMail's value stands in it.
const valuePlaces = 5

var htmlTag = regexp.MustCompile(`<[^>]*>`)

// seenText is the text of a document that a person sees.
func seenText(document string) string {
	_, body, _ := strings.Cut(document, "<body")
	return html.UnescapeString(htmlTag.ReplaceAllString("<body"+body, ""))
}

// Both halves of a mail say the same, in the same order: the runtime's facts first and what a model says last,
// labelled.
func TestC2TextAndHTMLSayTheSame(t *testing.T) {
	m := people.NewMail(newMail("broken chair"))
	require.Equal(t, "Decision needed: refund of agent clerk", m.Subject)
	require.Equal(t, strings.TrimLeft(`
Decision needed: refund of agent clerk

You are asked to decide about this. Nothing is carried out before it is approved.

  refunds broken chair
  high risk: it cannot be undone
  Arguments, complete
    order:
      id: 7
    reason: broken chair
  Warnings
    changed    3 → broken chair
  Who decides
    approvers  group:finance
  History
    2026-11-20: h broken chair
  The model says
    "s broken chair"

See it and decide on its page.
`+mailPage+`

Request aabc
-- 
This message was sent by Countersign because you may decide about this request or it is yours. Opening a link changes nothing: decisions are made on the page.
`, "\n"), m.Text)
	words := func(s string) string {
		return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \n:\"", r) }), "")
	}
	plain := strings.NewReplacer(mailPage+"\n", "", "-- \n", "").Replace(m.Text)
	require.Equal(t, words(plain), words(seenText(m.HTML)))
}

// Whatever stands in a request, a mail's elements are ours, it has one link and nothing from elsewhere, and the text is
// there in full.
func TestC2HostileText(t *testing.T) {
	elements := htmlTag.FindAllString(people.NewMail(newMail("x")).HTML, -1)
	for _, h := range oddTexts {
		got := people.NewMail(newMail(h))
		require.Equal(t, elements, htmlTag.FindAllString(got.HTML, -1), h)
		ours := strings.Count(people.NewMail(newMail("")).Text, h)
		require.Equal(t, valuePlaces+ours, strings.Count(got.Text, h), h)
		require.GreaterOrEqual(t, strings.Count(seenText(got.HTML), h), valuePlaces, h)
		require.NotContains(t, got.Subject, h)
		require.Equal(t, 1, strings.Count(got.HTML, "<a "), h)
	}
	m := newMail("") // what is escaped reads as in the text
	m.Shown.Sections[0].Rows[2].Value = people.QuotedText("\u202eevil")
	require.Contains(t, people.NewMail(m).Text, `reason: "\u{202E}evil"`)
	require.Contains(t, seenText(people.NewMail(m).HTML), `reason: "\u{202E}evil"`)
}

// No remote asset, no form, no script, no action: one link to the page, which nothing tracks.
func TestC2NothingActs(t *testing.T) {
	got := people.NewMail(newMail("x"))
	require.Contains(t, got.HTML, `<a ses:no-track href="https://approve.example.com/a/abc.def?x=1&amp;y=2" rel="noreferrer"`)
	for _, never := range []string{"<img", "<form", "<script", "<link", "<iframe", "<style", "src=", "url(", "@import", "action=", "http-equiv", "onclick"} {
		require.NotContains(t, got.HTML, never)
	}
	require.Equal(t, 1, strings.Count(got.HTML, "https://"))
	require.Equal(t, 1, strings.Count(got.Text, "https://"))
	require.Contains(t, got.HTML, `<meta name="viewport" content="width=device-width, initial-scale=1">`)
	require.Contains(t, got.HTML, `<meta name="color-scheme" content="light dark">`)
	require.NotRegexp(t, `[^-]color:|background`, strings.ReplaceAll(got.HTML, "color-scheme", ""), "colours of ours would not read on both light and dark")

	m := newMail("x")
	m.Link = ""
	got = people.NewMail(m)
	require.NotContains(t, got.HTML, "<a ")
	require.Contains(t, got.Text, "Decide it with")
}

// A subject is words of ours and the title, on one line, whatever the title.
func TestC2Subject(t *testing.T) {
	for occasion, want := range map[people.Occasion]string{
		people.Asked: "Decision needed: T", people.Reminder: "Still waiting for a decision: T", people.Escalated: "Decision needed from you as well: T",
		people.Question: "Question about a request: T", people.Answer: "Answer about a request: T", people.Decided: "Denied: T",
	} {
		m := newMail("x")
		m.Occasion, m.Shown.Title, m.Approval.Status = occasion, text("T"), approval.Denied
		require.Equal(t, want, m.Subject())
	}
	m := newMail("x")
	m.Shown.Title = text(strings.Repeat("long ", 30))
	require.Equal(t, "Decision needed", m.Subject(), "a long title is left out whole")
}

// Of a call that was interrupted, alone or among others, nobody is told that nothing of it is carried out.
func TestOpeningOfAnUnknownOutcome(t *testing.T) {
	lost, others := newMail("x"), newMail("x")
	others.Others = []people.Other{{Approval: approval.Approval{Kind: approval.KindOutcome}}}
	lost.Approval.Kind = approval.KindOutcome
	for _, m := range []people.Message{lost, others} {
		require.Contains(t, m.Opening(), "What was interrupted may have been carried out: find out before you answer.")
		require.NotContains(t, m.Opening(), "Nothing is carried out")
	}
}

// A mail is whole, or says that it is not and has none of the arguments.
func TestB2MailIsNeverCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := strings.Repeat(rapid.SampledFrom([]string{"x", "&", "é"}).Draw(t, "letter"), rapid.SampledFrom([]int{1, 20_000, 33_000, 60_000, 200_000}).Draw(t, "length"))
		m := newMail("")
		m.Shown.Sections[0].Rows[2].Value = text(value)
		if rapid.Bool().Draw(t, "many facts") {
			m.Shown.Sections[2].Rows[0].Value = text(strings.Repeat("f", 150_000))
		}
		got := people.NewMail(m)
		if len(got.Text)+len(got.HTML) > 200<<10 {
			t.Fatalf("%d bytes", len(got.Text)+len(got.HTML))
		}
		short := strings.Contains(got.Text, people.TooLong)
		if short != strings.Contains(seenText(got.HTML), people.TooLong) || short == strings.Contains(got.Text, "reason: "+value+"\n") || short == strings.Contains(seenText(got.HTML), "reason: "+value) {
			t.Fatalf("short %v", short)
		}
		if short && (strings.Contains(got.Text, "reason") || strings.Contains(got.HTML, "reason") || !strings.Contains(got.Text, mailPage)) {
			t.Fatal("part of the arguments is there, or the page is not")
		}
	})
}

// What became of a request is said in words of ours.
func TestOutcome(t *testing.T) {
	at := mailedAt.Add(time.Minute)
	for want, a := range map[string]approval.Approval{
		"Approved by user:ana at 2026-11-20 10:01:00 UTC.":                      {Status: approval.Approved, Decisions: []approval.Decision{{By: "user:ben", Action: approval.Approve}, {By: "user:ana", Action: approval.Approve, At: at}}},
		"Approved with other arguments by user:ana at 2026-11-20 10:01:00 UTC.": {Status: approval.Approved, Decisions: []approval.Decision{{By: "user:ana", Action: approval.Edit, At: at}}},
		"Denied by user:ana at 2026-11-20 10:01:00 UTC.":                        {Status: approval.Denied, Decisions: []approval.Decision{{By: "user:ana", At: at}}},
		"Denied by somebody at 2026-11-20 10:01:00 UTC.":                        {Status: approval.Denied, Decisions: []approval.Decision{{By: "user:x\n<b>", At: at}}},
		"Cancelled by user:ana at 2026-11-20 10:01:00 UTC. It was not carried out.": {
			Status: approval.Cancelled, Decisions: []approval.Decision{{By: "user:ana", Action: approval.Cancel, At: at}},
		},
		"No longer needed: it was overtaken by what happened since. Nobody has to decide.":    {Status: approval.Voided},
		"Cancelled. It was not carried out.":                                                  {Status: approval.Cancelled, Decisions: []approval.Decision{{By: "user:ana", Action: approval.Approve, At: at}}},
		"Expired at 2026-11-20 10:01:00 UTC: nobody decided in time. It was not carried out.": {Status: approval.Expired, ExpiresAt: at},
		"It still waits for a decision.":                                                      {Status: approval.Pending},
		"Answered by user:ana at 2026-11-20 10:01:00 UTC.": {
			Kind: approval.KindInput, Status: approval.Approved, Decisions: []approval.Decision{{By: "user:ana", Action: approval.Approve, At: at}},
		},
		"Answered: found to have failed by user:ana at 2026-11-20 10:01:00 UTC.": {
			Kind: approval.KindOutcome, Status: approval.Approved, Decisions: []approval.Decision{{By: "user:ana", Action: approval.ReportError, At: at}},
		},
		"Expired at 2026-11-20 10:01:00 UTC: nobody decided in time. Nobody knows whether it was carried out.": {
			Kind: approval.KindOutcome, Status: approval.Expired, ExpiresAt: at,
		},
		"Each tool was decided by itself, the last one by user:ana at 2026-11-20 10:01:00 UTC.": {
			Kind: approval.KindTools, Status: approval.Approved, Decisions: []approval.Decision{{By: "user:ana", Action: approval.Deny, At: at}},
			Permissions: []approval.Permission{{Verdict: run.ToolGranted}, {Verdict: run.ToolDenied}},
		},
		"Expired at 2026-11-20 10:01:00 UTC: it was not fully decided in time. It was not carried out.": {
			Status: approval.Expired, ExpiresAt: at, Decisions: []approval.Decision{{By: "user:ana", Action: approval.Approve}},
		},
		"Cancelled.": {
			Kind: approval.KindTools, Status: approval.Cancelled, Decisions: []approval.Decision{{By: "user:ana", Action: approval.Approve}},
			Permissions: []approval.Permission{{Verdict: run.ToolGranted}, {}},
		},
	} {
		require.Equal(t, want, people.OutcomeText(a))
	}
}

// A question or an answer stands before everything else.
func TestRemark(t *testing.T) {
	m := newMail("x")
	m.Occasion = people.Question
	m.Approval.Thread = []approval.Remark{{By: "user:ben", At: mailedAt, Text: "old?"}, {By: "user:ana", At: mailedAt.Add(time.Minute), Text: "which chair?"}}
	d := m.Document()
	require.Equal(t, people.SectionRemark, d.Sections[0].Name)
	require.Equal(t, "user:ana: which chair?", d.Sections[0].Rows[0].Text().String())
	require.True(t, m.IsPending())
	m.Shown.Sections[0].Rows[2].Value = text(strings.Repeat("x", 200<<10))
	require.Contains(t, people.NewMail(m).Text, "which chair?", "however long the arguments are")
	require.Equal(t, "See it and answer on its page.", m.Invitation(), "requesters may not decide it")
	m.Link = ""
	require.Equal(t, "Answer it with `countersign ask`, the web console or the API.", m.Invitation())
}
