package tools

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/jsonx"
)

// What a server says of a tool is refused, or is one that stands up to R13 and R14: its schema is an object that names
// nothing elsewhere.
func FuzzDefinition(f *testing.F) {
	for _, seed := range []string{
		`{"name":"read_file","description":"Reads.","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}},"annotations":{"readOnlyHint":true}}`,
		`{"name":"x","inputSchema":{"$ref":"https://evil.example/x"}}`, `{"name":"x","name":"y"}`, `{"name":7}`, `null`, `[]`, `{"name":"a b","inputSchema":{"type":"array"}}`,
		`{"name":"x","description":"\u202e\u0000","inputSchema":{"type":"object","$defs":{"a":{"$ref":"#/$defs/a"}}},"outputSchema":{}}`, `{"name":"x","inputSchema":` + strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat("}", 70) + `}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return // no message of the protocol
		}
		d, err := read(raw)
		if err != nil {
			return
		}
		tool, err := d.tool("files")
		if err != nil {
			return
		}
		_, err = jsonx.CompactJSON(tool.Schema, jsonx.JSONLimits{})
		require.NoError(t, err)
		require.NotContains(t, string(tool.Schema), `"$ref":"http`)
		again, err := read(raw)
		require.NoError(t, err)
		one, err := d.sum()
		require.NoError(t, err)
		other, err := again.sum()
		require.NoError(t, err)
		require.Equal(t, one, other, "the same definition has one digest")
	})
}

// What is decoded of a part of a result, and of a tool.
var (
	PartType = reflect.TypeFor[content]()
	ToolType = reflect.TypeFor[definition]()
)

// contexts is a connection that keeps the contexts of what is written.
type contexts struct {
	sdk.Connection
	all []context.Context
}

func (c *contexts) Write(ctx context.Context, _ jsonrpc.Message) error {
	c.all = append(c.all, ctx)
	return nil
}

// What follows a call in its context, as its cancellation, says nothing of it: whether that was sent is no matter.
func TestOnlyTheCallIsItsExchange(t *testing.T) {
	id, err := jsonrpc.MakeID("1")
	require.NoError(t, err)
	c, x := &contexts{}, &exchange{}
	of := &tap{link: &link{}, Connection: c, asked: map[jsonrpc.ID]*exchange{}}
	ctx := withExchange(t.Context(), x)
	require.NoError(t, of.Write(ctx, &jsonrpc.Request{ID: id, Method: "tools/call"}))
	require.NoError(t, of.Write(ctx, &jsonrpc.Request{Method: "notifications/cancelled"}))
	require.Same(t, x, exchangeOf(c.all[0]))
	require.Nil(t, exchangeOf(c.all[1]))
}
