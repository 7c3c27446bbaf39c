package runtime

import (
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Missing is the code that a call of a tool needs and this process does not have: the tool, or the one that its
// precondition reads; "" = it has all of it, or needs none. The name is the original one.
func (p Ports) Missing(def *agent.Definition, name string) string {
	i := slices.IndexFunc(def.Tools, func(t agent.ToolSpec) bool { return t.Name == name })
	if i < 0 { // a server's tool, or one that the product brings
		return ""
	}
	t := def.Tools[i]
	if _, linked := p.Tools.Lookup(name); t.Kind == agent.KindInternal && !linked {
		return name
	}
	if t.Precondition != nil {
		return p.Missing(def, t.Precondition.Tool)
	}
	return ""
}

// isUnlinked reports whether the call needs code that only other processes have. It stays as it is: nobody is asked
// about it, it is not claimed, and what became of it is not looked into. The invocation ends as ErrElsewhere once
// nothing is left that it can do.
func (r *round) isUnlinked(c run.Call) bool {
	if !r.LeavesUnknown {
		return false
	}
	missing := r.Missing(r.def, c.Tool)
	if missing == "" {
		return false
	}
	r.unlinked = fmt.Errorf("call %s: tool %s is not part of this program: %w", c.ID, missing, ErrElsewhere)
	return true
}
