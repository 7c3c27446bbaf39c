package agentfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
)

// unread refuses a key that has no reader in its mapping.
func (r *reader) unread(f field, readers map[string]read) {
	known := slices.Sorted(maps.Keys(readers))
	text := "got an unknown key, want one of " + strings.Join(known, ", ")
	if like := agent.Closest(f.key, known); len(like) > 0 {
		text += "; did you mean " + like[0] + "?"
	}
	r.add(f.path, text)
}
