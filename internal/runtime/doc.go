// Package runtime is the shell around the core: ports, and use cases that each load, ask, apply, commit and return.
//
//   - Stepper.Step does one inference, or whatever else the run owes that is not a tool call.
//   - Batch.Run gates, claims and runs one round of tool calls.
//   - Waits.Park stores a parked run's task token, and Ports.Wake completes it.
//   - Starter, Inputs and Canceller are what people and services do to a run from outside.
//
// Every use case keeps the sixteen rules of docs/protocol.md; the comments name them. Nothing here reads time, sleeps
// or draws a random number: that is the Clock's and the IDs' work.
package runtime
