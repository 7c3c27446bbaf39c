package slack

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/show"
)

// The ids of what can be clicked and typed in.
const (
	actionApprove = "approve"
	actionDeny    = "deny"
	actionOpen    = "open"
	blockNote     = "note"
	actionNote    = "note"
)

// render writes a message: the notification text, which quotes nothing, and the blocks. The blocks show all of the
// request, or say that they do not and have no buttons (B2).
func render(m notify.Message) (line string, blocks []block) {
	line = "Countersign: " + m.Opening()
	if len(m.Others) > 0 {
		return line, renderList(m)
	}
	d := m.Document()
	if whole := renderBlocks(m, d, false); fitsSlack(whole) {
		return line, whole
	}
	if brief := renderBlocks(m, d.Only(show.Who, show.About), true); fitsSlack(brief) {
		return line, brief
	}
	bare := d.Only()
	if !fitsSlack(renderBlocks(m, bare, true)) {
		m.Link = "" // only an address of thousands of characters does not fit
	}
	return line, renderBlocks(m, bare, true)
}

// renderList writes a message about several requests: a line and a link to the page for each, as many as fit. People
// decide on the pages.
func renderList(m notify.Message) []block {
	all := m.Requests()
	for n := min(len(all), maxBlocks); ; n-- {
		blocks := []block{subjectHeader(m), section(m.Opening())}
		for i, r := range all[:n] {
			b := section(strconv.Itoa(i+1) + ". " + r.Shown.Sentence.String())
			if r.Link != "" {
				b.Accessory = &element{Type: "button", Action: actionOpen, Text: plainText("Open page"), URL: r.Link}
			}
			blocks = append(blocks, b)
		}
		if rest := m.Elsewhere(n); rest != "" {
			blocks = append(blocks, section(rest))
		}
		if n == 0 || fitsSlack(blocks) {
			return blocks
		}
	}
}

// subjectHeader is a message's subject, if it is not too long for a header; the facts say what the message is about.
func subjectHeader(m notify.Message) block {
	if h := header(m.Subject()); h.fits() {
		return h
	}
	return header("Countersign")
}

// renderBlocks writes a document in blocks of any size. Short says that it is not complete.
func renderBlocks(m notify.Message, d show.Document, short bool) []block {
	blocks := []block{subjectHeader(m)}
	if len(d.Sentence) > 0 {
		blocks = append(blocks, section(d.Sentence.String()), section(d.Risk.Words()+": "+d.RiskText.String()))
	}
	blocks = append(blocks, section(m.Opening()))
	for _, s := range d.Sections {
		blocks = append(blocks, section(s.Title))
		if s.Rows[0].Name == "" {
			blocks = append(blocks, textBlocks(s.Rows)...)
			continue
		}
		for i, l := range s.Rows { // facts, in columns
			if i%maxFields == 0 {
				blocks = append(blocks, block{Type: "section"})
			}
			last := &blocks[len(blocks)-1]
			last.Fields = append(last.Fields, *plainText(l.Text().String()))
		}
	}
	// A click can decide the request if it is about one call, and was sent to an approver.
	buttons := m.IsPending() && !short && m.Approval.Kind == approval.KindCall && m.Approval.Digest != "" &&
		m.Occasion != notify.Question
	if short {
		blocks = append(blocks, section(notify.TooLong))
	}
	if m.IsPending() && !buttons && m.Occasion != notify.Question {
		blocks = append(blocks, section(m.Invitation()))
	}
	if buttons {
		if c := m.Approval.Channels; !c.Allow(agent.ViaSlack) {
			blocks = append(blocks, section("It is approved by "+c.Words()+", and not in Slack. You may deny it here."))
		}
		label := plainText("Note (optional; the agent is told of it as your word)") // Slack sends it with either button
		blocks = append(blocks, block{Type: "input", ID: blockNote, Label: label, Optional: true, Element: &element{
			Type: "plain_text_input", Action: actionNote, MaxLength: maxNote,
		}})
	}
	if row := actionRow(m, buttons); len(row) > 0 {
		blocks = append(blocks, block{Type: "actions", ID: "decide", Elements: row})
	}
	return blocks
}

// textBlocks are lines of foreign text in as few blocks as hold them. A line that is too long makes a block that does
// not fit.
func textBlocks(all []show.Row) []block {
	var blocks []block
	var held []string
	size := 0
	flush := func() {
		if len(held) > 0 {
			joined := []richText{{Type: "text", Text: verbatim(strings.Join(held, "\n"))}}
			blocks = append(blocks, block{Type: "rich_text", Elements: []any{
				richTextBlock{Type: "rich_text_preformatted", Elements: joined},
			}})
		}
		held, size = nil, 0
	}
	for _, l := range all {
		t := strings.Repeat("  ", l.Depth) + l.Text().String()
		if t == "" {
			t = "(empty)"
		}
		n := utf16Length(verbatim(t)) + 1
		if size+n > maxText {
			flush()
		}
		held, size = append(held, t), size+n
	}
	flush()
	return blocks
}

// actionRow is the buttons and the link to the page.
func actionRow(m notify.Message, buttons bool) []any {
	var row []any
	if buttons {
		// it cannot fail
		shown, _ := json.Marshal(buttonValue{V: 1, Approval: m.Approval.ID, Digest: m.Approval.Digest})
		value := string(shown)
		if m.Approval.Channels.Allow(agent.ViaSlack) {
			row = append(row, newButton(actionApprove, "Approve", "primary", value, "Approve this call?",
				"It will be carried out exactly as this message shows it."))
		}
		row = append(row,
			newButton(actionDeny, "Deny", "danger", value, "Deny this call?",
				"It will not be carried out. The agent is told so, with your note."))
	}
	if m.Link != "" {
		row = append(row, element{Type: "button", Action: actionOpen, Text: plainText("Open page"), URL: m.Link})
	}
	return row
}

func newButton(action, label, style, value, title, question string) element {
	return element{
		Type: "button", Action: action, Text: plainText(label), Style: style, Value: value,
		Confirm: &confirm{plainText(title), plainText(question), plainText(label), plainText("Back"), style},
	}
}

// buttonValue is the value of a button: the request, and the digest of the action that the message shows (A6). A click
// on a message that shows an older action decides nothing.
type buttonValue struct {
	V        int    `json:"v"`
	Approval string `json:"approval"`
	Digest   string `json:"digest"`
}
