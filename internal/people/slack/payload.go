package slack

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
)

// maxBody bounds the body of an interaction, in bytes.
const maxBody = 1 << 20

// payload is Slack's description of a click, with the fields that this package reads.
type payload struct {
	Type string `json:"type"`
	User struct {
		ID   string `json:"id"`
		Team string `json:"team_id"`
	} `json:"user"`
	Team *struct {
		ID string `json:"id"`
	} `json:"team"`
	ResponseURL string   `json:"response_url"`
	Actions     []action `json:"actions"`
	State       struct {
		Values map[string]map[string]struct {
			Value *string `json:"value"`
		} `json:"values"`
	} `json:"state"`
}

// action is the element that was clicked.
type action struct {
	ID    string `json:"action_id"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

// click is a decision by a click in Slack.
type click struct {
	team, member string // of the signed payload
	action       approval.Action
	shown        buttonValue
	note         string
	answer       string // address for the answer
}

// errForm is the only error of a body that is not Slack's.
var errForm = errors.New("want a form with one payload of JSON")

// readPayload reads the payload of a signed request's body.
func readPayload(h http.Header, body []byte) (payload, error) {
	var p payload
	if t, _, err := mime.ParseMediaType(h.Get("Content-Type")); err != nil || t != "application/x-www-form-urlencoded" {
		return p, errForm
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || len(form) != 1 || len(form["payload"]) != 1 {
		return p, errForm
	}
	raw := []byte(strings.TrimLeft(form["payload"][0], " \t\r\n"))
	if !bytes.HasPrefix(raw, []byte("{")) || jsonx.DecodeKnown(raw, jsonx.JSONLimits{Bytes: maxBody}, &p) != nil {
		return payload{}, errForm
	}
	return p, nil
}

// parseClick returns the decision in a payload. It is false if there is none, as for a click on a link.
func (p payload) parseClick() (click, bool) {
	if p.Type != "block_actions" || len(p.Actions) != 1 || p.Actions[0].Type != "button" {
		return click{}, false
	}
	c := click{member: p.User.ID, team: p.User.Team, answer: p.ResponseURL}
	if v := p.State.Values[blockNote][actionNote].Value; v != nil {
		c.note = *v
	}
	if c.team == "" && p.Team != nil {
		c.team = p.Team.ID
	}
	switch p.Actions[0].ID {
	case actionApprove:
		c.action = approval.Approve
	case actionDeny:
		c.action = approval.Deny
	default:
		return click{}, false
	}
	err := jsonx.DecodeStrict([]byte(p.Actions[0].Value), &c.shown)
	return c, err == nil && c.shown.V == 1 && c.shown.Approval != "" && c.shown.Digest != "" && c.team != "" && c.member != ""
}
