package people

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
)

// SlackPath is where Slack sends what is clicked.
const SlackPath = "/slack/interactions"

// Slack wants a response within three seconds, and a function stops after it. These bound the decision, and all of it.
const (
	decideTimeout = 2 * time.Second
	answerTimeout = 2600 * time.Millisecond
)

// SlackInteractions takes decisions from the buttons of messages: POST of SlackPath, without other authentication. A
// request without a valid signature of the last five minutes is refused before it is parsed. The directory maps the
// Slack user of the signed payload to a tenant and a person; the desk authorizes the decision. The person sees the
// result in an ephemeral message; UpdateMessages updates the messages about the request. Logs hold no content. Safe for
// concurrent use.
type SlackInteractions struct {
	Secrets   []string // the app's signing secrets, any of which may sign; none = every request is refused
	Directory Directory
	// Decide is the desk's. It gets the digest that the message showed, and refuses a decision about another one.
	Decide func(ctx context.Context, r approval.DecisionInput) (approval.Approval, error)
	// UpdateMessages updates the messages about a request. It runs while the person who clicked is answered. The handler
	// waits for it until answerTimeout, so its work must be due already. Nil = the messages are not updated here.
	UpdateMessages func(ctx context.Context, a approval.Approval)
	Clock          clock.Clock
	HTTP           *http.Client // for answers; nil = Go's own
	Hooks          string       // scheme and host that answers are posted to; "" = https://hooks.slack.com
	Log            *slog.Logger // required; without content
}

// ServeHTTP implements http.Handler.
func (in *SlackInteractions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxSlackBody+1))
	switch {
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	case len(body) > maxSlackBody:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	case !isSignedBySlack(in.Secrets, r.Header, body, in.Clock.Now()):
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	p, ok := readSlackPayload(r.Header, body)
	if !ok {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if c, ok := p.parseClick(); ok {
		in.handleClick(r.Context(), c)
	}
	w.WriteHeader(http.StatusOK) // the result of a click is posted separately
}

// handleClick carries out a click and posts the result to the person who clicked.
func (in *SlackInteractions) handleClick(ctx context.Context, c click) {
	ctx, cancel := in.Clock.WithTimeout(ctx, answerTimeout)
	defer cancel()
	decided, answer := in.decideClick(ctx, c)
	updated := in.Clock.NewSignal()
	if decided.ID == "" || in.UpdateMessages == nil {
		updated.Notify()
	} else {
		in.Clock.Go(func() {
			in.UpdateMessages(context.WithoutCancel(ctx), decided)
			updated.Notify()
		})
	}
	if err := in.postAnswer(ctx, c.answer, answer); err != nil {
		in.Log.Warn("could not tell who clicked in Slack", "approval", c.shown.Approval, "kind", err)
	}
	_ = updated.Wait(ctx, 0) // the rest is due
}

// decideClick carries out the decision of a click. It returns the answer for the person, and the request if its
// messages are out of date.
func (in *SlackInteractions) decideClick(ctx context.Context, c click) (approval.Approval, string) {
	ctx, cancel := in.Clock.WithTimeout(ctx, decideTimeout)
	defer cancel()
	tenant, p, found, err := in.Directory.Slack(ctx, c.team, c.member)
	switch {
	case err != nil:
		in.Log.Error("could not find who clicked in Slack", "approval", c.shown.Approval, "kind", err)
		return approval.Approval{}, textUncertain
	case !found:
		return approval.Approval{}, textStranger
	}
	a, err := in.Decide(ctx, approval.DecisionInput{
		Tenant: tenant, ID: c.shown.Approval, Action: c.action, Note: c.note, Digest: c.shown.Digest,
		By: p.Principal(), Via: agent.ViaSlack,
	})
	if text := RefusalText(err); text != "" {
		var now approval.Approval
		if a := approval.RequestIn(err); a != nil {
			now = *a
		}
		return now, "Nothing was decided. " + text
	}
	word := "Your approval is recorded. "
	if c.action == approval.Deny {
		word = "Your denial is recorded. "
	}
	switch {
	case err != nil:
		in.Log.Error("could not decide from Slack", "approval", c.shown.Approval, "kind", err)
		return approval.Approval{}, textUncertain
	case a.Status == approval.Pending:
		return a, word + "More people have to approve before it is carried out."
	default:
		return a, word + OutcomeText(a)
	}
}

// maxSlackClockSkew is how far the time of a signature may be from now, either way.
const maxSlackClockSkew = 300 * time.Second

// The headers of a signed request.
const (
	headerSignature = "X-Slack-Signature"
	headerTime      = "X-Slack-Request-Timestamp"
)

// SignSlack is Slack's signature of a body: v0= and the HMAC-SHA-256 of v0:seconds:body in hex. Seconds is Unix time.
func SignSlack(secret, seconds string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + seconds + ":"))
	mac.Write(body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

// isSignedBySlack reports whether one of the secrets signed the body within maxSlackClockSkew. The comparison takes
// constant time.
func isSignedBySlack(secrets []string, h http.Header, body []byte, now time.Time) bool {
	at, given := h.Get(headerTime), h.Get(headerSignature)
	seconds, err := strconv.ParseUint(at, 10, 40)
	if err != nil || len(h.Values(headerTime)) != 1 || len(h.Values(headerSignature)) != 1 {
		return false
	}
	if off := now.Sub(time.Unix(int64(seconds), 0)); off > maxSlackClockSkew || off < -maxSlackClockSkew {
		return false
	}
	signed := false
	for _, s := range secrets {
		ok := s != "" && hmac.Equal([]byte(SignSlack(s, at, body)), []byte(given))
		signed = signed || ok
	}
	return signed
}

// ParseSlackSecrets reads the signing secrets of an app, separated by commas, so that a new one can be added before the
// old one is removed. It skips empty ones.
func ParseSlackSecrets(text string) []string {
	var out []string
	for s := range strings.SplitSeq(text, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// maxSlackBody bounds the body of an interaction, in bytes.
const maxSlackBody = 1 << 20

// slackPayload is Slack's description of a click, with the fields that this package reads.
type slackPayload struct {
	Type string `json:"type"`
	User struct {
		ID   string `json:"id"`
		Team string `json:"team_id"`
	} `json:"user"`
	Team struct {
		ID string `json:"id"`
	} `json:"team"`
	ResponseURL string     `json:"response_url"`
	Actions     []struct { // the element that was clicked
		ID    string `json:"action_id"`
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"actions"`
	State struct {
		Values map[string]map[string]struct {
			Value string `json:"value"`
		} `json:"values"`
	} `json:"state"`
}

// click is a decision by a click in Slack.
type click struct {
	team, member string // of the signed payload
	action       approval.Action
	shown        buttonValue
	note         string
	answer       string // address for the answer
}

// readSlackPayload reads the payload of a signed request's body: a form with one payload of JSON.
func readSlackPayload(h http.Header, body []byte) (p slackPayload, ok bool) {
	if t, _, err := mime.ParseMediaType(h.Get("Content-Type")); err != nil || t != "application/x-www-form-urlencoded" {
		return p, false
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || len(form) != 1 || len(form["payload"]) != 1 {
		return p, false
	}
	raw := []byte(strings.TrimLeft(form["payload"][0], " \t\r\n"))
	ok = bytes.HasPrefix(raw, []byte("{")) && jsonx.DecodeKnown(raw, jsonx.JSONLimits{Bytes: maxSlackBody}, &p) == nil
	return p, ok
}

// parseClick returns the decision in a payload. It is false if there is none, as for a click on a link.
func (p slackPayload) parseClick() (click, bool) {
	if p.Type != "block_actions" || len(p.Actions) != 1 || p.Actions[0].Type != "button" {
		return click{}, false
	}
	c := click{member: p.User.ID, team: cmp.Or(p.User.Team, p.Team.ID), answer: p.ResponseURL,
		note: p.State.Values[blockNote][actionNote].Value}
	switch p.Actions[0].ID {
	case actionApprove:
		c.action = approval.Approve
	case actionDeny:
		c.action = approval.Deny
	default:
		return click{}, false
	}
	err := jsonx.DecodeStrict([]byte(p.Actions[0].Value), &c.shown)
	return c, err == nil && c.shown.V == 1 && c.shown.Approval != "" && c.shown.Digest != "" && c.team != "" &&
		c.member != ""
}

// The answers to a person who clicked, beside people.RefusalText. They hold nothing of a request but who decided it.
const (
	textStranger = "Nothing was decided. Countersign does not know you. Ask whoever runs it to put your Slack " +
		"member id into its directory of people."
	textUncertain = "It is not certain whether this was recorded. Click again: it is recorded once, however often you do."
)

// ephemeral is an answer that only the person who clicked sees.
type ephemeral struct {
	ResponseType    string       `json:"response_type"`
	ReplaceOriginal bool         `json:"replace_original"`
	Text            string       `json:"text"`
	Blocks          []slackBlock `json:"blocks"`
}

// errSlackAnswer is all that is said of an answer that was not delivered.
var errSlackAnswer = errors.New("the answer could not be delivered")

// postAnswer posts the result of a click to the address that Slack sent, if it is an address of Slack.
func (in *SlackInteractions) postAnswer(ctx context.Context, address, text string) error {
	body, err := json.Marshal(ephemeral{
		ResponseType: "ephemeral", Text: "Countersign", Blocks: []slackBlock{sectionBlock(text)},
	})
	want, err1 := url.Parse(cmp.Or(in.Hooks, "https://hooks.slack.com"))
	u, err2 := url.Parse(address)
	if cmp.Or(err, err1, err2) != nil || u.Scheme != want.Scheme || u.Host != want.Host || u.User != nil ||
		u.Opaque != "" || u.Fragment != "" {
		return errSlackAnswer
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return errSlackAnswer
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("User-Agent", "countersign")
	resp, err := newSlackClient(in.HTTP, answerTimeout).Do(r)
	if err != nil {
		return errSlackAnswer
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errSlackAnswer
	}
	return nil
}
