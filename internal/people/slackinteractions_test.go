package people_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/standins"
)

const secret = "8f742231b10e8888abcd99yyyzzz85a5"

// office is a workspace with one message about one request, the interactions behind it, and their log.
type office struct {
	t     *testing.T
	slack *standins.Slack
	url   string
	ref   string
	desk  *fakeDesk
	in    *people.SlackInteractions
	log   *bytes.Buffer
}

func newOffice(t *testing.T) *office {
	t.Helper()
	s, c, at := newWorkspace(t)
	m := newMessage(ana, "broken chair")
	ref, err := c.Send(t.Context(), m)
	require.NoError(t, err)
	o := &office{t: t, slack: s, url: at, ref: ref, desk: &fakeDesk{now: m.Approval}, log: &bytes.Buffer{}}
	o.in = &people.SlackInteractions{
		Secrets: []string{secret}, Directory: fakeDirectory{}, Decide: o.desk.Decide, Clock: clock.System(), Hooks: at, Log: observe.NewLogger(o.log),
	}
	return o
}

// click clicks, signed as it should be, and gives the status of the answer.
func (o *office) click(member, action, note string) int {
	return postSigned(o.in, o.body(member, action, note))
}

func (o *office) body(member, action, note string) []byte {
	o.t.Helper()
	body, err := o.slack.Request(standins.SlackClick{Member: member, Ref: o.ref, Action: action, Note: note, Answer: o.url + "/actions/T0001/1/x"})
	require.NoError(o.t, err)
	return body
}

// A click decides as the person whom the directory has for who Slack says clicked, and they are told.
func TestC1Click(t *testing.T) {
	for action, c := range map[string]struct {
		want approval.Action
		told string
	}{
		"approve": {approval.Approve, "Your approval is recorded. Approved by user:ana at 2026-11-20 10:00:00 UTC."},
		"deny":    {approval.Deny, "Your denial is recorded. Denied by user:ana at 2026-11-20 10:00:00 UTC."},
	} {
		o := newOffice(t)
		require.Equal(t, http.StatusOK, o.click(ana.Slack, action, "seen <it> & checked"))
		require.Len(t, o.desk.got, 1)
		r := o.desk.got[0]
		require.Equal(t, approval.DecisionInput{
			Tenant: "acme", ID: "aabcdefghijklmnopqrstuvwxy", Action: c.want, Note: "seen <it> & checked", Via: agent.ViaSlack, Digest: digest, By: r.By,
		}, r)
		require.Equal(t, ana.ID, r.By.ID)
		require.Equal(t, ana.Groups, r.By.Groups)
		require.Equal(t, c.told, lastAnswer(t, o.slack))

		require.Equal(t, http.StatusOK, o.click(ana.Slack, action, ""), "the same click again")
		require.Equal(t, c.told, lastAnswer(t, o.slack))
		require.Len(t, o.desk.now.Decisions, 1)
	}
}

// Nothing but a signature of the raw body by one of our secrets, within five minutes, is read.
func TestC1Signature(t *testing.T) {
	o := newOffice(t)
	now := time.Now()
	body := o.body(ana.Slack, "approve", "")
	good := standins.SlackHeaders(secret, now, body)
	with := func(name, value string) map[string]string {
		h := map[string]string{}
		for k, v := range good {
			h[k] = v
		}
		h[name] = value
		return h
	}
	for name, c := range map[string]struct {
		headers map[string]string
		body    []byte
	}{
		"none":                 {map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, body},
		"another secret":       {standins.SlackHeaders(secret+"x", now, body), body},
		"no secret":            {standins.SlackHeaders("", now, body), body},
		"another body":         {good, append([]byte("a=b&"), body...)},
		"no body":              {good, nil},
		"reordered":            {good, []byte(strings.ReplaceAll(string(body), "+", "%20"))},
		"too old":              {standins.SlackHeaders(secret, now.Add(-302*time.Second), body), body},
		"of the future":        {standins.SlackHeaders(secret, now.Add(302*time.Second), body), body},
		"another time":         {with("X-Slack-Request-Timestamp", strconv.FormatInt(now.Unix()-1, 10)), body},
		"no time":              {with("X-Slack-Request-Timestamp", ""), body},
		"a time with a sign":   {with("X-Slack-Request-Timestamp", "+"+strconv.FormatInt(now.Unix(), 10)), body},
		"a time of many years": {with("X-Slack-Request-Timestamp", "99999999999999999999"), body},
		"cut":                  {with("X-Slack-Signature", good["X-Slack-Signature"][:60]), body},
		"capitals":             {with("X-Slack-Signature", strings.ToUpper(good["X-Slack-Signature"])), body},
		"another version":      {with("X-Slack-Signature", "v1="+good["X-Slack-Signature"][3:]), body},
		"empty":                {with("X-Slack-Signature", ""), body},
		"only v0=":             {with("X-Slack-Signature", "v0="), body},
	} {
		require.Equal(t, http.StatusUnauthorized, postBody(o.in, c.headers, c.body), name)
		require.Empty(t, o.desk.got, name)
		require.Empty(t, o.slack.Answers(), name)
	}
	unsigned := *o.in
	unsigned.Secrets = nil
	require.Equal(t, http.StatusUnauthorized, postBody(&unsigned, good, body), "without a secret nothing is taken")
	unsigned.Secrets = []string{""}
	require.Equal(t, http.StatusUnauthorized, postBody(&unsigned, standins.SlackHeaders("", now, body), body))

	for i := range good["X-Slack-Signature"] {
		sig := []byte(good["X-Slack-Signature"])
		sig[i] ^= 1
		require.Equal(t, http.StatusUnauthorized, postBody(o.in, with("X-Slack-Signature", string(sig)), body), "byte %d", i)
	}
	require.Empty(t, o.desk.got)
	for _, off := range []time.Duration{-299 * time.Second, 0, 299 * time.Second} {
		require.Equal(t, http.StatusOK, postBody(o.in, standins.SlackHeaders(secret, time.Now().Add(off), body), body), off)
	}
	require.Len(t, o.desk.got, 3)
}

// The example of Slack's documentation.
func TestC1SignatureOfTheDocumentation(t *testing.T) {
	body := "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	require.Equal(t, "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503", people.SignSlack("8f742231b10e8888abcd99yyyzzz85a5", "1531420618", []byte(body)))
}

// A secret can be replaced while messages are about: both sign until the old one is taken away.
func TestC1SecretRotation(t *testing.T) {
	o := newOffice(t)
	o.in.Secrets = people.ParseSlackSecrets(" new-secret , " + secret + ",, ")
	require.Len(t, o.in.Secrets, 2)
	body := o.body(ana.Slack, "approve", "")
	for _, s := range []string{"new-secret", secret} {
		require.Equal(t, http.StatusOK, postBody(o.in, standins.SlackHeaders(s, time.Now(), body), body))
	}
	o.in.Secrets = people.ParseSlackSecrets("new-secret")
	require.Equal(t, http.StatusUnauthorized, postSigned(o.in, body))
	require.Empty(t, people.ParseSlackSecrets(" , "))
}

// What TestBadPayloads does not have: what Slack does not send is refused, and what it sends and we do not ask for is
// taken without a word.
func TestC1Payloads(t *testing.T) {
	o := newOffice(t)
	good, err := url.ParseQuery(string(o.body(ana.Slack, "approve", "")))
	require.NoError(t, err)
	p := good.Get("payload")
	form := func(payload string) string { return url.Values{"payload": {payload}}.Encode() }
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"no form":           {p, 400},
		"no payload":        {"a=b", 400},
		"two payloads":      {form(p) + "&" + form(p), 400},
		"more than it":      {form(p) + "&x=y", 400},
		"two values":        {form(p + p), 400},
		"a bad escape":      {"payload=%zz", 400},
		"a dialog":          {form(strings.Replace(p, `"block_actions"`, `"view_submission"`, 1)), 200},
		"a shortcut":        {form(`{"type":"shortcut"}`), 200},
		"no user":           {form(strings.ReplaceAll(p, ana.Slack, "")), 200},
		"a link":            {form(strings.ReplaceAll(p, `"action_id":"approve"`, `"action_id":"open"`)), 200},
		"a foreign value":   {form(strings.ReplaceAll(p, `"value":"{`, `"value":"x{`)), 200},
		"another version":   {form(strings.ReplaceAll(p, `{\"v\":1`, `{\"v\":2`)), 200},
		"more in the value": {form(strings.ReplaceAll(p, `{\"v\":1`, `{\"x\":1,\"v\":1`)), 200},
	} {
		require.Equal(t, c.want, postSigned(o.in, []byte(c.body)), name)
		require.Empty(t, o.desk.got, name)
	}
	h := standins.SlackHeaders(secret, time.Now(), []byte(form(p)))
	h["Content-Type"] = "application/json"
	require.Equal(t, 400, postBody(o.in, h, []byte(form(p))))
	large := bytes.Repeat([]byte("x"), 1<<20+1)
	require.Equal(t, 413, postSigned(o.in, large))
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, people.SlackPath, strings.NewReader(form(p)))
		for k, v := range standins.SlackHeaders(secret, time.Now(), []byte(form(p))) {
			r.Header.Set(k, v)
		}
		o.in.ServeHTTP(w, r)
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
	}
	require.Empty(t, o.desk.got)
	require.Equal(t, 200, postSigned(o.in, []byte(form(p))), "the body they were made of decides")
	require.Len(t, o.desk.got, 1)
}

// Who is not in the directory decides nothing and is told so; nor does who is in it and is no approver, or a stranger
// of another workspace.
func TestC1WhoClicks(t *testing.T) {
	o := newOffice(t)
	require.Equal(t, 200, o.click("U0EVE", "approve", ""))
	require.Contains(t, lastAnswer(t, o.slack), "Countersign does not know you")
	require.Empty(t, o.desk.got)

	body := []byte(strings.ReplaceAll(string(o.body(ana.Slack, "approve", "")), "%22team_id%22%3A%22T0001%22", "%22team_id%22%3A%22T0666%22"))
	require.Contains(t, string(body), "T0666")
	require.Equal(t, 200, postSigned(o.in, body))
	require.Contains(t, lastAnswer(t, o.slack), "does not know you")
	require.Empty(t, o.desk.got, "the same member id in another workspace is another person")

	require.Equal(t, 200, o.click(ben.Slack, "approve", ""))
	require.Contains(t, lastAnswer(t, o.slack), "not among those who may decide")
	require.Equal(t, approval.Pending, o.desk.now.Status)
}

// A button decides about what its message showed, and about nothing else.
func TestC1OldButton(t *testing.T) {
	o := newOffice(t)
	o.desk.now.Digest = strings.Repeat("2", 64)
	require.Equal(t, 200, o.click(ana.Slack, "approve", ""))
	require.Contains(t, lastAnswer(t, o.slack), "changed the arguments meanwhile")
	require.Equal(t, approval.Pending, o.desk.now.Status)
}

// Whatever becomes of a click, who clicked is told, and neither they nor the log are told more than that.
func TestC1Errors(t *testing.T) {
	decided, _ := newRequest("x")
	decided.Status = approval.Denied
	decided.Decisions = []approval.Decision{{By: "user:ben", Action: approval.Deny, At: asked, Note: "s3cret note"}}
	for want, err := range map[string]error{
		"decided already. Denied by user:ben at 2026-11-20 10:00:00 UTC.": fmt.Errorf("x: %w",
			&approval.DecidedError{Approval: decided}),
		"has expired":                     fmt.Errorf("x: %w", approval.ErrExpired),
		"The run has ended":               approval.ErrFinished,
		"policy that applies has changed": errors.Join(&approval.PolicyError{Approval: decided}, errors.New("s3cret")),
		"approve this by page, API.": &approval.ChannelError{Allowed: agent.Channels{
			Via: []approval.Via{"page", "api"},
		}},
		"cannot be answered like that":          approval.ErrKind,
		"no such request":                       approval.ErrNotFound,
		"not certain whether this was recorded": errors.New("s3cret: throttled"),
	} {
		o := newOffice(t)
		o.desk.fail = err
		require.Equal(t, 200, o.click(ana.Slack, "approve", ""))
		require.Contains(t, lastAnswer(t, o.slack), want)
		require.NotContains(t, lastAnswer(t, o.slack)+o.log.String(), "s3cret")
		require.Equal(t, strings.HasPrefix(want, "not certain"), o.log.Len() > 0)
	}
	o := newOffice(t)
	o.in.Directory = fakeDirectory{fail: errors.New("s3cret")}
	require.Equal(t, 200, o.click(ana.Slack, "approve", ""))
	require.Contains(t, lastAnswer(t, o.slack), "not certain")
	require.NotContains(t, o.log.String(), "s3cret")
	require.Empty(t, o.desk.got)

	o.in.Directory = fakeDirectory{}
	o.in.Decide = func(context.Context, approval.DecisionInput) (approval.Approval, error) { return o.desk.now, nil }
	require.Equal(t, 200, o.click(ana.Slack, "approve", ""))
	require.Equal(t, "Your approval is recorded. More people have to approve before it is carried out.",
		lastAnswer(t, o.slack))
}

// The messages about a request are updated with every click that finds it decided, and a slow update keeps nobody
// waiting.
func TestC1Updated(t *testing.T) {
	o := newOffice(t)
	updated := make(chan approval.Approval, 4)
	o.in.UpdateMessages = func(ctx context.Context, a approval.Approval) {
		if _, ok := ctx.Deadline(); ok || ctx.Err() != nil {
			t.Error("it is not the answer's time that it has")
		}
		updated <- a
	}
	o.click(ben.Slack, "approve", "")
	require.Empty(t, updated, "nothing was decided")
	o.click(ana.Slack, "deny", "")
	require.Equal(t, approval.Denied, (<-updated).Status)
	o.click(ana.Slack, "approve", "")
	require.Equal(t, approval.Denied, (<-updated).Status, "the message was out of date: somebody clicked")

	void := o.desk.now // who clicks first after the policy has changed has every message say that it is void
	void.Status = approval.Voided
	o.desk.fail = &approval.PolicyError{Approval: void}
	o.click(ana.Slack, "approve", "")
	require.Equal(t, approval.Voided, (<-updated).Status)

	body := clickBody(t, "approve", "")
	synctest.Test(t, func(t *testing.T) {
		a, _ := newRequest("x")
		var finished atomic.Bool
		in := &people.SlackInteractions{
			Secrets: []string{secret}, Directory: fakeDirectory{}, Decide: (&fakeDesk{now: a}).Decide, Clock: clock.System(), Log: observe.NewLogger(&bytes.Buffer{}),
			UpdateMessages: func(context.Context, approval.Approval) { time.Sleep(10 * time.Second); finished.Store(true) },
		}
		began := time.Now()
		require.Equal(t, 200, postSigned(in, body))
		require.Less(t, time.Since(began), 3*time.Second)
		require.False(t, finished.Load())
		time.Sleep(time.Minute)
		require.True(t, finished.Load())
	})
}

// Answers go to Slack's host alone, wherever the payload says.
func TestC1AnswersGoToSlackAlone(t *testing.T) {
	o := newOffice(t)
	var asked []string
	o.in.Hooks = ""
	o.in.HTTP = &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.String())
		w := httptest.NewRecorder()
		w.Header().Set("Location", "http://169.254.169.254/latest")
		w.WriteHeader(http.StatusFound)
		return w.Result(), nil
	})}
	post := func(address string) {
		body, err := o.slack.Request(standins.SlackClick{Member: ana.Slack, Ref: o.ref, Action: "approve", Answer: address})
		require.NoError(t, err)
		require.Equal(t, 200, postSigned(o.in, body))
	}
	for _, address := range []string{
		"", "http://hooks.slack.com/actions/x", "https://hooks.slack.com.evil.example/x", "https://evil.example/hooks.slack.com", "https://hooks.slack.com:8443/x",
		"https://hooks.slack.com@evil.example/x", "https://u:p@hooks.slack.com/x", "https://169.254.169.254/latest", "https://localhost/", "//hooks.slack.com/x",
		"https:hooks.slack.com/x", "https://hooks.slack.com\\@evil.example/", "https://HOOKS.slack.com./x", "file:///etc/passwd", "https://hooks.slack.com/x#y",
	} {
		post(address)
		require.Empty(t, asked, address)
	}
	const good = "https://hooks.slack.com/actions/T0001/1/x"
	post(good)
	require.Equal(t, []string{good}, asked, "and no redirect is followed")
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Slack waits for three seconds, and so does nobody longer, however slow the desk and Slack's own hooks are.
func TestC1AnswersWithinThreeSeconds(t *testing.T) {
	body := clickBody(t, "approve", "https://hooks.slack.com/x")
	for name, slowHooks := range map[string]bool{"a slow desk": false, "slow hooks as well": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said string
				in := &people.SlackInteractions{
					Secrets: []string{secret}, Directory: fakeDirectory{}, Clock: clock.System(), Log: observe.NewLogger(&bytes.Buffer{}),
					Decide: func(ctx context.Context, _ approval.DecisionInput) (approval.Approval, error) {
						<-ctx.Done()
						return approval.Approval{}, ctx.Err()
					},
					HTTP: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
						if slowHooks {
							<-r.Context().Done()
							return nil, r.Context().Err()
						}
						var b bytes.Buffer
						_, _ = b.ReadFrom(r.Body)
						said = b.String()
						return httptest.NewRecorder().Result(), nil
					})},
				}
				began := time.Now()
				require.Equal(t, 200, postSigned(in, body))
				require.Less(t, time.Since(began), 3*time.Second)
				require.Equal(t, !slowHooks, strings.Contains(said, "Click again"))
			})
		})
	}
}

// Whatever is sent, nothing panics, and nothing is decided that is not signed.
func FuzzInteractions(f *testing.F) {
	for _, action := range []string{"approve", "deny", "open"} {
		f.Add(clickBody(f, action, ""), "v0=00", "0")
	}
	f.Add([]byte("payload=null"), "", "")
	f.Add([]byte(`payload={"type":"block_actions","actions":[{"type":"button","action_id":"deny","value":"null"}]}`), "v0=", "1")
	f.Fuzz(func(t *testing.T, body []byte, signature, at string) {
		a, _ := newRequest("x")
		d := &fakeDesk{now: a}
		in := &people.SlackInteractions{Secrets: []string{secret}, Directory: fakeDirectory{}, Decide: d.Decide, Clock: clock.System(), Log: observe.NewLogger(&bytes.Buffer{})}
		h := map[string]string{"Content-Type": "application/x-www-form-urlencoded", "X-Slack-Signature": signature, "X-Slack-Request-Timestamp": at}
		if code := postBody(in, h, body); code != http.StatusUnauthorized || len(d.got) > 0 {
			t.Fatalf("an unsigned body was answered %d, decided %d", code, len(d.got))
		}
		if code := postSigned(in, body); code != http.StatusOK && code != http.StatusBadRequest {
			t.Fatalf("a signed body was answered %d", code)
		}
		for _, r := range d.got {
			if r.Tenant != "acme" || r.By.ID != ana.ID && r.By.ID != ben.ID || r.Action != approval.Approve && r.Action != approval.Deny || r.Via != agent.ViaSlack {
				t.Fatalf("decided %+v", r)
			}
		}
	})
}

var (
	_ people.Channel   = (*people.SlackChannel)(nil)
	_ http.Handler     = (*people.SlackInteractions)(nil)
	_ people.Directory = fakeDirectory{}
)
