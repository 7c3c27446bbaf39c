// Package hook is the Go code of a deployment beside its tools: what YAML cannot say. Agents name the code they use, as they name tools,
// and one that names what is not there is refused when it is loaded. A run is pinned to its definition, not to this code; Version is
// recorded in every run, so that a change can be seen.
//
// A hook may be entered again for the same moment, after a commit that failed or whose answer was lost. What it decides is committed as
// data and never asked for again.
package hook

// Set is the code of a deployment by kind and name. The zero Set is none. It is not changed once it is in use, and safe for concurrent
// reading.
type Set struct {
	Version string // of the code, to be recorded; "" = not said

	Builders map[string]Builder // context builders, by the name that agents give them
}
