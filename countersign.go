// Package countersign holds files of this repository: those that `countersign init` writes into a new project, and the
// state machine.
package countersign

import "embed"

// Files are what deploys a registry of agents, what tests it, the versions and sums of all dependencies, and, in
// internal/scaffold, what only a new project has. Their paths are those of the repository.
//
//go:embed go.mod go.sum .gitignore Makefile template.yaml samconfig.toml statemachine/agent.asl.json
//go:embed cmd/countersign/main.go functions/*/main.go agents/scenarios_test.go all:internal/scaffold
var Files embed.FS

// StateMachine is statemachine/agent.asl.json, which every deployment runs. Its placeholders ${StepFunctionArn},
// ${ToolFunctionArn}, ${ApproveFunctionArn} and ${Partition} are filled by whoever deploys or interprets it.
//
//go:embed statemachine/agent.asl.json
var StateMachine []byte
