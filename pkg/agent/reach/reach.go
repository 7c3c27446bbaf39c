// Package reach is what functions/tool reaches of the world: whatever carries out the calls of tools that are somewhere else.
package reach

import (
	"net/http"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/mcp"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// Servers are MCP servers over HTTP, as client may reach them, with the secrets of tenants. Programs are not started: no deployed function
// can.
func Servers(client *http.Client, secrets func(tenant string) mcp.Secrets) func(clock.Clock) (runtime.Remotes, error) {
	return func(clk clock.Clock) (runtime.Remotes, error) {
		r, err := mcp.New(mcp.Config{Clock: clk, Client: client, Secrets: secrets})
		if err != nil {
			return nil, err
		}
		return runtime.Remotes{agent.KindMCP: r}, nil
	}
}
