// Package agents is the registry of this deployment: its agents and its tools. Every main of the repository is one line over it.
// `countersign run agents/screenshots` runs one of them; copy a folder to begin your own.
package agents

import (
	"embed"
	"errors"
	"os"
	"path/filepath"

	"github.com/countersign/countersign/agents/hooks"
	"github.com/countersign/countersign/agents/refunds"
	"github.com/countersign/countersign/pkg/agent/registry"
	"github.com/countersign/countersign/pkg/agent/tool"
	"github.com/countersign/countersign/pkg/agent/tool/builtin"
)

//go:embed */agent.yaml
var files embed.FS

// Registry holds the built-in tools and every agent of this folder. It panics at start-up where one of the files is broken.
func Registry() *registry.Registry {
	r := Code()
	if err := errors.Join(r.Hook(hooks.All()), r.AddFS(files), r.Check()); err != nil {
		panic(err)
	}
	return r
}

// Code is the registry without the agents that are files: for a function that runs what a run's own definition names, and so neither
// reads nor links YAML.
func Code() *registry.Registry { return registry.Must(registry.New(tools()...)) }

func tools() []tool.Tool {
	builtins, err := builtin.PerRun()
	if err != nil {
		panic(err)
	}
	onRefunds, err := refunds.Tools(refunds.Ledger{Dir: ledger()})
	if err != nil {
		panic(err)
	}
	return append(builtins, onRefunds...)
}

// ledger is the folder of the refunds example: REFUNDS_LEDGER, or one among the temporary files.
func ledger() string {
	if dir := os.Getenv("REFUNDS_LEDGER"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "countersign-refunds")
}
