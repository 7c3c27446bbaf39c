// Package hook is the Go code of a deployment beside its tools: what YAML cannot say. Agents name the code they use, as they name tools,
// and one that names what is not there is refused when it is loaded. A run is pinned to its definition, not to this code; Version is
// recorded in every run, so that a change can be seen.
//
// A hook may be entered again for the same moment, after a commit that failed or whose answer was lost. What it decides is committed as
// data and never asked for again.
package hook

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
)

// Set is the code of a deployment by kind and name. The zero Set is none. It is not changed once it is in use, and safe for concurrent
// reading.
type Set struct {
	Version string // of the code, to be recorded; "" = not said

	Policies    map[string]Policy            // permission.policy
	Permissions map[string]PermissionBackend // permission.backend
}

// Check finds what the definition names and the set does not have; a non-nil error is agent.Problems.
func (s Set) Check(d *agent.Definition) error {
	var found agent.Problems
	named(&found, "permission.policy", d.Permission.Policy, s.Policies)
	named(&found, "permission.backend", d.Permission.Backend, s.Permissions)
	if len(found) == 0 {
		return nil
	}
	return found
}

// named wants a name to be one of the known ones; "" names nothing.
func named[T any](found *agent.Problems, path, name string, known map[string]T) {
	if _, ok := known[name]; ok || name == "" {
		return
	}
	want := "none: there is no such code"
	if len(known) > 0 {
		want = strings.Join(slices.Sorted(maps.Keys(known)), " or ")
	}
	*found = append(*found, agent.Problem{Path: path, Text: fmt.Sprintf("got %.40q, want %s", name, want)})
}
