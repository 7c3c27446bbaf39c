package e2e

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/secrets"
)

// Who is asked gets a mail with a link: functions/approve may invoke functions/sweep and nothing more of it, whose role
// permits people of the table, the keys of links, the request and the sender. The link opens the request.
func TestMailToWhoIsAsked(t *testing.T) {
	d := deploy(t, newRefundModel(t), func(d *deployment) { d.values["MailFrom"], d.values["MailIdentity"] = sender, "example.com" })
	s := d.parkedRefund("k1")
	require.Eventually(t, func() bool { return len(d.mail.Sent()) > 0 }, 2*time.Minute, 10*time.Millisecond)
	mail := d.mail.Sent()[0]
	require.Equal(t, "ana@example.com", mail.To)
	at := regexp.MustCompile(regexp.QuoteMeta(d.apiURL+approval.LinkPath) + `[A-Za-z0-9_.-]+`).FindString(mail.Text)
	require.NotEmpty(t, at, mail.Text)
	status, page := d.openPage(at)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "Ana Lima")
	d.approve(d.anaClient(), s)
	d.requireWholeRefund(d.waitFor(acme, s.Run, isDone))
}

// A link opens its page and decides with nothing running meanwhile: every function was killed since the run parked.
func TestA1A5LinksOverRestarts(t *testing.T) {
	d := deploy(t, newRefundModel(t))
	s := d.parkedRefund("k1")
	a, err := approval.Get(t.Context(), d.ports.Table, acme, s.Waits()[0].Wait.Approval)
	require.NoError(t, err)
	at := d.signedLink(a, "user:ana")
	d.killAll()
	status, page := d.openPage(at)
	require.Equal(t, http.StatusOK, status, page)
	require.Contains(t, page, "Ana Lima")
	require.Contains(t, page, "refunds.create")
	require.Contains(t, page, "A wheel is broken.")
	status, _ = d.openPage(at[:len(at)-2] + "AA")
	require.Equal(t, http.StatusNotFound, status)
	status, page = d.openPage(d.signedLink(a, "user:eve"))
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, page, `value="approve"`, "a guest may look")
	require.Zero(t, d.refunds(s.Run))

	_, page = d.openPage(at)
	form := regexp.MustCompile(`name="form" value="([^"]+)"`).FindStringSubmatch(page)
	require.NotNil(t, form, page)
	last := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := (&http.Client{CheckRedirect: last}).PostForm(at, url.Values{
		"form": {html.UnescapeString(form[1])}, "action": {"approve"}, "note": {"by link"},
	})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	require.Equal(t, strings.TrimPrefix(at, d.apiURL), resp.Header.Get("Location"))
	d.requireWholeRefund(d.waitFor(acme, s.Run, isDone))
	_, page = d.openPage(at)
	require.Contains(t, page, "Approved by user:ana at ")
	require.Contains(t, page, "by link")
	require.NotContains(t, d.log.String(), strings.TrimPrefix(at, d.apiURL+approval.LinkPath), "no link is in a log")
}

// signedLink returns the link to a request's page for a person, as the functions make it.
func (d *deployment) signedLink(a approval.Approval, to string) string {
	d.t.Helper()
	ring, err := secrets.Parse(linkKeys)
	require.NoError(d.t, err)
	links := &approval.Links{
		Table: d.ports.Table, Ring: func() (*secrets.Ring, error) { return ring, nil },
		Clock: d.clock, IDs: clock.NewIDs(d.clock), Base: func() string { return d.apiURL },
	}
	at, err := links.URL(d.t.Context(), a, to, "email")
	require.NoError(d.t, err)
	return at
}

func (d *deployment) openPage(at string) (status int, page string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, at, nil)
	require.NoError(d.t, err)
	resp, text := do(d.t, http.DefaultClient, r)
	return resp.StatusCode, text
}
