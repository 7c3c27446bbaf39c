package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/standins"
)

const signingSecret = "canary0123456789canary0123456789"

// channelHarness is dev with one run of user:ana that waits under four eyes. On its port somebody acts.
type channelHarness struct {
	*harness
	*devServer
	run, request string
}

// decideFunc sends one person's decision by a channel, and returns what that person is told and whether it was taken.
// The person of a port is whoever dev acts as.
type decideFunc func(c *channelHarness, who, action, args string) (answer string, taken bool)

// newChannelHarness starts dev, on whose port actor acts.
func newChannelHarness(t *testing.T, actor string) *channelHarness {
	t.Helper()
	d := newHarness(t, renamingAgent+"permission: {rules: [{tool: move_file, verdict: ask, fourEyes: true}]}\n", movingModel)
	people := "default: user:ana\nslack: {T0ACME: " + local.Tenant + "}\npeople:\n"
	for _, name := range []string{"ana", "ben", "cat"} {
		people += fmt.Sprintf("  user:%s: {groups: [\"group:operators\"], email: %s@example.com, slack: U0%s}\n", name, name,
			strings.ToUpper(name))
	}
	d.write("home/principals.yaml", people)
	d.write("home/secrets.yaml", local.SlackSecret+": "+signingSecret+"\n")
	s := startHarness(t, d, "--as", "user:"+actor)
	d.exits(3, "run", d.dir, "--as", "user:ana,group:operators", "--message", "go", "--json")
	return &channelHarness{harness: d, devServer: s, request: s.pendingApproval(), run: s.loadApproval(s.pendingApproval()).Run}
}

// linkOf returns the path of a person's link, once ben and cat have been sent theirs; "" = nobody sent one.
func (c *channelHarness) linkOf(who string) string {
	t := c.devServer.t
	links := map[string]string{}
	require.Eventually(t, func() bool {
		mails, _ := filepath.Glob(filepath.Join(c.home(), "outbox", "*.eml"))
		for _, name := range mails {
			file, err := os.Open(name)
			if err != nil {
				return false
			}
			mail, err := io.ReadAll(quotedprintable.NewReader(file))
			if file.Close(); err != nil {
				return false
			}
			to := regexp.MustCompile(`(?m)^To:.*?([a-z]+)@example\.com`).FindStringSubmatch(string(mail))
			at := regexp.MustCompile(regexp.QuoteMeta(c.URL) + `(/a/[A-Za-z0-9._-]+)`).FindStringSubmatch(string(mail))
			if to != nil && at != nil {
				links[to[1]] = at[1]
			}
		}
		return links["ben"] != "" && links["cat"] != ""
	}, 2*time.Minute, 25*time.Millisecond)
	return links[who]
}

var channels = map[string]decideFunc{
	"page": func(c *channelHarness, who, action, args string) (string, bool) {
		path := c.linkOf(who)
		if path == "" {
			return "no link was sent", false
		}
		return c.postForm(&visitor{devServer: c.devServer}, path, action, args)
	},
	"console": func(c *channelHarness, _, action, args string) (string, bool) {
		v := c.newVisitor()
		return c.postForm(v, "/approvals/"+c.request, action, args, "key", v.key)
	},
	"api": func(c *channelHarness, _, action, args string) (string, bool) {
		body := `{"action": "` + action + `"}`
		if args != "" {
			body = `{"action": "` + action + `", "args": ` + args + `}`
		}
		status, answer := c.do("POST", "/v1/approvals/"+c.request+"/decision", body)
		return answer, status == http.StatusOK
	},
	"cli": func(c *channelHarness, who, action, args string) (string, bool) {
		command := []string{action, c.request, "--as", "user:" + who + ",group:operators"}
		if action == "edit" {
			command = append([]string{"approve", c.request, "--edit", args}, command[2:]...)
		}
		got := c.harness.run(c.devServer.t.Context(), "", command...)
		return got.stdout.String() + got.stderr.String(), got.code == 0 || got.code == 3 // 3 = more people have to approve
	},
	"slack": func(c *channelHarness, who, action, _ string) (string, bool) {
		shown := c.loadApproval(c.request)
		value, err := json.Marshal(map[string]any{"v": 1, "approval": shown.ID, "digest": shown.Digest})
		require.NoError(c.devServer.t, err)
		payload, err := json.Marshal(map[string]any{
			"type": "block_actions", "user": map[string]string{"id": "U0" + strings.ToUpper(who), "team_id": "T0ACME"},
			"actions": []any{map[string]string{"type": "button", "action_id": action, "value": string(value)}},
		})
		require.NoError(c.devServer.t, err)
		body := url.Values{"payload": {string(payload)}}.Encode()
		var headers []string
		for k, v := range standins.SlackHeaders(signingSecret, time.Now(), []byte(body)) {
			headers = append(headers, k, v)
		}
		status, _ := c.do("POST", "/slack/interactions", body, append(headers, "Authorization", "")...)
		require.Equal(c.devServer.t, http.StatusOK, status)
		for _, d := range c.loadApproval(c.request).Decisions {
			if d.By == "user:"+who && string(d.Action) == action {
				return "", true
			}
		}
		return "", false
	},
}

// postForm fills in the form of a request's page and sends it.
func (c *channelHarness) postForm(v *visitor, path, action, args string, pairs ...string) (string, bool) {
	if args != "" {
		pairs = append(pairs, "args", args)
	}
	form, open := v.readForm(path, action, pairs...)
	if !open {
		return "the page has no form: the request is decided", false
	}
	got := v.send("POST", path, form)
	return got.body, got.StatusCode == http.StatusSeeOther
}

// By each channel: a person who may decide, one who may not, one who edits, and two decisions at once. The record names
// person and channel, the tool runs once and with what was approved, or not at all.
func TestEveryChannelDecides(t *testing.T) {
	moved := func(c *channelHarness) string {
		c.waitForEvent(c.run, "finished")
		for _, name := range []string{"b.txt", "c.txt"} {
			if _, err := os.Stat(filepath.Join(c.dir, name)); err == nil {
				return name
			}
		}
		return ""
	}
	for name, decide := range channels {
		t.Run(name+"/one who may", func(t *testing.T) {
			c := newChannelHarness(t, "ben")
			answer, taken := decide(c, "ben", "approve", "")
			require.True(t, taken, answer)
			require.Equal(t, "b.txt", moved(c))
			a := c.loadApproval(c.request)
			require.Len(t, a.Decisions, 1)
			require.Equal(t, []string{"user:ben", name, "approve"}, []string{a.Decisions[0].By, string(a.Decisions[0].Via), string(a.Decisions[0].Action)})
		})
		t.Run(name+"/one who may not", func(t *testing.T) {
			c := newChannelHarness(t, "ana") // four eyes: the run is hers
			answer, taken := decide(c, "ana", "approve", "")
			require.False(t, taken, answer)
			require.NoFileExists(t, filepath.Join(c.dir, "b.txt"))
			a := c.loadApproval(c.request)
			require.Equal(t, approval.Pending, a.Status)
			require.Empty(t, a.Decisions)
		})
		t.Run(name+"/one who edits", func(t *testing.T) {
			c := newChannelHarness(t, "ben")
			answer, taken := decide(c, "ben", "edit", `{"source": "a.txt", "destination": "c.txt"}`)
			if name == "slack" { // its messages have no field for arguments
				require.False(t, taken)
				require.Empty(t, c.loadApproval(c.request).Decisions)
				return
			}
			require.True(t, taken, answer)
			a := c.loadApproval(c.request)
			require.Equal(t, approval.Pending, a.Status, "four eyes: the author of an edit does not approve it alone")
			require.JSONEq(t, `{"source": "a.txt", "destination": "c.txt"}`, string(a.Args))
			c.harness.exits(0, "approve", c.request, "--as", "user:cat,group:operators", "--digest", a.Digest)
			require.Equal(t, "c.txt", moved(c))
		})
		t.Run(name+"/two at once", func(t *testing.T) {
			c := newChannelHarness(t, "ben")
			var wg sync.WaitGroup
			taken := make([]bool, 2)
			answers := make([]string, 2)
			for i, of := range []struct{ who, action string }{{"ben", "approve"}, {"cat", "deny"}} {
				wg.Go(func() { answers[i], taken[i] = decide(c, of.who, of.action, "") })
			}
			wg.Wait()
			require.NotEqual(t, taken[0], taken[1], "exactly one counts: %v", answers)
			want := ""
			if taken[0] {
				want = "b.txt"
			}
			require.Equal(t, want, moved(c))
			require.Len(t, c.loadApproval(c.request).Decisions, 1)
		})
	}
}
