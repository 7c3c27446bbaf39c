// Package linear checks that runs and their approval requests are linearizable. Many goroutines decide, cancel, send
// messages, read and let requests expire, on the real desk, runtime and HTTP handler over each table. Each operation
// must have the effect of a sequential specification at one moment between its call and its return. An operation with
// an uncertain error may take effect at any later moment, or never (docs/reliability.md).
//
// A faulty table loses answers, applies writes late, throttles and delays. Mutants, which are deliberately wrong tables
// and desks, show that the check finds errors.
//
// The package has only tests. COUNTERSIGN_LINEAR=N checks N histories of each kind over the memory table, and in
// proportion over the others; `make race` does.
package linear
