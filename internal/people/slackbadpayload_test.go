package people_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/badinput"
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
	e := &badinput.Edge{
		Code: "400", State: func() string { return badinput.State(o.desk.got, o.slack.Messages(), o.slack.Answers()) }, Observed: o.log.String,
		Send: func(c badinput.Case) badinput.Answer {
			return badinput.Answer{Code: fmt.Sprint(postSigned(o.in, []byte(url.Values{"payload": {string(c.Body)}}.Encode())))}
		},
	}
	for _, c := range append(badinput.Cases(good, payloadKeys), badinput.WholeCases(good)...) {
		if strings.HasSuffix(c.Key, "/zzz") {
			continue
		}
		if c.KeyNotNamed = true; c.What == "the text: another protocol" {
			c.Code = fmt.Sprint(http.StatusOK)
		}
		e.RequireRefused(t, c)
	}
	require.Empty(t, o.desk.got)
}
