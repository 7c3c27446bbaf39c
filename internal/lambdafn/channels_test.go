package lambdafn

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

const (
	botToken      = "xoxb-1-s3cret"
	signingSecret = "0123456789abcdef0123456789abcdef"
)

// The channels of an environment send where it says: signed by the function's role, with the bot's token.
func TestC1C2ChannelsOfAnEnvironment(t *testing.T) {
	workspace := &standins.Slack{Token: botToken, Team: "T1", Members: []string{"U1"}}
	mail := &standins.Mail{Credentials: aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET"}, Region: "eu-central-1", Identities: []string{"approvals@example.com"}}
	inSlack, inSES := httptest.NewServer(workspace), httptest.NewServer(mail)
	t.Cleanup(inSlack.Close)
	t.Cleanup(inSES.Close)

	f := channelsOf(t, environment{}.with(EnvSlackToken, botToken, EnvSlackURL, inSlack.URL+"/", EnvMailFrom, "approvals@example.com"))
	f.cfg.BaseEndpoint = &inSES.URL
	all := must(f.Channels())
	require.Len(t, all, 2)
	m := people.Message{
		Occasion: people.Asked, Approval: approval.Approval{ID: "a1", Status: approval.Pending, ExpiresAt: time.Unix(2e9, 0)},
		To: people.Person{ID: "user:ana", Email: "ana@example.com", Slack: "U1"},
	}
	for _, c := range all {
		require.True(t, c.Reaches(m.To))
		require.NoError(t, errOf(c.Send(t.Context(), m)), c.Name())
	}
	require.Len(t, workspace.Messages(), 1)
	require.Len(t, mail.Sent(), 1)

	none := must(channelsOf(t, environment{}).Channels())
	require.Empty(t, none)
}

// literal is a vault whose secrets have their values for names.
type literal struct{ tool.NoSecrets }

func (literal) Value(_ context.Context, name string) (string, error) { return name, nil }

// channelsOf is a function with an environment; what it says it goes on without is in the log.
func channelsOf(t *testing.T, env environment) *function {
	t.Helper()
	watch := must(newObserver(env.get, io.Discard, io.Discard))
	return &function{
		getenv: env.get, cfg: testAWS.Copy(), watch: watch, vault: literal{},
		Deployment: &Deployment{Ports: runtime.Ports{Clock: clock.System()}},
	}
}

// What is configured badly is an error that names the variable, and no secret: of a secret, when it is read.
func TestC1C2ChannelsNameWhatIsWrong(t *testing.T) {
	for _, c := range [][3]string{
		{EnvSlackToken, "xoxp-s3cret", "xoxb"}, {EnvSlackToken, "xoxb-s3cret\n", "xoxb"}, {EnvSlackToken, "xoxb-", "xoxb"},
		{EnvMailFrom, "nobody", "want an address"}, {EnvMailFrom, "a@example.com, b@example.com", "want an address"},
	} {
		all, err := channelsOf(t, environment{}.with(c[0], c[1])).Channels()
		if c[0] == EnvSlackToken {
			require.NoError(t, err)
			_, err = all[0].Send(t.Context(), people.Message{To: people.Person{Slack: "U1"}})
		}
		require.ErrorContains(t, err, c[0])
		require.ErrorContains(t, err, c[2])
		require.NotContains(t, err.Error(), "s3cret")
	}
	for _, bad := range []string{"hooks.slack.com", "https://u:s3cret@x", "https://x/path", "ftp://x", "https://x?y=1", "http://"} {
		env := environment{}.with(EnvSlackToken, botToken, EnvSlackURL, bad)
		require.ErrorContains(t, errOf(channelsOf(t, env).Channels()), EnvSlackURL, bad)
		require.ErrorContains(t, errOf(SlackApp(env.get, signingSecret)), EnvSlackURL, bad)
	}
	for _, bad := range []string{signingSecret + ",s3cret", " , ", ""} {
		_, err := SlackApp(environment{}.get, bad)
		require.ErrorContains(t, err, "want signing secrets of at least 16 characters")
	}
}

// oneMember is a directory of one person.
type oneMember struct{ people.Directory }

func (oneMember) Slack(_ context.Context, team, member string) (string, people.Person, bool, error) {
	return "acme", people.Person{ID: "user:ana"}, team == "T1" && member == "U1", nil
}

// A click goes through the deployment's desk: of a request that is not there, who clicked is told so.
func TestC1InteractionsOfAnEnvironment(t *testing.T) {
	workspace := &standins.Slack{Token: botToken, Team: "T1", Members: []string{"U1"}}
	srv := httptest.NewServer(workspace)
	t.Cleanup(srv.Close)
	env := environment{}.with(EnvSlackToken, botToken, EnvSlackURL, srv.URL)
	all := must(channelsOf(t, env).Channels())
	ref, err := all[0].Send(t.Context(), people.Message{
		Occasion: people.Asked, To: people.Person{ID: "user:ana", Slack: "U1"},
		Approval: approval.Approval{ID: "a1", Kind: approval.KindCall, Digest: "d1", Status: approval.Pending, ExpiresAt: time.Unix(2e9, 0)},
	})
	require.NoError(t, err)
	var log bytes.Buffer
	d := &Deployment{
		Ports: runtime.Ports{Table: store.NewMemory(), Clock: clock.System()}, People: oneMember{}, Log: observe.NewLogger(&log),
		Slack: func(context.Context) (*people.SlackInteractions, error) {
			return SlackApp(env.get, "another-secret-of-the-app,"+signingSecret)
		},
	}
	body, err := workspace.Request(standins.SlackClick{Member: "U1", Ref: ref, Action: "approve", Answer: srv.URL + "/actions/1"})
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, people.SlackPath, bytes.NewReader(body))
	for name, value := range standins.SlackHeaders(signingSecret, time.Now(), body) {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	d.Compose().PagesHandler().ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	require.Len(t, workspace.Answers(), 1)
	require.Contains(t, string(workspace.Answers()[0]), "There is no such request")
	require.Empty(t, log.String())
}

// site answers with the key it was sent.
func site(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "value-1" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// requireEntered sends a request with a secret to a site: it comes back, or is refused so.
func requireEntered(t *testing.T, all runtime.Remotes, url, refused string) {
	t.Helper()
	require.Len(t, all, 2, "requests and servers")
	s := all[agent.KindHTTP].Open("default", &agent.Definition{})
	defer s.Close()
	res, err := s.Tool(agent.ToolSpec{Kind: agent.KindHTTP, Schema: json.RawMessage(`{"type":"object"}`), HTTP: &agent.HTTPTool{
		Method: "GET", URL: url, Headers: map[string]string{"X-Key": "${secret:KEY}"},
	}}).Call(t.Context(), tool.Call{Tenant: "acme", Args: json.RawMessage(`{}`), Key: "r/c"})
	if refused != "" {
		require.ErrorContains(t, err, refused)
		return
	}
	require.NoError(t, err)
	require.False(t, res.IsError, res.Content)
}

func TestRemotesOfALaptop(t *testing.T) {
	s := site(t)
	file := filepath.Join(t.TempDir(), "secrets.yaml")
	require.NoError(t, os.WriteFile(file, []byte("KEY: value-1\n"), 0o600))
	reach := Reach{Secrets: tool.LocalSecrets{File: file, Getenv: environment{}.get}, Clock: clock.System(), Laptop: true}
	for private, refused := range map[string]string{s.Listener.Addr().String(): "", "": "not allowed"} { // loopback is an operator's to allow
		reach.Private = private
		all := must(reach.Remotes())
		requireEntered(t, all, s.URL, refused)
	}
}

func TestRemotesOfAFunction(t *testing.T) {
	s := site(t)
	m, cfg := newManager(t, map[string]string{"stack/tools/acme/KEY": "value-1"})
	private := s.Listener.Addr().String()
	for prefix, refused := range map[string]string{"stack/tools/": "", "": "there is no such secret"} {
		all, err := Reach{Secrets: NewVault(cfg, prefix, clock.System()), Private: private, Clock: clock.System()}.Remotes()
		require.NoError(t, err)
		requireEntered(t, all, s.URL, refused)
	}
	require.Equal(t, []string{"stack/tools/acme/KEY"}, m.asked)
}
