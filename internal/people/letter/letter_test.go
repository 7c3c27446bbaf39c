package letter_test

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/people/letter"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/show"
)

const page = "https://approve.example.com/a/abc.def?x=1&y=2"

var asked = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// odd are texts of visible characters that a mail program or a reader could take for something else.
var odd = []string{
	"<script>alert(1)</script>", `" onmouseover="alert(1)`, "' style='x", "</div></body></html>", "<a href=https://evil.example>Approve</a>", "<!-- ", "-->", "<![CDATA[", "]]>",
	"<img src=x onerror=alert(1)>", "<style>*{display:none}</style>", "&lt;b&gt; &amp;amp; &#x3c;", "&", "<", ">", "https://evil.example/approve?id=1", "javascript:alert(1)",
	"Facts", "Subject: Approved", "Bcc: everybody@example.com", ".", "--", "=3D=0A", "=_countersign", "{{.}} ${x} %s", `\u{202E}gpj.exe`, `\{40 spaces}`, "ação 中文 עברית 🙂", "=?utf-8?q?x?=",
	`{"Approve": true}`, "  two  spaces  within",
}

func text(s string) show.Text { return show.Text{{Text: s}} }

func message(value string) notify.Message {
	return notify.Message{
		Occasion: notify.Asked, Link: page, To: person.Person{ID: "user:ana", Email: "ana@example.com"},
		Approval: approval.Approval{ID: "aabc", Status: approval.Pending, Kind: approval.KindCall, ExpiresAt: asked.Add(time.Hour)},
		Shown: show.Request{
			ID: "aabc", Title: text("refund of agent clerk"),
			Facts:     []show.Fact{{Name: "tool", Label: "Tool", Value: text("refund")}, {Name: "effect", Label: "Effect", Value: text("non_idempotent")}},
			Arguments: []show.Argument{{Key: text("order"), Kind: "object"}, {Depth: 1, Key: text("id"), Value: text("7"), Kind: "number"}, {Key: text("reason"), Value: text(value), Kind: "string"}},
			Question:  text("q " + value), Note: text("n " + value), Says: text("s " + value),
			History: []show.Event{{At: asked, Who: text("user:carl"), What: "asked", Note: text("h " + value)}},
			Changed: []show.Fact{{Label: "Stock", Value: text("3 → " + value)}},
			Tools:   []show.Tool{{Name: text("t " + value), Facts: []show.Fact{{Label: "Effect", Value: text("read")}}, Calls: [][]show.Argument{{{Key: text("k"), Value: text("c " + value), Kind: "string"}}}}},
		},
	}
}

// places is how often message's value stands in it.
const places = 8

var tag = regexp.MustCompile(`<[^>]*>`)

// seen is the text of a document that a person sees.
func seen(document string) string {
	_, body, _ := strings.Cut(document, "<body")
	return html.UnescapeString(tag.ReplaceAllString("<body"+body, ""))
}

// Both halves of a mail say the same, in the same order: the runtime's facts first and what a model says last, labelled.
func TestC2TextAndHTMLSayTheSame(t *testing.T) {
	m := letter.Of(message("broken chair")).AsMail()
	require.Equal(t, "Approval needed: refund of agent clerk", m.Subject)
	require.Equal(t, strings.TrimLeft(`
Approval needed: refund of agent clerk

You are asked to decide about this. Nothing of it is carried out before it is approved.

Facts
  Tool: refund
  Effect: non_idempotent

Arguments, complete
  order:
    id: 7
  reason: broken chair

Tool
  t broken chair
  Effect: read

One of its calls, complete
  k: c broken chair

Changed since it was asked
  Stock: 3 → broken chair

Why it is asked
  n broken chair

The tool asks (its own words, not checked)
  q broken chair

The model says (its own words, not checked)
  s broken chair

History
  20 Nov 2026, 10:00:00 UTC: asked by user:carl: h broken chair

See it and decide on its page:
`+page+`

Request aabc
-- 
This message was sent by Countersign because you may decide about this request or it is yours. Opening a link changes nothing: decisions are made on the page.
`, "\n"), m.Text)
	words := func(s string) string {
		return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \n:", r) }), "")
	}
	plain := strings.NewReplacer(page+"\n", "", "-- \n", "").Replace(m.Text)
	require.Equal(t, words(plain), words(seen(m.HTML)))
}

// Whatever stands in a request, a mail's elements are ours, it has one link and nothing from elsewhere, and the text is there in full.
func TestC2HostileText(t *testing.T) {
	elements := tag.FindAllString(letter.Of(message("x")).AsMail().HTML, -1)
	for _, h := range odd {
		mail := letter.Of(message(h)).AsMail()
		require.Equal(t, elements, tag.FindAllString(mail.HTML, -1), h)
		ours := strings.Count(letter.Of(message("")).AsMail().Text, h)
		require.Equal(t, places+ours, strings.Count(mail.Text, h), h)
		require.GreaterOrEqual(t, strings.Count(seen(mail.HTML), h), places, h)
		require.NotContains(t, mail.Subject, h)
		require.Equal(t, 1, strings.Count(mail.HTML, "<a "), h)
	}
}

// No remote asset, no form, no script, no action: one link to the page, which nothing tracks.
func TestC2NothingActs(t *testing.T) {
	mail := letter.Of(message("x")).AsMail()
	require.Contains(t, mail.HTML, `<a ses:no-track href="https://approve.example.com/a/abc.def?x=1&amp;y=2" rel="noreferrer"`)
	for _, never := range []string{"<img", "<form", "<script", "<link", "<iframe", "<style", "src=", "url(", "@import", "action=", "http-equiv", "onclick"} {
		require.NotContains(t, mail.HTML, never)
	}
	require.Equal(t, 1, strings.Count(mail.HTML, "https://"))
	require.Equal(t, 1, strings.Count(mail.Text, "https://"))
	require.Contains(t, mail.HTML, `<meta name="viewport" content="width=device-width, initial-scale=1">`)
	require.Contains(t, mail.HTML, `<meta name="color-scheme" content="light dark">`)
	require.NotRegexp(t, `[^-]color:|background`, strings.ReplaceAll(mail.HTML, "color-scheme", ""), "colours of ours would not read on both light and dark")

	m := message("x")
	m.Link = ""
	mail = letter.Of(m).AsMail()
	require.NotContains(t, mail.HTML, "<a ")
	require.Contains(t, mail.Text, "Decide it with")
}

// A subject is words of ours and the title, on one line, whatever the title.
func TestC2Subject(t *testing.T) {
	for occasion, want := range map[notify.Occasion]string{
		notify.Asked: "Approval needed: T", notify.Reminder: "Still waiting for approval: T", notify.Escalated: "Approval needed from you as well: T",
		notify.Question: "Question about a request: T", notify.Answer: "Answer about a request: T", notify.Decided: "Denied: T", "another": "About a request: T",
	} {
		m := message("x")
		m.Occasion, m.Shown.Title, m.Approval.Status = occasion, text("T"), approval.Denied
		require.Equal(t, want, letter.Of(m).Subject)
	}
	m := message("x")
	m.Shown.Title = text(strings.Repeat("long ", 30))
	require.Equal(t, "Approval needed", letter.Of(m).Subject, "a long title is left out whole")
}

// A mail is whole, or says that it is not and has none of the arguments.
func TestB2MailIsNeverCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := strings.Repeat(rapid.SampledFrom([]string{"x", "&", "é"}).Draw(t, "letter"), rapid.SampledFrom([]int{1, 20_000, 33_000, 60_000, 200_000}).Draw(t, "length"))
		m := message("")
		m.Shown.Arguments[2].Value = text(value)
		if rapid.Bool().Draw(t, "many facts") {
			m.Shown.Facts = append(m.Shown.Facts, show.Fact{Label: "Long", Value: text(strings.Repeat("f", 150_000))})
		}
		mail := letter.Of(m).AsMail()
		if len(mail.Text)+len(mail.HTML) > letter.MaxMail {
			t.Fatalf("%d bytes", len(mail.Text)+len(mail.HTML))
		}
		short := strings.Contains(mail.Text, letter.TooLong)
		if short != strings.Contains(seen(mail.HTML), letter.TooLong) || short == strings.Contains(mail.Text, "reason: "+value+"\n") || short == strings.Contains(seen(mail.HTML), "reason: "+value) {
			t.Fatalf("short %v", short)
		}
		if short && (strings.Contains(mail.Text, "reason") || strings.Contains(mail.HTML, "reason") || !strings.Contains(mail.Text, page)) {
			t.Fatal("part of the arguments is there, or the page is not")
		}
	})
}

// What became of a request is said in words of ours.
func TestOutcome(t *testing.T) {
	at := asked.Add(time.Minute)
	for want, a := range map[string]approval.Approval{
		"Approved by user:ana on 20 Nov 2026, 10:01:00 UTC.":                                    {Status: approval.Approved, Decisions: []approval.Decision{{By: "user:ben", Action: approval.Approve}, {By: "user:ana", Action: approval.Approve, At: at}}},
		"Approved with other arguments by user:ana on 20 Nov 2026, 10:01:00 UTC.":               {Status: approval.Approved, Decisions: []approval.Decision{{By: "user:ana", Action: approval.Edit, At: at}}},
		"Denied by user:ana on 20 Nov 2026, 10:01:00 UTC.":                                      {Status: approval.Denied, Decisions: []approval.Decision{{By: "user:ana", At: at}}},
		"Denied by somebody on 20 Nov 2026, 10:01:00 UTC.":                                      {Status: approval.Denied, Decisions: []approval.Decision{{By: "user:x\n<b>", At: at}}},
		"Called off. It was not carried out.":                                                   {Status: approval.Cancelled},
		"Expired on 20 Nov 2026, 10:01:00 UTC: nobody decided in time. It was not carried out.": {Status: approval.Expired, ExpiresAt: at},
		"It still waits for a decision.":                                                        {Status: approval.Pending},
	} {
		require.Equal(t, want, letter.Outcome(a))
	}
}

// A question or an answer stands before everything else.
func TestRemark(t *testing.T) {
	m := message("x")
	m.Occasion = notify.Question
	m.Approval.Thread = []approval.Remark{{By: "user:ben", At: asked, Text: "old?"}, {By: "user:ana", At: asked.Add(time.Minute), Text: "which chair?"}}
	m.Shown.History = show.BuildRequest(m.Approval, show.View{}).History
	l := letter.Of(m)
	require.Equal(t, letter.Remark, l.Sections[0].Name)
	require.Equal(t, "  user:ana: which chair?", l.Sections[0].Lines[0].String())
	require.True(t, l.Pending)
	names := []letter.Name{}
	for _, s := range l.Brief().Sections {
		names = append(names, s.Name)
	}
	require.Equal(t, []letter.Name{letter.Facts}, names)
	require.True(t, slices.ContainsFunc(l.Sections, func(s letter.Section) bool { return s.Name == letter.Says && s.Untrusted }))
}

// B2: what people decided stands in a message as it does on the page: on which tools, how far a grant goes, and to what arguments were changed.
func TestB2HistoryIsComplete(t *testing.T) {
	m := message("x")
	m.Shown.History = []show.Event{
		{At: asked, What: "approve", Who: text("user:ben"), Tools: text("refund, mail"), Note: text("fine"), Grant: text("3 times")},
		{At: asked, What: "edit", Who: text("user:ana"), Arguments: []show.Argument{{Key: text("to"), Kind: "object"}, {Depth: 1, Key: text("amount"), Value: text("5")}}},
		{At: asked, What: "expired"},
	}
	l := letter.Of(m)
	var got []string
	for _, line := range l.Sections[len(l.Sections)-1].Lines {
		got = append(got, strings.TrimSpace(line.String()))
	}
	const at = "20 Nov 2026, 10:00:00 UTC: "
	require.Equal(t, []string{at + "approve of refund, mail by user:ben: fine, 3 times", at + "edit by user:ana", "to:", "amount: 5", at + "expired"}, got)
}

func TestValidAddress(t *testing.T) {
	for a, want := range map[string]bool{
		"ana@example.com": true, "a.b+c@mail.example.co.uk": true, "": false, "ana": false, "@example.com": false, "ana@": false, "ana@localhost": false,
		"a@b@example.com": false, "ana@example.com, eve@example.com": false, "Ana <ana@example.com>": false, "ana@example.com\r\nBcc: eve@example.com": false,
		"ana@exämple.com": false, "ana.@example.com": false, "a..b@example.com": false, "ana@.example.com": false, "ana@example.com.": false, "\"a b\"@example.com": false,
		strings.Repeat("x", 65) + "@example.com": false, "ana@" + strings.Repeat("x.", 130) + "com": false,
	} {
		require.Equal(t, want, letter.ValidAddress(a), a)
	}
}

// No name and no form hides what runs, or who is paid.
func TestB4NothingThatRunsIsMasked(t *testing.T) {
	for _, behind := range badinput.UnmaskableTexts() {
		m := message("")
		m.Approval.Args, m.Approval.Tools = badinput.UnmaskableArgs(behind), []string{"deploy"}
		m.Shown = show.BuildRequest(m.Approval, show.View{ModelText: behind})
		mail := letter.Of(m).AsMail()
		for _, got := range []string{mail.Text, seen(mail.HTML)} {
			require.GreaterOrEqual(t, strings.Count(got, show.Quoted(behind).String()), 3, "%q:\n%s", behind, got)
			require.Contains(t, got, `"mallory"`)
		}
	}
}
