// Package asl interprets Amazon States Language in one process: the state machine that is deployed to Step Functions runs
// unchanged on a laptop and in tests, with the same names for errors, the same paths, retries, task tokens and limits.
//
// Parse takes what the interpreter can do faithfully and refuses everything else by state and key: states Task, Choice,
// Wait, Pass, Succeed and Fail; the resources lambda:invoke, lambda:invoke.waitForTaskToken and states:startExecution;
// JSONPath reference paths. Engine runs a Definition. It reads no clock and draws no random number: time is a
// clock.Clock, ids and jitter are functions in its Config.
//
// # What is durable
//
// A Store holds one Record an execution, written whole when the execution starts, is redriven, waits for a task token,
// and ends; plain transitions are not written. Each is written before it can be seen: a start before it is
// acknowledged, a token before a handler gets it, the outcome of a token before SendTaskSuccess or SendTaskFailure
// returns, an end before Describe tells it. After the death of the process, Resume on a new Engine goes on from the
// records:
//
//   - An execution that waits for a token keeps token and deadline. If it is on record that the handler had returned, it
//     waits on without calling it; else nobody knows whether the handler ran, and it is called again with the same token.
//   - One whose token had its outcome goes on behind the wait with that outcome; one whose deadline has passed goes on with
//     States.Timeout. A later state reached before the death is entered again this way.
//   - Any other is entered at StartAt again with its original input; one that was redriven, at the state it was redriven at.
//
// So a handler may be called again for work it did; the journal it writes decides what is owed.
package asl
