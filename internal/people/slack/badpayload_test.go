package slack_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/slackfake"
)

// payloadKeys is the table of what Slack says of a click, as far as we read it. Slack adds keys, so that unknown ones are nobody's business; what is
// no click of ours is taken without a word and decides nothing.
var payloadKeys = map[string]badinput.Field{
	"/type": {Takes: "s"}, "/user": {Takes: "o"}, "/user/id": {Takes: "s"}, "/user/team_id": {Takes: "s"}, "/team": {Takes: "o"}, "/team/id": {Takes: "s"},
	"/response_url": {Takes: "s"}, "/actions": {Takes: "a"}, "/actions/0/action_id": {Takes: "s"}, "/actions/0/type": {Takes: "s"},
	"/actions/0/value": {Takes: "s", Bad: map[string]string{`""`: "200", `"{}"`: "200", `"[]"`: "200", `"{\"v\":1}"`: "200", `"null"`: "200", `"` + badinput.Canary + `"`: "200"}},
	"/state":           {Takes: "o"}, "/state/values": {Takes: "o"},
}

// Every key of a signed payload, wrong in every way: 400 for what cannot be read, 200 for what is no click; nothing is decided, and nothing is logged.
func TestBadPayloads(t *testing.T) {
	o := newOffice(t)
	form, err := url.ParseQuery(string(o.body(ana.Slack, "approve", "")))
	require.NoError(t, err)
	good := form.Get("payload")
	count := 0
	e := &badinput.Edge{
		Code: "400", State: func() string { return badinput.State(o.desk.got, o.slack.Messages(), o.slack.Answers()) }, Observed: o.log.String,
		Send: func(c badinput.Case) badinput.Answer {
			body := []byte(url.Values{"payload": {string(c.Body)}}.Encode())
			return badinput.Answer{Code: fmt.Sprint(postBody(o.in, slackfake.Headers(secret, time.Now(), body), body))}
		},
	}
	for _, c := range badinput.Cases(good, payloadKeys) {
		if strings.HasSuffix(c.Key, "/zzz") {
			continue
		}
		c.KeyNotNamed = true
		e.RequireRefused(t, c)
		count++
	}
	for _, c := range badinput.WholeCases(good) {
		if c.What == "the text: another protocol" {
			c.Code = fmt.Sprint(http.StatusOK)
		}
		e.RequireRefused(t, c)
		count++
	}
	require.Empty(t, o.desk.got)
	t.Logf("%d payloads", count)
}
