package client_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/client"
)

// A run that waits is carried on by the next Open of its folder, which one program has at a time.
func TestOpenGoesOnWithARunThatWaits(t *testing.T) {
	dir, paid := t.TempDir(), 0
	model := filepath.Join(dir, "model.jsonl")
	require.NoError(t, os.WriteFile(model, []byte(script), 0o600))
	tool, err := agent.NewTool("refund", "Pays money back.", agent.EffectNonIdempotent,
		func(context.Context, agent.Call, refund) (agent.Result, error) {
			paid++
			return agent.TextResult("done"), nil
		}, nil)
	require.NoError(t, err)
	registry, err := agent.NewRegistry(tool)
	require.NoError(t, err)
	file := "name: shop\nsystem: You refund orders.\nmodel: {provider: script, file: " + model + "}\ntools: [{name: refund}]\n"
	require.NoError(t, registry.AddFS(fstest.MapFS{"shop/agent.yaml": {Data: []byte(file)}}))

	engine, err := client.Open(filepath.Join(dir, "state"), registry, nil)
	require.NoError(t, err)
	_, err = client.Open(filepath.Join(dir, "state"), registry, nil)
	require.ErrorIs(t, err, client.ErrInUse)
	started, err := engine.Client("user:cleo").Start(t.Context(), client.Start{Agent: "shop", Message: json.RawMessage(`"Refund 17."`)})
	require.NoError(t, err)
	_, err = engine.Wait(t.Context(), started.ID)
	require.NoError(t, err)
	require.NoError(t, engine.Close())

	engine, err = client.Open(filepath.Join(dir, "state"), registry, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	operator := engine.Client("user:ana,group:operators")
	pending, err := operator.Approvals(t.Context(), "", "", 0)
	require.NoError(t, err)
	require.Len(t, pending.Approvals, 1)
	require.Zero(t, paid)
	_, err = operator.Decide(t.Context(), pending.Approvals[0].ID, client.Verdict{Action: client.Approve})
	require.NoError(t, err)
	run, err := engine.Wait(t.Context(), started.ID)
	require.NoError(t, err)
	require.Equal(t, agent.RunDone, run.Status)
	require.Equal(t, 1, paid)
}
