package scenario

import (
	"context"
	"encoding/json"
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

// deskHooks is the code that the agents of testdata/builders name.
var deskHooks = hook.Set{Builders: map[string]hook.Builder{
	"desk.order": func(_ context.Context, in hook.BuildInput) (hook.Built, error) {
		var data struct{ Order json.Number }
		if err := json.Unmarshal(in.Input, &data); err != nil {
			return hook.Built{}, err
		}
		system := fmt.Sprintf("%s %s for %s with %s %s, %s, %s, %d of %d", in.System, data.Order, in.Subject, in.Tools[0].ModelName(), in.Tools[0].Schema,
			in.Lifecycle, in.Date, in.Interactions.Current, in.Interactions.Max)
		if in.Exhausted {
			system += ", exhausted"
		}
		return hook.Built{System: system, Messages: []hook.Message{
			{Block: run.Text{Text: "Order " + data.Order.String() + "."}},
			{Role: run.RoleAssistant, Block: run.Text{Text: "Yes?"}},
			{Block: run.Media{Name: "new.png", MediaType: "image/png", Data: "iVBORw0KGgo="}},
			{Block: run.Media{Name: "old.png", MediaType: "image/png", Data: "iVBORw0KGgo="}, Seen: 2},
		}}, nil
	},
	"desk.silent": func(context.Context, hook.BuildInput) (hook.Built, error) { return hook.Built{}, nil },
	"desk.late": func(_ context.Context, in hook.BuildInput) (hook.Built, error) {
		return hook.Built{System: strings.Repeat("Late.", in.Interactions.Current)}, nil
	},
	"desk.introduce": func(context.Context, hook.BuildInput) (hook.Built, error) {
		return hook.Built{System: "Be kind.", Messages: []hook.Message{{Block: run.Text{Text: "Somebody comes in."}}}}, nil
	},
	"desk.rules": func(_ context.Context, in hook.BuildInput) (hook.Built, error) {
		messages := []hook.Message{{Block: run.Text{Text: "You know the rules."}, Seen: 1}, {Block: run.Text{Text: "Somebody comes in."}}}
		if strings.Contains(string(in.Input), "nobody") {
			messages = messages[:1]
		}
		return hook.Built{Messages: messages}, nil
	},
	"desk.caller": func(_ context.Context, in hook.BuildInput) (hook.Built, error) {
		return hook.Built{System: fmt.Sprintf("%s is asked by %q.", in.Agent, in.Caller)}, nil
	},
	"desk.broken": func(context.Context, hook.BuildInput) (hook.Built, error) {
		return hook.Built{}, errors.New("there is no order 7")
	},
	"desk.panics": func(context.Context, hook.BuildInput) (hook.Built, error) { panic("a secret") },
	"desk.noblob": func(context.Context, hook.BuildInput) (hook.Built, error) {
		return hook.Built{Messages: []hook.Message{{Block: run.Media{MediaType: "image/png", Blob: strings.Repeat("0", 64)}}}}, nil
	},
	"desk.large": func(_ context.Context, in hook.BuildInput) (hook.Built, error) {
		return hook.Built{System: fmt.Sprintf("%d ", in.Interactions.Current) + strings.Repeat("x", 20_000)}, nil
	},
}}

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

// totals is the code that the agents of testdata/outputs name.
var totals = hook.Set{Outputs: map[string]hook.CheckOutput{
	"totals.match": func(_ context.Context, in hook.OutputInput) (string, error) {
		var out struct{ Total, Net, Tax int }
		if err := json.Unmarshal(in.Output, &out); err != nil {
			return "", err
		}
		if out.Net+out.Tax != out.Total {
			return fmt.Sprintf("for %s: net %d and tax %d are not %d", in.Agent, out.Net, out.Tax, out.Total), nil
		}
		return "", nil
	},
	"totals.broken": func(context.Context, hook.OutputInput) (string, error) { return "", errors.New("there is no ledger") },
	"totals.panics": func(context.Context, hook.OutputInput) (string, error) { panic("a secret") },
}}

// TestCode runs the scenarios of agents that name code: builders, context sources and checks of outputs.
func TestCode(t *testing.T) {
	for folder, c := range map[string]struct {
		code    hook.Set
		refusal string
	}{
		"builders": {deskHooks, "want a registered context builder: there is none"},
		"prompts":  {sources, "want a registered context source: there is none"},
		"outputs":  {totals, "want a registered output check: there is none"},
	} {
		t.Run(folder, func(t *testing.T) { runFolder(t, folder, c.code, c.refusal) })
	}
}

// runFolder runs the scenarios of a folder that name code, as they are and, but for those that are plain by name, under
// crashes. Without the code they are refused.
func runFolder(t *testing.T, folder string, code hook.Set, refusal string) {
	t.Helper()
	files, err := filepath.Glob("testdata/" + folder + "/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			_, err = Load(filepath.Base(file), data)
			require.Regexp(t, refusal, err)
			s := loadFile(t, file, code)
			if strings.HasPrefix(s.Name, "plain-") {
				require.Empty(t, s.Run(Options{}).Failures)
				return
			}
			requireUnderCrash(t, s)
		})
	}
}
