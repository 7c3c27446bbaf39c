package cli

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
)

// On a laptop a link opens the request's page without dev's token, and decides; it opens nothing else, and no other path needs the token less.
func TestA1A5DevServesLinks(t *testing.T) {
	c := newChannelHarness(t, "ana")
	stranger, at := &visitor{devServer: c.devServer}, c.linkOf("ben")
	page := stranger.send("GET", at, nil)
	require.Equal(t, http.StatusOK, page.StatusCode)
	require.Contains(t, page.body, "Your answer")
	for _, other := range []string{"/v1/runs", "/a/", at + "/x", "/a"} {
		require.Equal(t, http.StatusUnauthorized, stranger.send("GET", other, nil).StatusCode, other)
	}
	answer, taken := c.postForm(stranger, at, "deny", "")
	require.True(t, taken, answer)
	a := c.loadApproval(c.request)
	require.Equal(t, []any{approval.Denied, "user:ben", agent.ViaPage}, []any{a.Status, a.Decisions[0].By, a.Decisions[0].Via})
	require.Contains(t, stranger.send("GET", at, nil).body, "Denied by user:ben at ")
}
