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

// Builder makes what a model is told before it is asked: the system text and, when a run begins, the conversation's
// first messages (seed 000, "Context Engineering Phase"; seed 003). An agent names it with `builder: NAME`.
//
// Under `systemPrompt: once` it is asked when the run begins and never again, and what it gave is kept with the run;
// under every_inference it is asked before each inference, and messages count the first time alone. It may be asked
// again for the same inference, whose first attempt was lost: it should have no effects. Its error ends the run, with
// the code definition, and is shown as it is; so does a panic, of which nothing is shown. The context's own error, as
// of a function that ran out of time, ends nothing: it is asked again.
type Builder func(ctx context.Context, in BuildInput) (Built, error)

// BuildInput is what a builder builds from. It must not be changed.
type BuildInput struct {
	Lifecycle              run.Lifecycle // of the inference that is about to be made
	Tenant, Run, Agent     string
	Caller                 string // the agent whose call the run carries out; "" = nobody delegated it
	Subject, AccessControl string
	Date                   string           // the run's first day in UTC, 2006-01-02
	Now                    time.Time        // of this inference; the run keeps what is made of it
	Input                  json.RawMessage  // what the run was started with, parentSubject$$ included; nil = a message
	System                 string           // the definition's system text, rendered; "" where it has none
	Tools                  []agent.ToolSpec // as the model is told of them, in order of definition
	Interactions           run.Interactions // made so far, and how many there may be
	Exhausted              bool             // they are used up, and this is a grace call or the summary
	MessagesWanted         bool             // the run begins: messages count
}

// Built is what a builder gives. The zero value is no system text and, for a run that was started with data, the
// default message: a user text of that data less parentSubject$$.
type Built struct {
	System   string
	Messages []Message
}

// Message is one block of the conversation: text or media of the user, text of the model.
type Message struct {
	Role  run.Role  // "" = user
	Block run.Block // agent.Text or agent.Media
	Seen  int64     // its seenCount; media with more than 0 are never shown where they are masked
}

// ErrBuilder marks errors that end the run, as the builder's own and a panic; they are fit to be shown.
var ErrBuilder = errors.New("context builder")

// maxBuilderError bounds a builder's error as it is shown, in runes.
const maxBuilderError = 1000

// Build asks the builder of that name. Errors are ErrBuilder's or the context's.
func (s Set) Build(ctx context.Context, name string, in BuildInput) (out Built, err error) {
	b, ok := s.Builders[name]
	if !ok {
		return Built{}, fmt.Errorf("%w %s: this deployment does not have it", ErrBuilder, name)
	}
	defer func() {
		if recover() != nil {
			out, err = Built{}, fmt.Errorf("%w %s: it panicked", ErrBuilder, name)
		}
	}()
	out, err = b(ctx, in)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return Built{}, fmt.Errorf("build context: %w", ctx.Err())
	default:
		return Built{}, fmt.Errorf("%w %s: %s", ErrBuilder, name, errorText(err))
	}
}

func errorText(err error) string {
	r := []rune(strings.ToValidUTF8(err.Error(), "\uFFFD"))
	return string(r[:min(len(r), maxBuilderError)])
}

// BuilderNames lists the context builders, sorted.
func (s Set) BuilderNames() []string { return slices.Sorted(maps.Keys(s.Builders)) }
