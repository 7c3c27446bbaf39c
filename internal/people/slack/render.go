package slack

import (
	"encoding/json"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/letter"
	"github.com/countersign/countersign/internal/people/notify"
)

// The ids of what can be clicked and typed in.
const (
	actionApprove = "approve"
	actionDeny    = "deny"
	actionOpen    = "open"
	blockNote     = "note"
	actionNote    = "note"
)

// tooLong replaces the arguments if Slack has no room for them. The message has no buttons then, because an approver
// must see all arguments.
const tooLong = "This request is too long for Slack. Its arguments are left out of this message, all of them. See the complete request on its page and decide there."

// decideOnPage is shown without buttons, for a request that a button cannot decide.
const decideOnPage = "This request cannot be decided from Slack. See it and decide on its page."

// tooLongNoPage and decideElsewhere replace them if there is no page.
const (
	tooLongNoPage   = "This request is too long for Slack. Its arguments are left out of this message, all of them. See the complete request with `countersign approvals` or by the API and decide there."
	decideElsewhere = "This request cannot be decided from Slack. Decide it with `countersign approvals` or by the API."
)

// render writes a letter as a message: the notification text, which quotes nothing, and the blocks. The blocks show all
// of the letter, or say that they do not.
func render(l letter.Letter, a approval.Approval, why notify.Occasion) (line string, blocks []block) {
	line, l = "Countersign: "+l.Opening, fitSubject(l)
	if l.IsMany() {
		return line, renderList(l)
	}
	if whole := renderBlocks(l, a, why); fitsSlack(whole) {
		return line, whole
	}
	if brief := renderBlocks(l.Brief(), a, why); fitsSlack(brief) {
		return line, brief
	}
	bare := l.Bare()
	if !fitsSlack(renderBlocks(bare, a, why)) {
		bare.Link = "" // only an address of thousands of characters does not fit
	}
	return line, renderBlocks(bare, a, why)
}

// renderList writes a letter about several requests: a line and a link to the page for each, as many as fit. People
// decide on the pages.
func renderList(l letter.Letter) []block {
	for n := min(len(l.Entries), maxBlocks); ; n-- {
		some := l.First(n)
		blocks := []block{header(some.Subject), section(some.Opening)}
		for _, e := range some.Entries {
			b := section(e.String())
			if e.Link != "" {
				b.Accessory = &element{Type: "button", Action: actionOpen, Text: openPageLabel(), URL: e.Link}
			}
			blocks = append(blocks, b)
		}
		if rest := some.Elsewhere(); rest != "" {
			blocks = append(blocks, section(rest))
		}
		if n == 0 || fitsSlack(blocks) {
			return blocks
		}
	}
}

func openPageLabel() *text {
	t := plainText("Open page")
	return &t
}

// fitSubject replaces a subject that is too long for a header; the facts say what the letter is about.
func fitSubject(l letter.Letter) letter.Letter {
	if utf16Length(verbatim(l.Subject)) > maxHeader {
		l.Subject = "Countersign"
	}
	return l
}

// renderBlocks writes a letter in blocks of any size.
func renderBlocks(l letter.Letter, a approval.Approval, why notify.Occasion) []block {
	blocks := []block{header(l.Subject), section(l.Opening)}
	for _, s := range l.Sections {
		blocks = append(blocks, section(s.Title))
		if s.Name == letter.Facts {
			blocks = append(blocks, factBlocks(s.Lines)...)
			continue
		}
		blocks = append(blocks, textBlocks(s.Lines)...)
	}
	buttons := l.Pending && !l.Short && isDecidable(a, why)
	switch {
	case l.Short && l.Link == "":
		blocks = append(blocks, section(tooLongNoPage))
	case l.Short:
		blocks = append(blocks, section(tooLong))
	case l.Pending && !buttons && why != notify.Question && l.Link == "":
		blocks = append(blocks, section(decideElsewhere))
	case l.Pending && !buttons && why != notify.Question:
		blocks = append(blocks, section(decideOnPage))
	}
	if buttons {
		if !a.Channels.Allow(approval.ViaSlack) {
			blocks = append(blocks, section("It is approved by "+a.Channels.Words()+", and not in Slack. You may deny it here."))
		}
		blocks = append(blocks, noteInput())
	}
	if row := actionRow(l, a, buttons); len(row) > 0 {
		blocks = append(blocks, block{Type: "actions", ID: "decide", Elements: row})
	}
	return blocks
}

// isDecidable reports whether a click can decide the request: approve or deny one call, sent to an approver.
func isDecidable(a approval.Approval, why notify.Occasion) bool {
	return a.Kind == approval.KindCall && a.Digest != "" && why != notify.Question
}

// factBlocks are the facts in columns.
func factBlocks(all []letter.Line) []block {
	var blocks []block
	for i, l := range all {
		if i%maxFields == 0 {
			blocks = append(blocks, block{Type: "section"})
		}
		last := &blocks[len(blocks)-1]
		last.Fields = append(last.Fields, plainText(strings.TrimLeft(l.String(), " ")))
	}
	return blocks
}

// textBlocks are lines of foreign text in as few blocks as hold them. A line that is too long makes a block that does
// not fit.
func textBlocks(all []letter.Line) []block {
	var blocks []block
	var held []string
	size := 0
	flush := func() {
		if len(held) > 0 {
			blocks = append(blocks, preformatted(strings.Join(held, "\n")))
		}
		held, size = nil, 0
	}
	for _, l := range all {
		t := strings.TrimPrefix(l.String(), "  ")
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

// noteInput is the input of a note. Slack sends its text with either button.
func noteInput() block {
	label := plainText("Note (optional; the agent is told of it as your word)")
	return block{Type: "input", ID: blockNote, Label: &label, Optional: true, Element: &element{
		Type: "plain_text_input", Action: actionNote, MaxLength: maxNote,
	}}
}

// actionRow is the buttons and the link to the page.
func actionRow(l letter.Letter, a approval.Approval, buttons bool) []any {
	var row []any
	if buttons {
		value := buttonValue{V: 1, Approval: a.ID, Digest: a.Digest}.String()
		if a.Channels.Allow(approval.ViaSlack) {
			row = append(row, newButton(actionApprove, "Approve", "primary", value, "Approve this call?",
				"It will be carried out exactly as this message shows it."))
		}
		row = append(row,
			newButton(actionDeny, "Deny", "danger", value, "Deny this call?", "It will not be carried out. The agent is told so, with your note."))
	}
	if l.Link != "" {
		row = append(row, element{Type: "button", Action: actionOpen, Text: openPageLabel(), URL: l.Link})
	}
	return row
}

func newButton(action, label, style, value, title, question string) element {
	t := plainText(label)
	return element{Type: "button", Action: action, Text: &t, Style: style, Value: value, Confirm: &confirm{
		Title: plainText(title), Text: plainText(question), Confirm: plainText(label), Deny: plainText("Back"), Style: style,
	}}
}

// buttonValue is the value of a button: the request, and the digest of the action that the message shows (A6). A click
// on a message that shows an older action decides nothing.
type buttonValue struct {
	V        int    `json:"v"`
	Approval string `json:"approval"`
	Digest   string `json:"digest"`
}

func (s buttonValue) String() string {
	out, _ := json.Marshal(s) // it cannot fail
	return string(out)
}
