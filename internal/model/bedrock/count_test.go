package bedrock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/bedrockfake"
)

// The service counts the very request that it would be sent: system text, conversation and tools.
func TestCountTokens(t *testing.T) {
	m, server := against(t, Config{}, blocks(bedrockfake.Text("a")))
	r := request()
	r.System, r.Tools = "Count.", []agent.ToolSpec{{Name: "get", Description: "Gets."}}
	n, err := m.CountTokens(context.Background(), r)
	require.NoError(t, err)
	_, err = m.Generate(context.Background(), r)
	require.NoError(t, err, "counting uses up no reply")
	asked := server.Requests()
	require.Len(t, asked, 2)
	require.True(t, asked[0].Count)
	require.JSONEq(t, string(asked[1].Body), string(asked[0].Body))
	require.EqualValues(t, bedrockfake.Tokens(asked[0].Body), n)

	r.Tools = nil
	less, err := m.CountTokens(context.Background(), r)
	require.NoError(t, err)
	require.Less(t, less, n)
}

func TestCountTokensFails(t *testing.T) {
	m, server := against(t, Config{})
	r := request()
	r.Model.ID = "uncounted.m"
	_, err := m.CountTokens(context.Background(), r)
	failure := failureOf(t, err)
	require.Equal(t, agent.ModelInvalid, failure.Class)
	require.Equal(t, "uncounted.m", failure.Model)

	elsewhere := request()
	elsewhere.Model.BaseURL = "http://127.0.0.1:1"
	_, err = m.CountTokens(context.Background(), elsewhere)
	requireClass(t, agent.ModelInvalid, err)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = m.CountTokens(ctx, request())
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, server.Requests(), 1)
}
