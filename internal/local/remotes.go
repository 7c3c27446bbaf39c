package local

import (
	"path/filepath"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tools/egress"
	"github.com/countersign/countersign/internal/tools/mcp"
	"github.com/countersign/countersign/internal/tools/secrets"
)

// Remotes carry out the calls of tools that are HTTP requests or tools of MCP servers, with the secrets of the store directory dir. Start
// starts the programs that MCP servers are. MCP servers that listen on the machine itself may be reached, as the programs that an agent's
// file names may be started.
func Remotes(dir string, getenv func(string) string, clk clock.Clock, start mcp.Start) (runtime.Remotes, error) {
	return lambdafn.Reach{
		Secrets: secrets.Local{File: filepath.Join(dir, secrets.FileName), Getenv: getenv}, Private: getenv(egress.EnvPrivate),
		Clock: clk, Start: start, Laptop: true,
	}.Remotes()
}
