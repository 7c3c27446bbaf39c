package people

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
)

// The ids of what can be clicked and typed in.
const (
	actionApprove = "approve"
	actionDeny    = "deny"
	actionOpen    = "open"
	blockNote     = "note"
	actionNote    = "note"
)

// renderSlack writes a message: the notification text, which quotes nothing, and the blocks. The blocks show all of the
// request, or say that they do not and have no buttons (B2).
func renderSlack(m Message) (line string, blocks []slackBlock) {
	line = "Countersign: " + m.Opening()
	if len(m.Others) > 0 {
		return line, renderSlackList(m)
	}
	d := m.Document()
	if whole := renderSlackBlocks(m, d, false); fitsSlack(whole) {
		return line, whole
	}
	short := d.Only(SectionRemark, SectionWho, SectionAbout)
	if brief := renderSlackBlocks(m, short, true); fitsSlack(brief) {
		return line, brief
	}
	bare := d.Only()
	if !fitsSlack(renderSlackBlocks(m, bare, true)) {
		m.Link = "" // only an address of thousands of characters does not fit
	}
	return line, renderSlackBlocks(m, bare, true)
}

// renderSlackList writes a message about several requests: a line and a link to the page for each, as many as fit.
// People decide on the pages.
func renderSlackList(m Message) []slackBlock {
	all := m.Requests()
	for n := min(len(all), maxBlocks); ; n-- {
		blocks := []slackBlock{subjectHeader(m), sectionBlock(m.Opening())}
		for i, r := range all[:n] {
			b := sectionBlock(strconv.Itoa(i+1) + ". " + r.Shown.Sentence.String())
			if r.Link != "" {
				b.Accessory = &slackElement{Type: "button", Action: actionOpen, Text: plainText("Open page"), URL: r.Link}
			}
			blocks = append(blocks, b)
		}
		if rest := m.Elsewhere(n); rest != "" {
			blocks = append(blocks, sectionBlock(rest))
		}
		if n == 0 || fitsSlack(blocks) {
			return blocks
		}
	}
}

// subjectHeader is a message's subject, if it is not too long for a header; the facts say what the message is about.
func subjectHeader(m Message) slackBlock {
	if h := headerBlock(m.Subject()); h.fits() {
		return h
	}
	return headerBlock("Countersign")
}

// renderSlackBlocks writes a document in blocks of any size. Short says that it is not complete.
func renderSlackBlocks(m Message, d Document, short bool) []slackBlock {
	blocks := []slackBlock{subjectHeader(m)}
	if len(d.Sentence) > 0 {
		blocks = append(blocks, sectionBlock(d.Sentence.String()), sectionBlock(d.Risk.Words()+": "+d.RiskText.String()))
	}
	blocks = append(blocks, sectionBlock(m.Opening()))
	for _, s := range d.Sections {
		blocks = append(blocks, sectionBlock(s.Title))
		for rows := s.Rows; len(rows) > 0; {
			n := slices.IndexFunc(rows, func(l Row) bool { return l.Name != "" })
			if n == 0 { // facts, in columns
				facts := slackBlock{Type: "section"}
				for ; n < min(len(rows), maxFields) && rows[n].Name != ""; n++ {
					facts.Fields = append(facts.Fields, *plainText(rows[n].Text().String()))
				}
				blocks = append(blocks, facts)
			} else {
				if n < 0 {
					n = len(rows)
				}
				blocks = append(blocks, textBlocks(rows[:n])...)
			}
			rows = rows[n:]
		}
	}
	// A click can decide the request if it is about one call, and was sent to an approver.
	buttons := m.IsPending() && !short && m.Approval.Kind == approval.KindCall && m.Approval.Digest != "" &&
		m.Occasion != Question
	if short {
		blocks = append(blocks, sectionBlock(TooLong))
	}
	if m.IsPending() && !buttons {
		blocks = append(blocks, sectionBlock(m.Invitation()))
	}
	if buttons {
		if c := m.Approval.Channels; !c.Allow(agent.ViaSlack) {
			blocks = append(blocks, sectionBlock("It is approved by "+c.Words()+", and not in Slack. You may deny it here."))
		}
		label := plainText("Note (optional; if you deny, the agent is told of it as your word)") // sent with either button
		blocks = append(blocks, slackBlock{Type: "input", ID: blockNote, Label: label, Optional: true, Element: &slackElement{
			Type: "plain_text_input", Action: actionNote, MaxLength: maxNote,
		}})
	}
	if row := actionRow(m, buttons); len(row) > 0 {
		blocks = append(blocks, slackBlock{Type: "actions", ID: "decide", Elements: row})
	}
	return blocks
}

// textBlocks are lines of foreign text in as few blocks as hold them. A line that is too long makes a block that does
// not fit.
func textBlocks(all []Row) []slackBlock {
	var blocks []slackBlock
	var held []string
	size := 0
	flush := func() {
		if len(held) > 0 {
			joined := []richText{{Type: "text", Text: verbatim(strings.Join(held, "\n"))}}
			blocks = append(blocks, slackBlock{Type: "rich_text", Elements: []any{
				richTextBlock{Type: "rich_text_preformatted", Elements: joined},
			}})
		}
		held, size = nil, 0
	}
	for _, l := range all {
		t := cmp.Or(strings.Repeat("  ", l.Depth)+l.Text().String(), "(empty)")
		n := utf16Length(verbatim(t)) + 1
		if size+n > maxText {
			flush()
		}
		held, size = append(held, t), size+n
	}
	flush()
	return blocks
}

func actionRow(m Message, buttons bool) []any {
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
		row = append(row, slackElement{Type: "button", Action: actionOpen, Text: plainText("Open page"), URL: m.Link})
	}
	return row
}

func newButton(action, label, style, value, title, question string) slackElement {
	return slackElement{
		Type: "button", Action: action, Text: plainText(label), Style: style, Value: value,
		Confirm: &slackConfirm{plainText(title), plainText(question), plainText(label), plainText("Back"), style},
	}
}

// buttonValue is the value of a button: the request, and the digest of the action that the message shows (A6). A click
// on a message that shows an older action decides nothing.
type buttonValue struct {
	V        int    `json:"v"`
	Approval string `json:"approval"`
	Digest   string `json:"digest"`
}

// The limits of Block Kit. Slack counts characters as JavaScript does.
const (
	maxBlocks  = 50
	maxHeader  = 150
	maxText    = 3000
	maxField   = 2000
	maxFields  = 10
	maxAddress = 3000
	maxNote    = 1000 // our own limit on what reaches the model

	// maxMessage bounds all blocks of a message as JSON. Slack refuses somewhat above 12,000 characters
	// (msg_blocks_too_long), and does not document how it counts.
	maxMessage = 10_000
)

// slackBlock is a Block Kit block with the fields that this package uses.
type slackBlock struct {
	Type      string        `json:"type"`
	ID        string        `json:"block_id,omitempty"`
	Text      *slackText    `json:"text,omitempty"`
	Fields    []slackText   `json:"fields,omitempty"`
	Accessory *slackElement `json:"accessory,omitempty"` // of a section: a link
	Elements  []any         `json:"elements,omitempty"`
	Label     *slackText    `json:"label,omitempty"`   // of an input
	Element   *slackElement `json:"element,omitempty"` // of an input
	Optional  bool          `json:"optional,omitempty"`
}

// slackText is a text object, always plain.
type slackText struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Emoji bool   `json:"emoji"` // false: :name: is no emoji
}

// richTextBlock is a rich text block, and the element in it.
type richTextBlock struct {
	Type     string     `json:"type"`
	Elements []richText `json:"elements"`
}

type richText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type slackElement struct {
	Type      string        `json:"type"`
	Action    string        `json:"action_id"`
	Text      *slackText    `json:"text,omitempty"`
	Value     string        `json:"value,omitempty"`
	URL       string        `json:"url,omitempty"`
	Style     string        `json:"style,omitempty"`
	Confirm   *slackConfirm `json:"confirm,omitempty"`
	MaxLength int           `json:"max_length,omitempty"`
}

// slackConfirm is the dialog that a click on a button opens.
type slackConfirm struct {
	Title   *slackText `json:"title"`
	Text    *slackText `json:"text"`
	Confirm *slackText `json:"confirm"`
	Deny    *slackText `json:"deny"`
	Style   string     `json:"style,omitempty"`
}

func plainText(t string) *slackText { return &slackText{Type: "plain_text", Text: verbatim(t)} }

func headerBlock(t string) slackBlock { return slackBlock{Type: "header", Text: plainText(t)} }

func sectionBlock(t string) slackBlock { return slackBlock{Type: "section", Text: plainText(t)} }

// verbatim replaces ampersands that Slack could read as the start of one of its three escapes. Slack does not document
// whether it unescapes &lt; in plain text.
func verbatim(t string) string {
	return strings.NewReplacer("&amp;", `\u{26}amp;`, "&lt;", `\u{26}lt;`, "&gt;", `\u{26}gt;`).Replace(t)
}

// utf16Length is the length of a text in characters as Slack counts them.
func utf16Length(t string) int { return len(utf16.Encode([]rune(t))) }

// fitsSlack reports whether Slack accepts these blocks.
func fitsSlack(blocks []slackBlock) bool {
	if len(blocks) > maxBlocks {
		return false
	}
	for _, b := range blocks {
		if !b.fits() {
			return false
		}
	}
	all, err := jsonx.MarshalVerbatim(blocks)
	return err == nil && utf16Length(string(all)) <= maxMessage
}

func (b slackBlock) fits() bool {
	limit := maxText
	if b.Type == "header" {
		limit = maxHeader
	}
	if b.Text != nil && (b.Text.Text == "" || utf16Length(b.Text.Text) > limit) || len(b.Fields) > maxFields {
		return false
	}
	if b.Accessory != nil && utf16Length(b.Accessory.URL) > maxAddress {
		return false
	}
	for _, f := range b.Fields {
		if f.Text == "" || utf16Length(f.Text) > maxField {
			return false
		}
	}
	for _, e := range b.Elements {
		switch e := e.(type) {
		case richTextBlock:
			if utf16Length(e.Elements[0].Text) > maxText {
				return false
			}
		case slackElement:
			if utf16Length(e.URL) > maxAddress {
				return false
			}
		}
	}
	return true
}
