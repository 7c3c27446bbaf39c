package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// ContextSource gives a section of the prompt what it says: a plan, or what was found for the newest question (seed
// 004, "Planning Context", "RAG Context"). An agent names it with `prompt: {planning: NAME, rag: NAME}`.
//
// It is asked before every inference, and again where that is made again; what it gives is in that request alone and
// stored nowhere, so it should have no effects. "" leaves the section out. Its error ends the run, with the code
// definition, and is shown as it is; so does a panic, of which nothing is shown, and a text of more than MaxContext
// bytes. One that would rather have the agent go on without says so in its text. The context's own error, as of a
// function that ran out of time, ends nothing: it is asked again. Safe for concurrent use.
type ContextSource func(ctx context.Context, in ContextInput) (string, error)

// MaxContext bounds what a ContextSource gives, in bytes.
const MaxContext = 64 << 10

// ContextInput is what a source may go by. It must not be changed.
type ContextInput struct {
	Lifecycle              run.Lifecycle // of the inference that is about to be made
	Tenant, Run, Agent     string
	Subject, AccessControl string
	Now                    time.Time
	Input                  json.RawMessage  // what the run was started with; nil = a message
	Messages               []run.Message    // the conversation as the request holds it
	Tools                  []agent.ToolSpec // that the request offers
	Interactions           run.Interactions
	Exhausted              bool // this is a grace call or the summary
}

// ErrContext marks errors that end the run; they are fit to be shown.
var ErrContext = errors.New("context source")

// Context asks the source of that name. Errors are ErrContext's or the context's.
func (s Set) Context(ctx context.Context, name string, in ContextInput) (text string, err error) {
	source, ok := s.Contexts[name]
	if !ok {
		return "", fmt.Errorf("%w %s: this deployment does not have it", ErrContext, name)
	}
	defer func() {
		if recover() != nil {
			text, err = "", fmt.Errorf("%w %s: it panicked", ErrContext, name)
		}
	}()
	text, err = source(ctx, in)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", fmt.Errorf("ask context source %s: %w", name, ctx.Err())
	case err != nil:
		return "", fmt.Errorf("%w %s: %s", ErrContext, name, errorText(err))
	case len(text) > MaxContext:
		return "", fmt.Errorf("%w %s: got %d bytes, want at most %d", ErrContext, name, len(text), MaxContext)
	default:
		return strings.ToValidUTF8(text, "\uFFFD"), nil
	}
}

// ContextNames lists the context sources, sorted.
func (s Set) ContextNames() []string { return slices.Sorted(maps.Keys(s.Contexts)) }
