// Package statemachine holds the state machine that every deployment runs, as it is deployed.
package statemachine

import _ "embed"

// Agent is agent.asl.json. Its placeholders ${StepFunctionArn}, ${ToolFunctionArn}, ${ApproveFunctionArn} and
// ${Partition} are filled by whoever deploys or interprets it.
//
//go:embed agent.asl.json
var Agent []byte
