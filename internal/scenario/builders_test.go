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
	"github.com/countersign/countersign/pkg/agent/agentfile"
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
	"desk.introduce": func(context.Context, hook.BuildInput) (hook.Built, error) {
		return hook.Built{System: "Be kind.", Messages: []hook.Message{{Block: run.Text{Text: "Somebody comes in."}}}}, nil
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

// TestBuilders runs the scenarios of agents that name code.
func TestBuilders(t *testing.T) { runFolder(t, "builders", deskHooks, "context builder") }

// runFolder runs the scenarios of a folder that name code, as they are and with a crash at every call of a port.
// Without the code they are refused, for what.
func runFolder(t *testing.T, folder string, code hook.Set, what string) {
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
			require.ErrorContains(t, err, "want a registered "+what+": there is none")
			s, err := LoadWithOptions(filepath.Base(file), data, agentfile.Options{Hooks: code})
			require.NoError(t, err)
			r := s.Crash(CrashesInTests(2))
			require.Empty(t, r.Plain.Failures)
			for _, f := range r.Failures {
				t.Errorf("%s, %s: %v", f.Kind, f.At, f.Failures)
			}
			require.Positive(t, r.Points)
		})
	}
}

// A large system text is stored once and never built again.
func TestLargeSystemTextIsABlob(t *testing.T) {
	data, err := os.ReadFile("testdata/builders/large.txtar")
	require.NoError(t, err)
	s, err := LoadWithOptions("large.txtar", data, agentfile.Options{Hooks: deskHooks})
	require.NoError(t, err)
	counts := map[string]int{}
	for _, c := range s.Run(Options{}).Calls {
		counts[c.Port+" by "+c.Invocation]++
	}
	require.Equal(t, 1, counts["blobs.Put by step"], "the text")
	require.Equal(t, 2, counts["blobs.Get by step"], "the definition, and the text for the second request")
}
