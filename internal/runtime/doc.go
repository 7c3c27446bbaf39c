// Package runtime carries runs on: it declares the ports, and use cases that each load a run, decide, apply and commit.
//
//   - Stepper.Step does one inference, or whatever else the run needs that is not a tool call.
//   - Batch.Run gates, claims and runs one round of tool calls.
//   - Waits.Park stores a parked run's task token, and Ports.Wake completes it.
//   - Starter, Inputs and Canceller are what people and services do to a run from outside.
//
// Every use case keeps the sixteen rules of docs/protocol.md; the comments name them. The package reads no time, does
// not sleep and draws no random number by itself: Clock and IDs do.
package runtime
