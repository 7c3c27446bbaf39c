// Package linear checks that runs and the requests they make to people behave as one thing at a time, whoever acts at
// once and whatever goes wrong: histories of decisions, expiry, cancels, messages and reads by many goroutines, on the
// real desk, runtime and HTTP handler over each table, are linearizable. Each operation has the effect that a
// sequential specification gives it at one moment between its call and its return; one that ended in an error that
// leaves open whether it happened has it at any later moment, or never (docs/reliability.md).
//
// A table with faults stands between: writes that are done and reported as failed, that are done long after they were
// given up, refusals, delays. Deliberately wrong tables and desks show that the check finds what it is for.
//
// All of it is tests. COUNTERSIGN_LINEAR=N checks so many histories of each kind over the memory table, and in
// proportion over the others; `make race` does.
package linear
