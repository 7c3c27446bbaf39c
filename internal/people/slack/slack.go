// Package slack sends requests as direct messages of a Slack app, and takes decisions from its buttons.
//
// A message shows all of a request, or says that it has no room for it and has no buttons (B2). Foreign text is only in
// plain_text and in text elements of rich_text, never in mrkdwn, and nothing is unfurled (C1). A button's value names
// the request and the digest of the action that the message showed. Slack's signed payload says who clicked; the
// directory maps that user to a person.
package slack

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
	"github.com/countersign/countersign/internal/people"
)

// Name is the channel's.
const Name = "slack"

// Base is where Slack's Web API is.
const Base = "https://slack.com/api/"

// Limits of a request to Slack. maxPause bounds the delay that Slack may ask for; maxAnswer is in bytes.
const (
	attemptTimeout = 5 * time.Second
	maxAttempts    = 3
	retryDelay     = 200 * time.Millisecond
	maxPause       = 3 * time.Second
	maxAnswer      = 256 << 10
)

// Options are what a Channel needs. All but Base and HTTP are required.
type Options struct {
	Token func(ctx context.Context) (string, error) // of the app's bot, xoxb-…, with the scope chat:write
	Base  string                                    // "" = Base
	HTTP  *http.Client
	Clock clock.Clock
}

// Channel sends direct messages of one app in one workspace. Make one with New. Safe for concurrent use.
type Channel struct{ o Options }

// Token is one that does not change while the process runs.
func Token(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// New makes a channel. Its client follows no redirects, so that only Slack gets the token.
func New(o Options) *Channel {
	o.Base = strings.TrimSuffix(cmp.Or(o.Base, Base), "/") + "/"
	o.HTTP = newHTTPClient(o.HTTP, attemptTimeout)
	return &Channel{o}
}

// newHTTPClient returns h, or a default client, with a timeout and without redirects.
func newHTTPClient(h *http.Client, timeout time.Duration) *http.Client {
	c := *cmp.Or(h, &http.Client{})
	c.Timeout = timeout
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// RefusedError is Slack's error code for a message. It holds nothing else of Slack's response, which may repeat the
// message.
type RefusedError struct {
	Method string
	Code   string        // as channel_not_found; "unknown" if Slack sent none
	After  time.Duration // wait before a retry; 0 = Slack does not say
}

func (e *RefusedError) Error() string { return "slack " + e.Method + ": refused: " + e.Code }

// Permanent reports whether the same message will be refused again.
func (e *RefusedError) Permanent() bool {
	switch e.Code {
	case "ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout",
		"unknown":
		return false
	}
	return !strings.HasPrefix(e.Code, "status_5")
}

// Name implements people.Channel.
func (*Channel) Name() string { return Name }

// Reaches implements people.Channel.
func (*Channel) Reaches(p people.Person) bool { return people.ValidSlack(p.Slack) }

// ValidToken reports whether a token is a bot token without characters that a header cannot hold.
func ValidToken(token string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	rest, ok := strings.CutPrefix(token, "xoxb-")
	return ok && rest != "" && len(rest) <= 400 && strings.Trim(rest, letters) == ""
}

// message is the body of chat.postMessage and chat.update.
type message struct {
	Channel     string  `json:"channel"`
	TS          string  `json:"ts,omitempty"` // chat.update's
	Text        string  `json:"text"`         // of notifications; quotes nothing
	Blocks      []block `json:"blocks"`
	UnfurlLinks bool    `json:"unfurl_links"`
	UnfurlMedia bool    `json:"unfurl_media"`
	LinkNames   bool    `json:"link_names"`
	Parse       string  `json:"parse"`
}

// Send implements people.Channel. The ref is the conversation and the message in it.
func (c *Channel) Send(ctx context.Context, m people.Message) (string, error) {
	if !c.Reaches(m.To) {
		return "", fmt.Errorf("send request %s: the person has no member's id of Slack", m.Approval.ID)
	}
	text, blocks := render(m)
	sent, err := c.call(ctx, "chat.postMessage", message{Channel: m.To.Slack, Text: text, Blocks: blocks, Parse: "none"})
	switch {
	case err != nil:
		return "", fmt.Errorf("send request %s: %w", m.Approval.ID, err)
	case sent.Channel == "" || sent.TS == "":
		err = &RefusedError{Method: "chat.postMessage", Code: "unknown"}
		return "", fmt.Errorf("send request %s: %w", m.Approval.ID, err)
	}
	return sent.Channel + "/" + sent.TS, nil
}

// Update implements people.Channel.
func (c *Channel) Update(ctx context.Context, ref string, m people.Message) error {
	conversation, ts, ok := strings.Cut(ref, "/")
	if !ok {
		return fmt.Errorf("update request %s: %q is no message of Slack", m.Approval.ID, ref)
	}
	text, blocks := render(m)
	shown := message{Channel: conversation, TS: ts, Text: text, Blocks: blocks, Parse: "none"}
	if _, err := c.call(ctx, "chat.update", shown); err != nil {
		return fmt.Errorf("update request %s: %w", m.Approval.ID, err)
	}
	return nil
}

type response struct {
	OK      bool   `json:"ok"`
	Error   string `json:"error"`
	Channel string `json:"channel"`
	TS      string `json:"ts"`
}

// call sends a request until Slack answers it, refuses it for good, or maxAttempts is reached.
func (c *Channel) call(ctx context.Context, method string, m message) (response, error) {
	body, err := jsonx.MarshalVerbatim(m)
	if err != nil {
		return response{}, err
	}
	var got response
	ended := clock.Retry(ctx, c.o.Clock, func(n int) (time.Duration, bool) {
		got, err = c.attempt(ctx, method, body)
		wait, again := retryDelay*time.Duration(n), err != nil && n < maxAttempts && ctx.Err() == nil
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			wait, again = max(wait, refused.After), again && !refused.Permanent() && refused.After <= maxPause
		}
		return wait, again
	})
	return got, cmp.Or(err, ended)
}

// attempt sends one request. Its errors hold neither the token nor the message.
func (c *Channel) attempt(ctx context.Context, method string, body []byte) (response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.o.Base+method, bytes.NewReader(body))
	if err != nil {
		return response{}, errors.New("slack " + method + ": the address of its API is none")
	}
	token, err := c.o.Token(ctx)
	if err != nil {
		return response{}, fmt.Errorf("slack %s: %w", method, err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("User-Agent", "countersign")
	resp, err := c.o.HTTP.Do(r)
	if err != nil {
		return response{}, fmt.Errorf("slack %s: %w", method, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return response{}, fmt.Errorf("slack %s: read its answer: %w", method, err)
	}
	var got response
	err = json.Unmarshal(text, &got)
	refused := &RefusedError{Method: method, Code: "unknown"}
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		refused.Code, refused.After = "ratelimited", retryDelay
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
	return response{}, refused
}
