// Package cli is the command countersign (docs/cli.md). A deployment's main is one line over its registry:
//
//	func main() { cli.Main(agents.Registry()) }
//
// Every command is a client of the API. Whoever finds the store free opens it, serves the API on HOME/engine.sock while it runs, and
// talks to itself; whoever finds it taken talks to that socket, and takes the store over when the other process ends. So a command
// does the same wherever the engine is. A command that only looks sets nothing going; one that acts carries on what is open.
//
// Command dev stays: until Ctrl-C it serves the API on a TCP port of this machine beside the socket, for whoever has the token in
// HOME/token, and a page that lists what there is.
//
// Standard output gets what was asked for, standard error how it goes. With --json standard output gets one JSON document and nothing
// else. Exit codes: 0 done, 1 the run ended in error or cancelled, or something failed, 2 wrong usage or a bad file, 3 the run waits,
// 130 interrupted.
package cli
