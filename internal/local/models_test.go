package local

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// storedShot names a picture whose content, shot, is a blob.
var storedShot = run.Media{MediaType: "image/png", Blob: store.BlobDigest([]byte("shot"))}

// listener keeps what an adapter was given.
type listener struct{ got run.Block }

func (l *listener) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	l.got = r.Messages[0].Block
	return agent.Reply{}, nil
}

// counter counts what it was given.
type counter struct{ listener }

func (c *counter) CountTokens(_ context.Context, r agent.Request) (int64, error) {
	c.got = r.Messages[0].Block
	return int64(len(r.Messages)), nil
}

// Tokens are counted by the request's own model, of all that it would be sent. A model that counts none says so.
func TestModelsCountTokens(t *testing.T) {
	ctx, blobs, shot := context.Background(), store.NewMemoryBlobs(), storedShot
	require.NoError(t, blobs.Put(ctx, Tenant, shot.Blob, []byte("shot")))
	c := &counter{}
	var m runtime.TokenCounter = newModels(func(s agent.ModelSpec) (runtime.Model, error) {
		if s.Provider == "bedrock" {
			return c, nil
		}
		return &listener{}, nil
	}, blobs)
	r := agent.Request{
		Tenant: Tenant, Model: agent.ModelSpec{Provider: "bedrock"}, Messages: []run.Message{{Role: run.RoleUser, Block: shot}},
	}
	n, err := m.CountTokens(ctx, r)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Equal(t, run.Media{MediaType: "image/png", Data: "c2hvdA=="}, c.got)
	for _, provider := range []string{"openai", "script"} {
		r.Model.Provider = provider
		_, err = m.CountTokens(ctx, r)
		var failed *agent.ModelError
		require.ErrorAs(t, err, &failed)
		require.Contains(t, failed.Message, "cannot be counted")
	}
}

// An adapter gets the content of blobs; a script is matched against the request as it is on record.
func TestAdaptersGetTheContentOfBlobs(t *testing.T) {
	ctx, blobs, named := context.Background(), store.NewMemoryBlobs(), storedShot
	require.NoError(t, blobs.Put(ctx, Tenant, named.Blob, []byte("shot")))
	for provider, want := range map[string]run.Media{"openai": {MediaType: "image/png", Data: "c2hvdA=="}, "script": named} {
		l := &listener{}
		m := newModels(func(agent.ModelSpec) (runtime.Model, error) { return l, nil }, blobs)
		_, err := m.Generate(ctx, agent.Request{
			Tenant: Tenant, Model: agent.ModelSpec{Provider: provider}, Messages: []run.Message{{Role: run.RoleUser, Block: named}},
		})
		require.NoError(t, err)
		require.Equal(t, want, l.got, provider)
	}
}
