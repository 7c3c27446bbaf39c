package slack

import (
	"strings"
	"unicode/utf16"

	"github.com/countersign/countersign/internal/jsonx"
)

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

// block is a Block Kit block with the fields that this package uses.
type block struct {
	Type      string   `json:"type"`
	ID        string   `json:"block_id,omitempty"`
	Text      *text    `json:"text,omitempty"`
	Fields    []text   `json:"fields,omitempty"`
	Accessory *element `json:"accessory,omitempty"` // of a section: a link
	Elements  []any    `json:"elements,omitempty"`
	Label     *text    `json:"label,omitempty"`   // of an input
	Element   *element `json:"element,omitempty"` // of an input
	Optional  bool     `json:"optional,omitempty"`
}

// text is a text object, always plain.
type text struct {
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

// element is a button or an input field.
type element struct {
	Type      string   `json:"type"`
	Action    string   `json:"action_id"`
	Text      *text    `json:"text,omitempty"`
	Value     string   `json:"value,omitempty"`
	URL       string   `json:"url,omitempty"`
	Style     string   `json:"style,omitempty"`
	Confirm   *confirm `json:"confirm,omitempty"`
	MaxLength int      `json:"max_length,omitempty"`
}

// confirm is the dialog that a click on a button opens.
type confirm struct {
	Title   *text  `json:"title"`
	Text    *text  `json:"text"`
	Confirm *text  `json:"confirm"`
	Deny    *text  `json:"deny"`
	Style   string `json:"style,omitempty"`
}

func plainText(t string) *text { return &text{Type: "plain_text", Text: verbatim(t)} }

func header(t string) block { return block{Type: "header", Text: plainText(t)} }

func section(t string) block { return block{Type: "section", Text: plainText(t)} }

// verbatim replaces ampersands that Slack could read as the start of one of its three escapes. Slack does not document
// whether it unescapes &lt; in plain text.
func verbatim(t string) string {
	return strings.NewReplacer("&amp;", `\u{26}amp;`, "&lt;", `\u{26}lt;`, "&gt;", `\u{26}gt;`).Replace(t)
}

// utf16Length is the length of a text in characters as Slack counts them.
func utf16Length(t string) int { return len(utf16.Encode([]rune(t))) }

// fitsSlack reports whether Slack accepts these blocks.
func fitsSlack(blocks []block) bool {
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

func (b block) fits() bool {
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
		case element:
			if utf16Length(e.URL) > maxAddress {
				return false
			}
		}
	}
	return true
}
