// Package asl plays statemachine/agent.asl.json in one process: the state machine that is deployed to Step Functions
// runs unchanged on a laptop and in tests, with the same error names, retries, task tokens and limits. It knows what
// that file uses of Amazon States Language. Parse refuses what it would play wrongly, by state and key.
//
// Engine runs a Definition. It reads no clock and draws no random number: Config has a clock.Clock and functions for
// ids and jitter.
//
// # What is durable
//
// A Store holds one Record for each execution. It is written when the execution starts, waits for a task token and
// ends; plain transitions are not written. A change is written before anybody can see it: a start before Start
// returns, a token before a handler gets it, the token's output before SendTaskSuccess returns, an end before
// Describe shows it. After the death of the process, Resume on a new Engine goes on from the records:
//
//   - An execution that waits for a token keeps token and deadline. If its handler is known to have returned, the
//     execution waits on. Otherwise the handler is called again with the same token.
//   - If the token's output is on record, the execution goes on behind the wait with that output. If the deadline has
//     passed, it goes on with States.Timeout. States that it reached later are entered again.
//   - Every other execution starts again at StartAt with its input.
//
// So a handler may be called again for work it has done. The run's journal decides what is owed.
package asl
