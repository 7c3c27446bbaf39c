package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

// TestPrompts runs the scenarios of agents whose prompts name code, as they are and with a crash at every call of a port.
func TestPrompts(t *testing.T) {
	files, err := filepath.Glob("testdata/prompts/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			_, err = Load(filepath.Base(file), data)
			require.ErrorContains(t, err, "want a registered context source: there is none")
			s, err := LoadWith(filepath.Base(file), data, sources)
			require.NoError(t, err)
			r := s.Crash(CrashesInTests())
			require.Empty(t, r.Plain.Failures)
			for _, f := range r.Failures {
				t.Errorf("%s, %s: %v", f.Kind, f.At, f.Failures)
			}
			require.Positive(t, r.Points)
		})
	}
}
