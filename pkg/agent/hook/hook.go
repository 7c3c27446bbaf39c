// Package hook is the Go code of a deployment beside its tools: what YAML cannot say. Agents name the code they use, as they name tools,
// and one that names what is not there is refused when it is loaded. A run is pinned to its definition, not to this code; Version is
// recorded in every run, so that a change can be seen.
//
// A hook may be entered again for the same moment, after a commit that failed or whose answer was lost. What it decides is committed as
// data and never asked for again.
package hook

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
)

// Set is the code of a deployment by kind and name. The zero Set is none. It is not changed once it is in use, and safe for concurrent
// reading.
type Set struct {
	Version string // of the code, to be recorded; "" = not said

	Builders map[string]Builder           // context builders, by the name that agents give them
	Policies map[string]Policy            // permission.policy
	Backends map[string]PermissionBackend // permission.backend
}

// Check refuses a definition that names code which is not there. The error is agent.Problems.
func (s Set) Check(d *agent.Definition) error {
	var found agent.Problems
	named(&found, "builder", "context builder", d.Builder, s.Builders[d.Builder] != nil, s.BuilderNames())
	named(&found, "permission.policy", "policy function", d.Permission.Policy, s.Policies[d.Permission.Policy] != nil, s.PolicyNames())
	named(&found, "permission.backend", "permission backend", d.Permission.Backend, s.Backends[d.Permission.Backend] != nil, s.BackendNames())
	if len(found) == 0 {
		return nil
	}
	return found
}

// named wants a name to be there; "" names nothing.
func named(found *agent.Problems, path, what, name string, there bool, known []string) {
	if name == "" || there {
		return
	}
	list := cmp.Or(strings.Join(known, ", "), "there is none")
	*found = append(*found, agent.Problem{Path: path, Text: fmt.Sprintf("got %.64q, want a registered %s: %s", name, what, list)})
}
