package prompt_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

func TestParsePlan(t *testing.T) {
	step := func(n int, server, description string) prompt.Step {
		return prompt.Step{Number: n, Server: server, Description: description}
	}
	hinted := step(1, "files", "Read a")
	hinted.Hints = json.RawMessage(`{"n":1.0}`)
	for name, c := range map[string]struct {
		text string
		want prompt.Plan
	}{
		"calls with text around": {"Sure!\n[plan.add_step(1, \"files\", \"Read a\"), plan.add_step(2, 'mail', 'Send it')] plan.done() Bye.", prompt.Plan{Steps: []prompt.Step{step(1, "files", "Read a"), step(2, "mail", "Send it")}}},
		"named arguments":        {`plan.add_step(description="Read a", step = 1, server: "files")`, prompt.Plan{Steps: []prompt.Step{step(1, "files", "Read a")}}},
		"escapes":                {`plan.add_step(1,"",'Say \'hi, \"Bo\")\'\nand go')`, prompt.Plan{Steps: []prompt.Step{step(1, "", "Say 'hi, \"Bo\")'\nand go")}}},
		"no server":              {`plan.add_step(1, None, "Read")`, prompt.Plan{Steps: []prompt.Step{step(1, "", "Read")}}},
		"out of order":           {`plan.add_step(2, "", "b") plan.add_step(1, "", "a")`, prompt.Plan{Steps: []prompt.Step{step(1, "", "a"), step(2, "", "b")}}},
		"numbers that rise":      {`plan.add_step(3, "", "a") plan.add_step(7, "", "b")`, prompt.Plan{Steps: []prompt.Step{step(3, "", "a"), step(7, "", "b")}}},
		"numbers that repeat":    {`plan.add_step(1, "", "a") plan.add_step(1, "", "b")`, prompt.Plan{Steps: []prompt.Step{step(1, "", "a"), step(2, "", "b")}}},
		"a response wins":        {`plan.add_step(1, "", "a") plan.respond("No need, (really).") plan.done()`, prompt.Plan{Direct: "No need, (really)."}},
		"other words":            {`a plan.b(c) plan. plan.add_step (1, "s", "a")`, prompt.Plan{Steps: []prompt.Step{step(1, "s", "a")}}},
		"JSON":                   {"```json\n{\"needs_tools\": true, \"steps\": [{\"step_number\": 1, \"description\": \" Read a \", \"expected_server\": \"files\", \"hint_params\": {\"n\": 1.0}}], \"more\": 1}\n``` done", prompt.Plan{Steps: []prompt.Step{hinted}}},
		"JSON that mentions one": {`{"steps": [{"step_number": "1", "description": "Type plan.respond(\"x\")", "hint_params": null}]}`, prompt.Plan{Steps: []prompt.Step{step(1, "", `Type plan.respond("x")`)}}},
		"JSON without numbers":   {`{"needs_tools": true, "steps": [{"description": "a"}, {"description": "b", "hint_params": [1]}]}`, prompt.Plan{Steps: []prompt.Step{step(1, "", "a"), step(2, "", "b")}}},
		"JSON without need":      {`{"needs_tools": false, "direct_response": "Hi.", "steps": [{"description": "a"}]}`, prompt.Plan{Direct: "Hi."}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := prompt.ParsePlan(c.text)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			again, err := prompt.ParsePlan(got.String())
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
	for _, text := range []string{
		"", "I would look first.", "plan.done()", `plan.add_step(1, "files", "Read`, `plan.add_step(1, "files" "Read")`, `plan.add_step()`, `plan.add_step(1, "f", "  ")`,
		`plan.respond("")`, "{", "}{", `{"needs_tools": false}`, `{"needs_tools": true, "steps": []}`, `{"steps": [{"step_number": 1}]}`, `{"steps": 1}`, `[1]`,
	} {
		_, err := prompt.ParsePlan(text)
		require.ErrorIs(t, err, prompt.ErrPlan, text)
	}
}

// FuzzParsePlan: no text breaks the reader, and what is read as a plan reads as the same once it is written.
func FuzzParsePlan(f *testing.F) {
	for _, text := range []string{
		`plan.add_step(1, "files", "Read 'a'") plan.done()`, `plan.respond('x\n')`, `{"needs_tools":true,"steps":[{"step_number":1,"description":"a","hint_params":{"x":"plan.respond(1)"}}]}`,
		`plan.add_step(step=2,server='',description="b")plan.add_step(1,,c)`, "plan.add_step(1,\"\\",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := prompt.ParsePlan(text)
		if err != nil {
			return
		}
		require.NotEqual(t, len(p.Steps) > 0, p.Direct != "")
		again, err := prompt.ParsePlan(p.String())
		require.NoError(t, err, p.String())
		require.Equal(t, p, again)
	})
}

func TestSteps(t *testing.T) {
	memory := `[{"number":2,"description":"a","failed":true},{"number":5,"description":"b","tries":1}]`
	s := run.AgentState{Plan: run.Plan{Stage: run.PlanSteps, Memory: json.RawMessage(memory)}}
	steps, err := prompt.Steps(&s)
	require.NoError(t, err)
	require.Equal(t, []prompt.StepState{
		{Step: prompt.Step{Number: 2, Description: "a"}, Failed: true, Done: true},
		{Step: prompt.Step{Number: 5, Description: "b"}, Tries: 1, Now: true},
	}, steps)
	for name, p := range map[string]run.Plan{
		"no memory":            {Stage: run.PlanAgain},
		"no JSON":              {Memory: json.RawMessage(`[{`)},
		"no step that is next": {Stage: run.PlanSteps, Memory: json.RawMessage(`[{"number":1,"description":"a","failed":true}]`)},
	} {
		_, err := prompt.Steps(&run.AgentState{Plan: p})
		require.Error(t, err, name)
	}
}
