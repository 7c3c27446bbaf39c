// Package long holds the product to what it promises of long runs, large conversations and crowds of them
// (docs/reliability.md): what a step costs is bounded by the context window and never by the age of the run; a run
// hands over to execution after execution, each once; a parked run costs little; and of ten thousand requests, decided
// by fifty people at once, each is decided once.
//
// It has tests alone, and they assert counts, never times. `go test` runs each of them small; `make long` runs them
// whole (COUNTERSIGN_LONG=1).
package long
