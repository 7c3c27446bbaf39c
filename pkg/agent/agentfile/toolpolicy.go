package agentfile

import (
	"maps"

	"github.com/countersign/countersign/internal/agent"
)

// policyKeys adds the readers of how a tool's calls are made, whatever kind it is.
func (r *reader) policyKeys(readers map[string]read, t *agent.ToolSpec) {
	maps.Copy(readers, map[string]read{
		"retry":       r.toolRetry(&t.Retry),
		"concurrency": r.whole(&t.Concurrency),
		"maxResult":   r.count(&t.MaxResult),
		"undo":        r.undo(&t.Undo),

		"precondition": r.precondition(&t.Precondition),
	})
}

func (r *reader) toolRetry(t *agent.ToolRetry) read {
	return r.keys(map[string]read{
		"attempts":   r.whole(&t.Attempts),
		"backoff":    r.duration(&t.Backoff),
		"maxBackoff": r.duration(&t.MaxBackoff),
	})
}

func (r *reader) undo(dst **agent.Undo) read {
	return func(f field) {
		var u agent.Undo
		r.mapping(f, map[string]read{"tool": r.text(&u.Tool), "args": r.raw(&u.Args)})
		*dst = &u
	}
}

func (r *reader) precondition(dst **agent.Precondition) read {
	return func(f field) {
		var p agent.Precondition
		r.mapping(f, map[string]read{"tool": r.text(&p.Tool), "args": r.raw(&p.Args), "compare": r.texts(&p.Compare)})
		*dst = &p
	}
}
