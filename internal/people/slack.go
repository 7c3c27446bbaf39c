package people

// This file and those named slack… send requests as direct messages of a Slack app, and take decisions from its
// buttons.
//
// A message shows all of a request, or says that it has no room for it and has no buttons (B2). Foreign text is only in
// plain_text and in text elements of rich_text, never in mrkdwn, and nothing is unfurled (C1). A button's value names
// the request and the digest of the action that the message showed. Slack's signed payload says who clicked; the
// directory maps that user to a person.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
)

// SlackBase is where Slack's Web API is.
const SlackBase = "https://slack.com/api/"

// Limits of a request to Slack. maxSlackPause bounds the delay that Slack may ask for; maxSlackAnswer is in bytes.
const (
	slackTimeout     = 5 * time.Second
	maxSlackAttempts = 3
	slackRetryDelay  = 200 * time.Millisecond
	maxSlackPause    = 3 * time.Second
	maxSlackAnswer   = 256 << 10
)

// SlackOptions are what a SlackChannel needs. All but Base and HTTP are required.
type SlackOptions struct {
	Token func(ctx context.Context) (string, error) // of the app's bot, xoxb-…, with the scope chat:write
	Base  string                                    // "" = SlackBase
	HTTP  *http.Client
	Clock clock.Clock
}

// SlackChannel sends direct messages of one app in one workspace. Make one with NewSlackChannel. Safe for concurrent
// use.
type SlackChannel struct{ o SlackOptions }

// StaticSlackToken is one that does not change while the process runs.
func StaticSlackToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// NewSlackChannel makes a channel. Its client follows no redirects, so that only Slack gets the token.
func NewSlackChannel(o SlackOptions) *SlackChannel {
	o.Base = strings.TrimSuffix(cmp.Or(o.Base, SlackBase), "/") + "/"
	o.HTTP = newSlackClient(o.HTTP, slackTimeout)
	return &SlackChannel{o}
}

// newSlackClient returns h, or a default client, with a timeout and without redirects.
func newSlackClient(h *http.Client, timeout time.Duration) *http.Client {
	c := *cmp.Or(h, &http.Client{})
	c.Timeout = timeout
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// SlackError is Slack's error code for a message. It holds nothing else of Slack's response, which may repeat the
// message.
type SlackError struct {
	Method string
	Code   string        // as channel_not_found; "unknown" if Slack sent none
	After  time.Duration // wait before a retry; 0 = Slack does not say
}

func (e *SlackError) Error() string { return "slack " + e.Method + ": refused: " + e.Code }

// Permanent reports whether the same message will be refused again.
func (e *SlackError) Permanent() bool {
	switch e.Code {
	case "ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout",
		"unknown":
		return false
	}
	return !strings.HasPrefix(e.Code, "status_5")
}

// Name implements Channel.
func (*SlackChannel) Name() string { return Slack }

// Reaches implements Channel.
func (*SlackChannel) Reaches(p Person) bool { return ValidSlack(p.Slack) }

// ValidSlackToken reports whether a token is a bot token without characters that a header cannot hold.
func ValidSlackToken(token string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	rest, ok := strings.CutPrefix(token, "xoxb-")
	return ok && rest != "" && len(rest) <= 400 && strings.Trim(rest, letters) == ""
}

// slackMessage is the body of chat.postMessage and chat.update.
type slackMessage struct {
	Channel     string       `json:"channel"`
	TS          string       `json:"ts,omitempty"` // chat.update's
	Text        string       `json:"text"`         // of notifications; quotes nothing
	Blocks      []slackBlock `json:"blocks"`
	UnfurlLinks bool         `json:"unfurl_links"`
	UnfurlMedia bool         `json:"unfurl_media"`
	LinkNames   bool         `json:"link_names"`
	Parse       string       `json:"parse"`
}

// Send implements Channel. The ref is the conversation and the message in it.
func (c *SlackChannel) Send(ctx context.Context, m Message) (string, error) {
	if !c.Reaches(m.To) {
		return "", fmt.Errorf("send request %s: the person has no member's id of Slack", m.Approval.ID)
	}
	text, blocks := renderSlack(m)
	shown := slackMessage{Channel: m.To.Slack, Text: text, Blocks: blocks, Parse: "none"}
	sent, err := c.call(ctx, "chat.postMessage", shown)
	switch {
	case err != nil:
		return "", fmt.Errorf("send request %s: %w", m.Approval.ID, err)
	case sent.Channel == "" || sent.TS == "":
		err = &SlackError{Method: "chat.postMessage", Code: "unknown"}
		return "", fmt.Errorf("send request %s: %w", m.Approval.ID, err)
	}
	return sent.Channel + "/" + sent.TS, nil
}

// Update implements Channel.
func (c *SlackChannel) Update(ctx context.Context, ref string, m Message) error {
	conversation, ts, ok := strings.Cut(ref, "/")
	if !ok {
		return fmt.Errorf("update request %s: %q is no message of Slack", m.Approval.ID, ref)
	}
	text, blocks := renderSlack(m)
	shown := slackMessage{Channel: conversation, TS: ts, Text: text, Blocks: blocks, Parse: "none"}
	if _, err := c.call(ctx, "chat.update", shown); err != nil {
		return fmt.Errorf("update request %s: %w", m.Approval.ID, err)
	}
	return nil
}

type slackResponse struct {
	OK      bool   `json:"ok"`
	Error   string `json:"error"`
	Channel string `json:"channel"`
	TS      string `json:"ts"`
}

// call sends a request until Slack answers it, refuses it for good, or maxSlackAttempts is reached.
func (c *SlackChannel) call(ctx context.Context, method string, m slackMessage) (slackResponse, error) {
	body, err := jsonx.MarshalVerbatim(m)
	if err != nil {
		return slackResponse{}, err
	}
	var got slackResponse
	ended := clock.Retry(ctx, c.o.Clock, func(n int) (time.Duration, bool) {
		got, err = c.attempt(ctx, method, body)
		wait, again := slackRetryDelay*time.Duration(n), err != nil && n < maxSlackAttempts && ctx.Err() == nil
		if refused, ok := errors.AsType[*SlackError](err); ok {
			wait, again = max(wait, refused.After), again && !refused.Permanent() && refused.After <= maxSlackPause
		}
		return wait, again
	})
	return got, cmp.Or(err, ended)
}

// attempt sends one request. Its errors hold neither the token nor the message.
func (c *SlackChannel) attempt(ctx context.Context, method string, body []byte) (slackResponse, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.o.Base+method, bytes.NewReader(body))
	if err != nil {
		return slackResponse{}, errors.New("slack " + method + ": the address of its API is none")
	}
	token, err := c.o.Token(ctx)
	if err != nil {
		return slackResponse{}, fmt.Errorf("slack %s: %w", method, err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("User-Agent", "countersign")
	resp, err := c.o.HTTP.Do(r)
	if err != nil {
		return slackResponse{}, fmt.Errorf("slack %s: %w", method, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxSlackAnswer))
	if err != nil {
		return slackResponse{}, fmt.Errorf("slack %s: read its answer: %w", method, err)
	}
	var got slackResponse
	err = json.Unmarshal(text, &got)
	refused := &SlackError{Method: method, Code: "unknown"}
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		refused.Code, refused.After = "ratelimited", slackRetryDelay
		if n, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
			refused.After = time.Duration(n) * time.Second
		}
	case resp.StatusCode != http.StatusOK:
		refused.Code = "status_" + strconv.Itoa(resp.StatusCode)
	case err != nil:
	case got.OK:
		return got, nil
	case got.Error != "" && len(got.Error) <= 64 && strings.Trim(got.Error, "abcdefghijklmnopqrstuvwxyz0123456789_") == "":
		refused.Code = got.Error // it has the form of one of Slack's codes
	}
	return slackResponse{}, refused
}
