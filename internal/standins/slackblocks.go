package standins

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"
	"unicode/utf16"
)

// tooLong says that a message breaks the limit on all of its blocks, which Slack does not document and enforces.
const tooLong = "the blocks are too long"

// posted is what a message may hold here. Anything else is refused: Slack ignores it, and whoever sent it would never
// know.
type posted struct {
	Channel     string       `json:"channel"`
	TS          string       `json:"ts"`
	Text        string       `json:"text"`
	Blocks      []SlackBlock `json:"blocks"`
	UnfurlLinks *bool        `json:"unfurl_links"`
	UnfurlMedia *bool        `json:"unfurl_media"`
	LinkNames   bool         `json:"link_names"`
	Parse       string       `json:"parse"`

	raw json.RawMessage
}

// SlackBlock is a block, or what stands in one, of whatever type.
type SlackBlock struct {
	Type      string          `json:"type"`
	ID        string          `json:"block_id,omitempty"`
	Action    string          `json:"action_id,omitempty"`
	Text      json.RawMessage `json:"text,omitempty"` // a Text, or of a rich text's element a string
	Fields    []SlackText     `json:"fields,omitempty"`
	Accessory *SlackBlock     `json:"accessory,omitempty"` // of a section: a button here
	Elements  []SlackBlock    `json:"elements,omitempty"`
	Label     *SlackText      `json:"label,omitempty"`
	Element   *SlackBlock     `json:"element,omitempty"`
	Optional  bool            `json:"optional,omitempty"`
	Value     string          `json:"value,omitempty"`
	URL       string          `json:"url,omitempty"`
	Style     string          `json:"style,omitempty"`
	Confirm   *SlackConfirm   `json:"confirm,omitempty"`
	MaxLength int             `json:"max_length,omitempty"`
}

// SlackConfirm is a confirmation dialog.
type SlackConfirm struct {
	Title   SlackText `json:"title"`
	Text    SlackText `json:"text"`
	Confirm SlackText `json:"confirm"`
	Deny    SlackText `json:"deny"`
	Style   string    `json:"style,omitempty"`
}

// SlackText is a text object.
type SlackText struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Emoji *bool  `json:"emoji,omitempty"`
}

// Shown is every text of a block that a person sees, in order.
func (b SlackBlock) Shown() []string {
	var out []string
	var t SlackText
	var s string
	switch {
	case json.Unmarshal(b.Text, &t) == nil && t.Text != "":
		out = append(out, t.Text)
	case json.Unmarshal(b.Text, &s) == nil && s != "":
		out = append(out, s)
	}
	for _, f := range b.Fields {
		out = append(out, f.Text)
	}
	if b.Accessory != nil {
		out = append(out, b.Accessory.Shown()...)
	}
	for _, e := range b.Elements {
		out = append(out, e.Shown()...)
	}
	return out
}

// parse reads a message and says what is wrong with its blocks; nil = it is no message.
func parse(body []byte) (*posted, []string) {
	m := posted{raw: body}
	if decode(body, &m) != nil {
		return nil, nil
	}
	c := checker{}
	// Nothing of an approval's message is unfurled, linked or parsed.
	if m.UnfurlLinks == nil || *m.UnfurlLinks || m.UnfurlMedia == nil || *m.UnfurlMedia {
		c.wrong("unfurling is on")
	}
	if m.LinkNames || m.Parse != "none" {
		c.wrong("names are linked or text is parsed")
	}
	if len(m.Blocks) > 50 {
		c.wrong("no more than 50 items allowed [json-pointer:/blocks]")
	}
	ids := map[string]bool{}
	for i, b := range m.Blocks {
		if b.ID != "" && ids[b.ID] {
			c.wrong("duplicate block_id [json-pointer:/blocks/%d]", i)
		}
		ids[b.ID] = true
		c.block(b, fmt.Sprintf("/blocks/%d", i))
	}
	if all, err := json.Marshal(m.Blocks); err != nil || length(string(all)) > 12_000 {
		c.problems = append(c.problems, tooLong)
	}
	return &m, c.problems
}

// decode refuses unknown keys.
func decode(raw json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

type checker struct{ problems []string }

func (c *checker) wrong(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func length(s string) int { return len(utf16.Encode([]rune(s))) }

// text checks a text object: plain, of one character at least and limit at most.
func (c *checker) text(t SlackText, limit int, at string) {
	switch {
	case t.Type != "plain_text":
		c.wrong("only plain_text is for text that is not ours, got %q [json-pointer:%s]", t.Type, at)
	case t.Emoji == nil || *t.Emoji:
		c.wrong("emoji: names of emoji would be drawn [json-pointer:%s]", at)
	case t.Text == "":
		c.wrong("must be more than 0 characters [json-pointer:%s/text]", at)
	case length(t.Text) > limit:
		c.wrong("must be less than %d characters [json-pointer:%s/text]", limit+1, at)
	}
}

func (c *checker) object(raw json.RawMessage, limit int, at string) {
	var t SlackText
	if decode(raw, &t) != nil {
		c.wrong("want a text object [json-pointer:%s]", at)
		return
	}
	c.text(t, limit, at)
}

func (c *checker) block(b SlackBlock, at string) {
	if length(b.ID) > 255 {
		c.wrong("must be less than 256 characters [json-pointer:%s/block_id]", at)
	}
	switch b.Type {
	case "header":
		c.object(b.Text, 150, at+"/text")
	case "section":
		if b.Text == nil && len(b.Fields) == 0 {
			c.wrong("want text or fields [json-pointer:%s]", at)
		}
		if b.Text != nil {
			c.object(b.Text, 3000, at+"/text")
		}
		if b.Accessory != nil {
			c.button(*b.Accessory, at+"/accessory")
		}
		if len(b.Fields) > 10 {
			c.wrong("no more than 10 items allowed [json-pointer:%s/fields]", at)
		}
		for i, f := range b.Fields {
			c.text(f, 2000, fmt.Sprintf("%s/fields/%d", at, i))
		}
	case "rich_text": // preformatted text alone is known here
		if len(b.Elements) != 1 || b.Elements[0].Type != "rich_text_preformatted" || len(b.Elements[0].Elements) != 1 {
			c.wrong("want one rich_text_preformatted with one text [json-pointer:%s/elements]", at)
			return
		}
		e := b.Elements[0].Elements[0]
		var s string
		if e.Type != "text" || json.Unmarshal(e.Text, &s) != nil || s == "" || length(s) > 3000 {
			c.wrong("want a text of 1 to 3000 characters [json-pointer:%s/elements/0/elements/0]", at)
		}
	case "actions":
		if len(b.Elements) == 0 || len(b.Elements) > 25 {
			c.wrong("want 1 to 25 elements [json-pointer:%s/elements]", at)
		}
		for i, e := range b.Elements {
			c.button(e, fmt.Sprintf("%s/elements/%d", at, i))
		}
	case "input":
		if b.Label == nil || b.Element == nil || b.Element.Type != "plain_text_input" || b.Element.Action == "" ||
			b.Element.MaxLength < 1 || b.Element.MaxLength > 3000 {
			c.wrong("want a label and a plain_text_input of 1 to 3000 characters [json-pointer:%s]", at)
			return
		}
		c.text(*b.Label, 2000, at+"/label")
	default:
		c.wrong("unsupported block: %s [json-pointer:%s]", b.Type, at)
	}
}

func (c *checker) button(e SlackBlock, at string) {
	if e.Type != "button" || e.Action == "" || length(e.Action) > 255 {
		c.wrong("want a button with an action_id [json-pointer:%s]", at)
		return
	}
	c.object(e.Text, 75, at+"/text")
	if length(e.Value) > 2000 {
		c.wrong("must be less than 2001 characters [json-pointer:%s/value]", at)
	}
	if u, err := url.Parse(e.URL); length(e.URL) > 3000 || err != nil || e.URL != "" && u.Host == "" {
		c.wrong("want a URL of at most 3000 characters [json-pointer:%s/url]", at)
	}
	if e.Style != "" && e.Style != "primary" && e.Style != "danger" {
		c.wrong("must be primary or danger [json-pointer:%s/style]", at)
	}
	if e.Confirm != nil {
		c.text(e.Confirm.Title, 100, at+"/confirm/title")
		c.text(e.Confirm.Text, 300, at+"/confirm/text")
		c.text(e.Confirm.Confirm, 30, at+"/confirm/confirm")
		c.text(e.Confirm.Deny, 30, at+"/confirm/deny")
	}
}

// SlackClick is somebody clicking a button of a message.
type SlackClick struct {
	Member string
	Ref    string // of the message
	Action string // of the button
	Note   string // typed in the field beside the buttons; "" = nothing
	Answer string // where answers to the click go; "" = nowhere
}

// Request is what Slack sends for a click: the form's body, as it is to be signed. A button that the message has not is
// an error.
func (s *Slack) Request(c SlackClick) (body []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.message(c.Ref)
	if m == nil {
		return nil, fmt.Errorf("there is no message %s", c.Ref)
	}
	var actions []any
	values := map[string]any{}
	for _, b := range m.Blocks {
		for _, e := range b.Elements {
			if b.Type == "actions" && e.Action == c.Action {
				actions = append(actions, map[string]any{
					"type": e.Type, "action_id": e.Action, "block_id": b.ID, "value": e.Value, "text": e.Text,
					"action_ts": "1700000001.000001",
				})
			}
		}
		if b.Type == "input" {
			var typed any
			if c.Note != "" {
				typed = c.Note
			}
			values[b.ID] = map[string]any{b.Element.Action: map[string]any{"type": b.Element.Type, "value": typed}}
		}
	}
	if len(actions) == 0 {
		return nil, fmt.Errorf("message %s has no button %q", c.Ref, c.Action)
	}
	p, err := json.Marshal(map[string]any{
		"type": "block_actions", "api_app_id": "A0000000001", "token": "a token of old times", "trigger_id": "1.2.3",
		"user": map[string]any{"id": c.Member, "username": "somebody", "name": "somebody", "team_id": s.Team},
		"team": map[string]any{"id": s.Team, "domain": "acme"}, "enterprise": nil, "is_enterprise_install": false,
		"container": map[string]any{"type": "message", "is_ephemeral": false},
		"message":   map[string]any{"type": "message", "text": m.Text, "blocks": m.Blocks},
		"state":     map[string]any{"values": values}, "response_url": c.Answer,
		"actions": actions[:1],
	})
	if err != nil {
		return nil, err
	}
	return []byte(url.Values{"payload": {string(p)}}.Encode()), nil
}

// SlackHeaders are those of a body that Slack signs at a time.
func SlackHeaders(secret string, at time.Time, body []byte) map[string]string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + seconds + ":" + string(body)))
	return map[string]string{
		"Content-Type":              "application/x-www-form-urlencoded",
		"X-Slack-Request-Timestamp": seconds,
		"X-Slack-Signature":         "v0=" + hex.EncodeToString(mac.Sum(nil)),
	}
}
