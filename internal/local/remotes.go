package local

import (
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tools/egress"
	"github.com/countersign/countersign/internal/tools/lambdatool"
	"github.com/countersign/countersign/internal/tools/mcp/program"
)

// Remotes carry out the calls of tools that are HTTP requests, tools of MCP servers or functions of AWS Lambda, with
// the secrets of the store directory dir. MCP servers that are programs are started, and those that listen on the
// machine itself may be reached.
func Remotes(
	dir string, getenv func(string) string, clk clock.Clock, functions runtime.Functions,
) (runtime.Remotes, error) {
	all, err := lambdafn.Reach{
		Secrets: Secrets(dir, getenv), Private: getenv(egress.EnvPrivate), Clock: clk, Laptop: true,
		Start: program.Programs{Path: getenv("PATH"), Home: getenv("HOME")}.Start,
	}.Remotes()
	if err != nil {
		return nil, err
	}
	all[agent.KindLambda] = lambdatool.Remote{Functions: functions}
	return all, nil
}
