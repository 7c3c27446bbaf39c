package slackfake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Click is somebody clicking a button of a message.
type Click struct {
	Member string
	Ref    string // of the message
	Action string // of the button
	Note   string // typed in the field beside the buttons; "" = nothing
	Answer string // where answers to the click go; "" = nowhere
}

// Request is what Slack sends for a click: the form's body, as it is to be signed. A button that the message has not is
// an error.
func (s *Server) Request(c Click) (body []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.messages[c.Ref]
	if !ok {
		return nil, fmt.Errorf("there is no message %s", c.Ref)
	}
	for _, b := range m.Blocks {
		for _, e := range b.Elements {
			if b.Type == "actions" && e.Action == c.Action {
				return s.form(c, m, b, e)
			}
		}
	}
	return nil, fmt.Errorf("message %s has no button %q", c.Ref, c.Action)
}

func (s *Server) form(c Click, m *Message, b, e Block) ([]byte, error) {
	values := map[string]any{}
	for _, b := range m.Blocks {
		if b.Type == "input" {
			var typed any
			if c.Note != "" {
				typed = c.Note
			}
			values[b.ID] = map[string]any{b.Element.Action: map[string]any{"type": b.Element.Type, "value": typed}}
		}
	}
	p, err := json.Marshal(map[string]any{
		"type": "block_actions", "api_app_id": "A0000000001", "token": "a token of old times", "trigger_id": "1.2.3",
		"user": map[string]any{"id": c.Member, "username": "somebody", "name": "somebody", "team_id": s.Team},
		"team": map[string]any{"id": s.Team, "domain": "acme"}, "enterprise": nil, "is_enterprise_install": false,
		"container": map[string]any{"type": "message", "is_ephemeral": false},
		"message":   map[string]any{"type": "message", "text": m.Text, "blocks": m.Blocks},
		"state":     map[string]any{"values": values}, "response_url": c.Answer,
		"actions": []any{map[string]any{
			"type": e.Type, "action_id": e.Action, "block_id": b.ID, "value": e.Value, "text": e.Text, "action_ts": "1700000001.000001",
		}},
	})
	if err != nil {
		return nil, err
	}
	return []byte(url.Values{"payload": {string(p)}}.Encode()), nil
}

// Headers are those of a body that Slack signs at a time.
func Headers(secret string, at time.Time, body []byte) map[string]string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + seconds + ":" + string(body)))
	return map[string]string{
		"Content-Type":              "application/x-www-form-urlencoded",
		"X-Slack-Request-Timestamp": seconds,
		"X-Slack-Signature":         "v0=" + hex.EncodeToString(mac.Sum(nil)),
	}
}
