package cli

import (
	"html"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
)

// On a laptop a link opens the request's page without dev's token, and decides; it opens nothing else, and no other path needs the token less.
func TestA1A5DevServesLinks(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel)
	p, _ := d.newProgram("")
	p.home = d.home()
	tidy, err := p.loadAgent(filepath.Join(d.dir, agentFile), agentOverrides{})
	require.NoError(t, err)
	p.registry, err = p.registry.With(*tidy)
	require.NoError(t, err)
	who, err := readPrincipals(d.home())
	require.NoError(t, err)
	e, err := p.openEngine(who)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv, err := newWebServer(e, "127.0.0.1", l.Addr().(*net.TCPAddr), "t", policy.Principal{ID: localUser, Groups: []string{localOperators}})
	require.NoError(t, err)
	go func() { _ = srv.server.Serve(l) }() // it is closed below
	t.Cleanup(func() { require.NoError(t, srv.server.Close()) })
	s := &devServer{t: t, devResult: devResult{URL: srv.url}, token: "t"}
	s.waitForEvent(s.startRun("tidy"), "parked")
	a, err := approval.Get(t.Context(), e.backend.Table, local.Tenant, s.pendingApproval())
	require.NoError(t, err)
	at, err := e.links.URL(t.Context(), a, localUser, "email")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(at, srv.url+"/a/"), at)

	status, page := getPage(t, at)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "Your answer")
	for _, other := range []string{srv.url + "/v1/runs", srv.url + "/a/", at + "/x", srv.url + "/a"} {
		status, _ := getPage(t, other)
		require.Equal(t, http.StatusUnauthorized, status, other)
	}
	form := ticketField.FindStringSubmatch(page)
	require.NotNil(t, form)
	resp, err := http.PostForm(at, url.Values{"form": {html.UnescapeString(form[1])}, "action": {"deny"}})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	now, err := approval.Get(t.Context(), e.backend.Table, local.Tenant, a.ID)
	require.NoError(t, err)
	require.Equal(t, approval.Denied, now.Status)
	require.Equal(t, localUser, now.Decisions[0].By)
	require.Equal(t, agent.ViaPage, now.Decisions[0].Via)
	_, page = getPage(t, at)
	require.Contains(t, page, "Denied by "+localUser+" at ")
}

func getPage(t *testing.T, at string) (status int, page string) {
	t.Helper()
	s := &devServer{t: t, devResult: devResult{URL: at}}
	return s.do("GET", "", "", "Authorization", "")
}
