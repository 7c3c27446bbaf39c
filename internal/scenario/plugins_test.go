package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// The scenarios of testdata/plugins name code that only this test has: one does what its configuration says, the other
// writes down which phases it was in. What is wanted holds under every crash, too, but in those that are plain by name:
// there a crash may well keep what was under way from being done.
func TestPlugins(t *testing.T) {
	code := hook.Set{Plugins: map[string]hook.Factory{
		"first": newOrderPlugin, "second": newOrderPlugin, "third": newOrderPlugin, "log": logging,
	}}
	const refusal = `plugins\[\d\]: there is no plugin "(first|log)"; known: permission, reminder, tool-policy`
	runFolder(t, "plugins", code, refusal)
}

// Plugins see results that are too long for the journal: behind the call, and in the request, out of which a transform
// can take a secret, also where a model is asked for the summary of what leaves the context.
func TestPluginsSeeLongResults(t *testing.T) {
	redact := func(json.RawMessage) (hook.Plugin, error) {
		change := func(r agent.Request) agent.Request {
			for i, m := range r.Messages {
				switch b := m.Block.(type) {
				case run.ToolResult:
					b.Content = strings.ReplaceAll(b.Content, "secret", "***")
					r.Messages[i].Block = b
				case run.Text:
					b.Text = strings.ReplaceAll(b.Text, "secret", "***")
					r.Messages[i].Block = b
				}
			}
			return r
		}
		return hook.Plugin{BeforeInference: func(_ context.Context, m *hook.BeforeInference) error {
			m.Transform(change)
			return nil
		}, AfterTool: func(_ context.Context, m *hook.AfterTool) error {
			m.Patch("/bytes/"+m.Call().ID, len(m.Call().Result.Content))
			return nil
		}}, nil
	}
	const archive = `A transform redacts a long result.
-- agent.yaml --
name: logs
preset: tirea
system: You read logs.
plugins: [redact]
context: {window: 30000, evictBelow: 30000, keep: 1, summaryTokens: 100, summary: model}
-- input.json --
{"message": "Go."}
-- tools.yaml --
- {name: look, effect: read, description: Look., results: [{text: "secret LONG"}, {text: a secret}, {text: nothing}]}
-- model.jsonl --
{"calls": [{"id": "c1", "name": "look", "input": {}}]}
{"notes": true, "text": "Asked to go."}
{"calls": [{"id": "c2", "name": "look", "input": {}}], "want": {"messages": [{}, {"content": {"content": "~^[*]{3} x"}}]}}
{"notes": true, "text": "Looked.", "want": {"messages": [{"content": {"text": "~result: \"[*]{3} x"}}]}}
{"calls": [{"id": "c3", "name": "look", "input": {}}], "want": {"messages": [{}, {"content": {"content": "a ***"}}]}}
{"notes": true, "text": "Looked twice.", "want": {"messages": [{"content": {"text": "~result: \"a [*]{3}\"$"}}]}}
{"text": "Done."}
-- want.json --
{"status": "done", "messages": [{}, {}, {}], "state": {"bytes": {"c1": 61447, "c2": 8, "c3": 7}}}
`
	code := hook.Set{Plugins: map[string]hook.Factory{"redact": redact}}
	data := []byte(strings.ReplaceAll(archive, "LONG", strings.Repeat("x", 60<<10)))
	s, err := LoadWithOptions("redact.txtar", data, agentfile.Options{Hooks: code})
	require.NoError(t, err)
	requireUnderCrash(t, s)
}

// order is what the plugin that does one thing does, and when.
type order struct {
	Phase     run.Phase       `json:"phase"`
	Inference int64           `json:"inference"` // before and after which; 0 = each
	Tool      string          `json:"tool"`      // of which call; "" = each
	Resumed   bool            `json:"resumed"`   // only of a call that goes on
	Do        string          `json:"do"`
	Text      string          `json:"text"`
	Tools     []string        `json:"tools"`
	Value     json.RawMessage `json:"value"`
	Path      string          `json:"path"` // of the state, where a result sets Value
}

func newOrderPlugin(config json.RawMessage) (hook.Plugin, error) {
	var orders []order
	if err := jsonx.DecodeStrict(config, &orders); err != nil {
		return hook.Plugin{}, err
	}
	state := func(phase run.Phase) func(context.Context, *hook.Moment) error {
		return func(_ context.Context, m *hook.Moment) error {
			return applyOrders(orders, phase, m.Run(), nil, m.Patch, nil)
		}
	}
	return hook.Plugin{
		RunStart: state(run.PhaseRunStart), StepStart: state(run.PhaseStepStart), StepEnd: state(run.PhaseStepEnd), RunEnd: state(run.PhaseRunEnd),
		BeforeInference: func(_ context.Context, m *hook.BeforeInference) error {
			return applyOrders(orders, run.PhaseBeforeInference, m.Run(), nil, m.Patch, func(o order) { beforeInference(m, o) })
		},
		AfterInference: func(_ context.Context, m *hook.AfterInference) error {
			return applyOrders(orders, run.PhaseAfterInference, m.Run(), nil, m.Patch, func(o order) { endRun(o, m.End, m.Stop) })
		},
		BeforeTool: func(_ context.Context, m *hook.BeforeTool) error {
			c := m.Call()
			return applyOrders(orders, run.PhaseBeforeTool, m.Run(), &c, m.Patch, func(o order) { beforeTool(m, o) })
		},
		AfterTool: func(_ context.Context, m *hook.AfterTool) error {
			c := m.Call()
			return applyOrders(orders, run.PhaseAfterTool, m.Run(), &c, m.Patch, func(o order) {
				switch o.Do {
				case "remind":
					m.AddReminder(o.Text)
				case "say":
					m.AddMessage(o.Text)
				}
			})
		},
	}, nil
}

func applyOrders(orders []order, phase run.Phase, state *run.AgentState, c *run.Call, patch func(string, any), do func(order)) error {
	inference := state.Inferences
	if phase == run.PhaseBeforeInference || phase == run.PhaseStepStart {
		inference++
	}
	for _, o := range orders {
		if o.Phase != phase || o.Inference != 0 && o.Inference != inference {
			continue
		}
		if c != nil && (o.Tool != "" && o.Tool != c.Tool || o.Resumed != (c.Status == run.StatusResuming) && phase == run.PhaseBeforeTool) {
			continue
		}
		switch o.Do {
		case "fail":
			return errors.New(o.Text)
		case "panic":
			panic(o.Text)
		case "patch":
			patch(o.Text, o.Value)
		default:
			do(o)
		}
	}
	return nil
}

func beforeInference(m *hook.BeforeInference, o order) {
	switch o.Do {
	case "system":
		m.AddSystem(o.Text)
	case "session":
		m.AddSession(o.Text)
	case "include":
		m.IncludeOnly(o.Tools...)
	case "exclude":
		m.Exclude(o.Tools...)
	case "shout":
		m.Transform(func(r agent.Request) agent.Request {
			r.System = strings.ToUpper(r.System)
			return r
		})
	default:
		endRun(o, m.End, m.Stop)
	}
}

func endRun(o order, end func(), stop func(string)) {
	switch o.Do {
	case "end":
		end()
	case "stop":
		stop(o.Text)
	}
}

func beforeTool(m *hook.BeforeTool, o order) {
	switch o.Do {
	case "block":
		m.Block(o.Text)
	case "suspend":
		m.Suspend(run.Ticket{ID: "s-" + m.Call().ID, Action: "check", Message: o.Text})
	case "result":
		r := agent.ToolResultData{Content: o.Text}
		if o.Path != "" {
			r.Patch = []run.Patch{{Path: o.Path, Value: o.Value}}
		}
		m.SetResult(r)
	case "allow":
		m.Allow()
	}
}

// logging is a plugin that writes down, in the run's state, which phases it was in.
func logging(json.RawMessage) (hook.Plugin, error) {
	note := func(m *hook.Moment, entry string) error {
		var log []string
		_, err := m.Value("/log", &log)
		m.Patch("/log", append(log, entry))
		return err
	}
	state := func(phase run.Phase) func(context.Context, *hook.Moment) error {
		return func(_ context.Context, m *hook.Moment) error { return note(m, string(phase)) }
	}
	return hook.Plugin{
		RunStart: state(run.PhaseRunStart), StepStart: state(run.PhaseStepStart), StepEnd: state(run.PhaseStepEnd), RunEnd: state(run.PhaseRunEnd),
		BeforeInference: func(_ context.Context, m *hook.BeforeInference) error { return note(&m.Moment, "before_inference") },
		AfterInference: func(_ context.Context, m *hook.AfterInference) error {
			if f := m.Failure(); f != nil {
				return note(&m.Moment, "after_inference "+string(f.Class))
			}
			return note(&m.Moment, "after_inference")
		},
		BeforeTool: func(_ context.Context, m *hook.BeforeTool) error {
			return note(&m.Moment, "before_tool_execute "+m.Call().ID+" "+string(m.Call().Status))
		},
		AfterTool: func(_ context.Context, m *hook.AfterTool) error {
			return note(&m.Moment, "after_tool_execute "+m.Call().ID+" "+string(m.Call().Status))
		},
	}, nil
}
