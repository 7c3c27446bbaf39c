package lambdafn

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/awsfake"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/slack"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/slackfake"
	"github.com/countersign/countersign/internal/store"
)

const (
	botToken      = "xoxb-1-s3cret"
	signingSecret = "0123456789abcdef0123456789abcdef"
)

// The channels of an environment send where it says: signed by the function's role, with the bot's token.
func TestC1C2ChannelsOfAnEnvironment(t *testing.T) {
	workspace := &slackfake.Server{Token: botToken, Team: "T1", Members: []string{"U1"}}
	mail := &awsfake.Mail{Credentials: aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET"}, Region: "eu-central-1", Identities: []string{"approvals@example.com"}}
	inSlack, inSES := httptest.NewServer(workspace), httptest.NewServer(mail)
	t.Cleanup(inSlack.Close)
	t.Cleanup(inSES.Close)

	cfg := testAWS.Copy()
	cfg.BaseEndpoint = &inSES.URL
	env := environment{}.with(envSlackToken, botToken, envSlackURL, inSlack.URL+"/", envMailFrom, "approvals@example.com").get
	all, err := Channels(cfg, env, clock.System())
	require.NoError(t, err)
	require.Len(t, all, 2)
	m := notify.Message{
		Occasion: notify.Asked, Approval: approval.Approval{ID: "a1", Status: approval.Pending, ExpiresAt: time.Unix(2e9, 0)},
		To: person.Person{ID: "user:ana", Email: "ana@example.com", Slack: "U1"},
	}
	for _, c := range all {
		require.True(t, c.Reaches(m.To))
		_, err := c.Send(t.Context(), m)
		require.NoError(t, err, c.Name())
	}
	require.Len(t, workspace.Messages(), 1)
	require.Len(t, mail.Sent(), 1)

	none, err := Channels(testAWS, environment{}.with().get, clock.System())
	require.NoError(t, err)
	require.Empty(t, none)
}

// Bad configuration ends a function at cold start: the variable is named, a secret is not.
func TestC1C2ChannelsNameWhatIsWrong(t *testing.T) {
	for _, c := range [][3]string{
		{envSlackToken, "xoxp-s3cret", "xoxb"}, {envSlackToken, "xoxb-s3cret\n", "xoxb"}, {envSlackToken, "xoxb-", "xoxb"},
		{envMailFrom, "nobody", "want an address"}, {envMailFrom, "a@example.com, b@example.com", "want an address"},
	} {
		_, err := Channels(testAWS, environment{}.with(c[0], c[1]).get, clock.System())
		require.ErrorContains(t, err, c[0])
		require.ErrorContains(t, err, c[2])
		require.NotContains(t, err.Error(), "s3cret")
	}
	for _, bad := range []string{"hooks.slack.com", "https://u:s3cret@x", "https://x/path", "ftp://x", "https://x?y=1", "http://"} {
		_, err := Channels(testAWS, environment{}.with(envSlackToken, botToken, envSlackURL, bad).get, clock.System())
		require.ErrorContains(t, err, envSlackURL, bad)
		_, err = SlackApp(environment{}.with(envSlackSecret, signingSecret, envSlackURL, bad).get)
		require.ErrorContains(t, err, envSlackURL, bad)
	}
	_, err := SlackApp(environment{}.with(envSlackSecret, signingSecret+",s3cret").get)
	require.ErrorContains(t, err, envSlackSecret)
	require.NotContains(t, err.Error(), "s3cret")
	app, err := SlackApp(environment{}.with(envSlackSecret, " , ").get)
	require.NoError(t, err)
	require.Nil(t, app, "without a secret nothing is taken")
}

// oneMember is a directory of one person.
type oneMember struct{ person.Directory }

func (oneMember) Slack(_ context.Context, team, member string) (string, person.Person, bool, error) {
	return "acme", person.Person{ID: "user:ana"}, team == "T1" && member == "U1", nil
}

// A click goes through the deployment's desk: of a request that is not there, who clicked is told so.
func TestC1InteractionsOfAnEnvironment(t *testing.T) {
	workspace := &slackfake.Server{Token: botToken, Team: "T1", Members: []string{"U1"}}
	srv := httptest.NewServer(workspace)
	t.Cleanup(srv.Close)
	all, err := Channels(testAWS, environment{}.with(envSlackToken, botToken, envSlackURL, srv.URL).get, clock.System())
	require.NoError(t, err)
	ref, err := all[0].Send(t.Context(), notify.Message{
		Occasion: notify.Asked, To: person.Person{ID: "user:ana", Slack: "U1"},
		Approval: approval.Approval{ID: "a1", Kind: approval.KindCall, Digest: "d1", Status: approval.Pending, ExpiresAt: time.Unix(2e9, 0)},
	})
	require.NoError(t, err)
	var log bytes.Buffer
	app, err := SlackApp(environment{}.with(envSlackSecret, "another-secret-of-the-app,"+signingSecret, envSlackURL, srv.URL).get)
	require.NoError(t, err)
	d := &Deployment{
		Ports: runtime.Ports{Table: store.NewMemory(), Clock: clock.System()}, People: oneMember{}, Slack: app, Log: observe.NewLogger(&log),
	}
	body, err := workspace.Request(slackfake.Click{Member: "U1", Ref: ref, Action: "approve", Answer: srv.URL + "/actions/1"})
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, slack.Path, bytes.NewReader(body))
	for name, value := range slackfake.Headers(signingSecret, time.Now(), body) {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	d.Compose().PagesHandler().ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	require.Len(t, workspace.Answers(), 1)
	require.Contains(t, string(workspace.Answers()[0]), "there is no such request")
	require.Empty(t, log.String())
}
