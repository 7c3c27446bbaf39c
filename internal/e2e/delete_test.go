package e2e

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// nowhere is a state machine that starts and stops nothing.
type nowhere struct{ runtime.Waiter }

func (nowhere) Start(context.Context, string, string, string) error { return nil }
func (nowhere) Stop(context.Context, string, string) error          { return nil }

// cancelledRun starts a run about a receipt, past the functions, and cancels it.
func (d *deployment) cancelledRun(key string) string {
	d.t.Helper()
	ctx, ports := d.t.Context(), d.ports
	ports.Waiter = nowhere{ports.Waiter}
	digest := store.BlobDigest([]byte("a receipt"))
	require.NoError(d.t, ports.Blobs.Put(ctx, acme, digest, []byte("a receipt")))
	s, err := (&runtime.Starter{Ports: ports}).Start(ctx, runtime.Start{Tenant: acme, Agent: refundsAgent(d.t), Key: key,
		Message: []run.UserBlock{{Block: run.Media{MediaType: "text/plain", Blob: digest}}}})
	require.NoError(d.t, err)
	c := &runtime.Canceller{Ports: ports, Definitions: runtime.PinnedDefinitions(ports.Blobs)}
	_, err = c.Cancel(ctx, acme, s.Run, "user:ana", "")
	require.NoError(d.t, err)
	return s.Run
}

// The command deletes runs of a deployment, past its functions. A blob that two of them have goes with the second.
func TestDeleteDeployed(t *testing.T) {
	d := startServices(t, newRefundModel(t))
	digest := store.BlobDigest([]byte("a receipt"))
	runs := []string{d.cancelledRun("first"), d.cancelledRun("second")}
	endpoint := serve(t, d.services)
	remove := func(args ...string) (string, error) {
		c := exec.Command(os.Args[0], append([]string{"delete", "--deployed", "--yes", "--as", "user:ana"}, args...)...)
		c.Dir = t.TempDir()
		c.Env = append(os.Environ(), asCommand+"=1", "HOME="+c.Dir, "AWS_REGION="+region, "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local",
			"AWS_ENDPOINT_URL="+endpoint, "COUNTERSIGN_TABLE="+d.values["RunsTable"], "COUNTERSIGN_BUCKET="+d.values["BlobsBucket"])
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := remove(runs[0])
	require.Error(t, err)
	require.Contains(t, out, "no such run", "the tenant is another one")
	for i, want := range []string{"0 blobs; 1 blob that other runs have, too, are kept", "1 blob"} {
		_, err := d.ports.Blobs.Size(t.Context(), acme, digest)
		require.NoError(t, err)
		out, err := remove(runs[i], "--tenant", acme)
		require.NoError(t, err, out)
		require.Equal(t, "deleted run "+runs[i]+": 1 run with 2 journal entries, 0 requests and "+want+"\n", out)
	}
	_, err = d.ports.Blobs.Size(t.Context(), acme, digest)
	require.ErrorIs(t, err, store.ErrNoBlob)
	out, err = remove(runs[0], "--tenant", acme)
	require.NoError(t, err, out)
	require.Equal(t, "run "+runs[0]+" was deleted before\n", out)
	_, err = d.ports.Journal.Load(t.Context(), acme, runs[1])
	require.ErrorContains(t, err, "was deleted by user:ana")
}

// lockedBlobs deletes nothing.
type lockedBlobs struct{ store.Blobs }

func (lockedBlobs) Delete(context.Context, string, string) error { return store.ErrConflict }

// functions/sweep goes on with a deletion that was interrupted, with what its role permits.
func TestSweepDeletes(t *testing.T) {
	d := deploy(t, newRefundModel(t))
	id, ports := d.cancelledRun("k"), d.ports
	// it locked the blob ten minutes ago
	ports.Blobs, ports.Clock = lockedBlobs{ports.Blobs}, pastClock{d.clock, 10 * time.Minute}
	_, err := (&runtime.Deleter{Ports: ports}).Delete(t.Context(), acme, id, "user:ana")
	require.ErrorIs(t, err, store.ErrConflict)
	require.Zero(t, d.sweep().Failures)
	record, begun, err := d.ports.Journal.Deletion(t.Context(), acme, id)
	require.NoError(t, err)
	require.True(t, begun && record.Plan == nil, "it is deleted as a whole")
}
