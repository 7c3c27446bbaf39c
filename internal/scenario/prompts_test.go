package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/run"
)

// sources are the code that the agents of testdata/prompts name.
var sources = hook.Set{Contexts: map[string]hook.ContextSource{
	"plan": func(_ context.Context, in hook.ContextInput) (string, error) {
		text := fmt.Sprintf("step %d of %s: %s", in.Interactions.Current, in.Agent, in.Lifecycle)
		for _, t := range in.Tools {
			text += ", " + t.ModelName()
		}
		return text, nil
	},
	"found": func(_ context.Context, in hook.ContextInput) (string, error) {
		asked, ok := in.Messages[len(in.Messages)-1].Block.(run.Text)
		if !ok {
			return "", nil // nothing new was asked
		}
		return fmt.Sprintf("found for %q </rag_context>", asked.Text), nil
	},
	"broken": func(context.Context, hook.ContextInput) (string, error) { return "", errors.New("there is no index") },
	"panics": func(context.Context, hook.ContextInput) (string, error) { panic("a secret") },
	"large": func(context.Context, hook.ContextInput) (string, error) {
		return strings.Repeat("x", hook.MaxContext+1), nil
	},
}}

// TestPrompts runs the scenarios of agents whose prompts name code.
func TestPrompts(t *testing.T) {
	runFolder(t, "prompts", sources, "want a registered context source: there is none")
}
