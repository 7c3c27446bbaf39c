// Package agents is the registry of this deployment: its agents and its tools. Every main is one line over it. A folder
// with an agent.yaml is registered at once; add tools and agents in Go here.
package agents

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/countersign/countersign/internal/scaffold/agents/support"
	"github.com/countersign/countersign/pkg/agent"
)

//go:embed */agent.yaml mcp.lock
var files embed.FS

// Registry holds the built-in tools, those of this module, and every agent of this folder. It panics at start-up if Go
// code is wrong. A file is read when its agent is first needed; `make test` reads them all.
func Registry() *agent.Registry {
	tools, err := agent.BuiltinTools()
	sendMail, noMail := support.SendMail(filepath.Join(os.TempDir(), fmt.Sprintf("my-agents-outbox-%d", os.Getuid())))
	if err := errors.Join(err, noMail); err != nil {
		panic(err)
	}
	r, err := agent.NewRegistry(append(tools, sendMail)...)
	if err == nil {
		err = r.AddFS(files)
	}
	if err != nil {
		panic(err)
	}
	return r
}
