// Package cli is the command countersign (docs/cli.md). A deployment's main is one line over its registry:
//
//	func main() { Main(agents.Registry()) }
//
// Every command is a client of the API. A command that finds the store free opens the store, serves the API on
// HOME/engine.sock while it runs, and connects to itself. If another process has the store, the command connects to
// that socket, and takes the store over when the other process ends. A command does the same wherever the engine is. A
// command that only reads starts nothing; a command that acts resumes open runs.
//
// Command dev serves until Ctrl-C. Beside the socket it serves the API and the console on a TCP port of this machine,
// to whoever has the token in HOME/token.
//
// Results go to standard output, progress to standard error. With --json standard output is exactly one JSON document.
// Exit codes: 0 done; 1 the run ended in error or was cancelled, or the command failed; 2 wrong usage or a bad file; 3
// the run waits; 130 interrupted.
package cli
