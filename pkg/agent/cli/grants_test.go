package cli

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A standing grant is listed and revoked through the socket of the process that has the store, and its run asks from then on.
func TestRevokeThroughTheSocket(t *testing.T) {
	d := newHarness(t, holdingAgent+"  - {name: move_file, root: .}\npermission: {scope: tool, grants: standing}\n",
		`{"calls": [{"id": "m1", "name": "move_file", "input": {"source": "a.txt", "destination": "b.txt"}}]}
{"calls": [{"id": "h1", "name": "hold"}]}
{"calls": [{"id": "m2", "name": "move_file", "input": {"source": "d.txt", "destination": "e.txt"}}]}
{"text": "Moved."}`)
	t.Chdir(d.dir)
	parked := d.run(t.Context(), "", "run", d.dir, "--message", "x")
	require.Equal(t, 3, parked.code, parked.stderr.String())
	follow := d.start(t.Context(), "approve", approvalID.FindStringSubmatch(parked.stdout.String())[1])
	<-d.entered // that process has the store until the call is released
	listed := d.run(t.Context(), "", "grants")
	require.Contains(t, listed.stdout.String(), "holder may call move_file in every run until ")
	eve := d.run(t.Context(), "", "revoke", "holder", "move_file", "--as", "user:eve")
	require.Equal(t, 1, eve.code, eve.stderr.String())
	revoked := d.run(t.Context(), "", "revoke", "holder", "move_file")
	require.Equal(t, 0, revoked.code, revoked.stderr.String())
	d.release <- struct{}{}
	who := <-follow
	require.Equal(t, 3, who.code, "the second move is asked about: %s", who.stderr.String())
	require.NoFileExists(t, filepath.Join(d.dir, "e.txt"))
	listed = d.run(t.Context(), "", "grants", "--json")
	require.JSONEq(t, `{"items":[]}`, listed.stdout.String())
}
