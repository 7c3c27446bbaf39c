// Package countersign holds the files of this repository that `countersign init` writes into a new project.
package countersign

import "embed"

// Files are what deploys a registry of agents, what tests it, and the versions and sums of all dependencies. Their
// paths are those of the repository.
//
//go:embed go.mod go.sum .gitignore Makefile template.yaml samconfig.toml statemachine/agent.asl.json
//go:embed cmd/countersign/main.go functions/*/main.go agents/scenarios_test.go
var Files embed.FS
