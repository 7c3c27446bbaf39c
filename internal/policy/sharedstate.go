package policy

import (
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// The bounds of what one call changes of a run's shared state.
const (
	maxPatch   = 64 << 10 // bytes of one call's patches as they are stored
	maxPatches = 100      // of one call
)

// CheckPatch says what is wrong with the changes that a tool wants to make to the state that it saw; nil means that
// they can be stored and applied. The error may be shown and contains no value.
func CheckPatch(view json.RawMessage, patches []run.Patch) error {
	if len(patches) > maxPatches {
		return fmt.Errorf("%d patches, want at most %d", len(patches), maxPatches)
	}
	for _, p := range patches {
		if err := p.Check(); err != nil {
			return fmt.Errorf("at %s: %w", jsonx.ShownPath(p.Path), err)
		}
	}
	if n := PatchSize(patches); n > maxPatch {
		return fmt.Errorf("patches of %d bytes, want at most %d", n, maxPatch)
	}
	_, err := run.ApplyPatches(view, patches)
	return err
}

// PatchSize returns the size of stored patches in bytes.
func PatchSize(patches []run.Patch) int {
	if len(patches) == 0 {
		return 0
	}
	raw, _ := jsonx.MarshalVerbatim(patches) // what is not JSON is refused before it is stored
	return len(raw)
}

// conflict says why the changes of several calls contradict each other; nil if they do not. In a conflict the calls
// keep their results, and no change is made.
func conflict(s *run.AgentState) error {
	if len(s.Patches) == 0 {
		return nil
	}
	_, err := s.Merged()
	return err
}
