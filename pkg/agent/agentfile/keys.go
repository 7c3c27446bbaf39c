package agentfile

import (
	"maps"
	"slices"
	"strings"
)

// unread refuses a key that has no reader in its mapping.
func (r *reader) unread(f field, readers map[string]read) {
	r.add(f.path, "got an unknown key, want one of "+strings.Join(slices.Sorted(maps.Keys(readers)), ", "))
}
