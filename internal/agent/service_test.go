package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServiceEvent(t *testing.T) {
	s := AgentState{Tenant: "acme", Run: "r1", Agent: "clerk", AccessControl: "team:a", ExecutionUnits: 7}
	spec := ToolSpec{Name: "com.weather", Kind: KindService, Domain: "eu"}
	for in, want := range map[string]string{
		`{}`:                                   `{"parentSubject$$":"r1"}`,
		`{"a":1.0,"b":"<&>"}`:                  `{"a":1.0,"b":"<&>","parentSubject$$":"r1"}`,
		`{"parentSubject$$":"mine","a":1e400}`: `{"a":1e400,"parentSubject$$":"r1"}`,
	} {
		e, err := ServiceEvent(&s, spec, Call{ID: "c1", Input: json.RawMessage(in)})
		require.NoError(t, err)
		require.Equal(t, want, string(e.Data), "order and digits are kept")
		require.Equal(t, Outgoing{
			ID: "r1/c1", Type: "com.weather", Tenant: "acme", Run: "r1", Agent: "clerk", Call: "c1", Subject: "r1", ParentSubject: "r1",
			AccessControl: "team:a", Domain: "eu", ExecutionUnits: 7, Data: e.Data,
		}, e)
	}
	s.Subject, spec.Event = `the "order"`, "weather.v2"
	e, err := ServiceEvent(&s, spec, Call{ID: "c1", Input: json.RawMessage(`{}`)})
	require.NoError(t, err)
	require.Equal(t, []string{"weather.v2", s.Subject, `{"parentSubject$$":"the \"order\""}`}, []string{e.Type, e.Subject, string(e.Data)})
	for _, in := range []string{``, `"x"`, `[1]`} {
		_, err := ServiceEvent(&s, spec, Call{ID: "c1", Input: json.RawMessage(in)})
		require.Error(t, err, in)
	}
}

// What goes out is part of the run's trace, on every attempt the same.
func TestOutgoingIsTraced(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s := AgentState{Run: "r1", Status: RunDone, Reason: ReasonNaturalEnd, Subject: "s1", Trace: &Trace{Traceparent: parent, Tracestate: "a=b"}}
	asked, err := ServiceEvent(&s, ToolSpec{Name: "post", Kind: KindService}, Call{ID: "c1", Input: json.RawMessage(`{}`)})
	require.NoError(t, err)
	ended, owed, err := Announcement(&s)
	require.NoError(t, err)
	require.True(t, owed)
	for _, e := range []Outgoing{asked, ended} {
		require.Equal(t, []string{parent, "a=b"}, []string{e.Traceparent, e.Tracestate})
	}
}

func TestAnnouncement(t *testing.T) {
	done := AgentState{Tenant: "acme", Run: "r1", Agent: "clerk", Status: RunDone, Reason: ReasonNaturalEnd, Output: json.RawMessage(`{"n":1.0}`), ExecutionUnits: 7}
	for name, tt := range map[string]struct {
		change func(s *AgentState)
		owed   bool
		parent string
		kind   string
		data   string
	}{
		"nobody waits":             {change: func(*AgentState) {}},
		"input without a parent":   {change: func(s *AgentState) { s.Input = json.RawMessage(`{"a":1}`) }},
		"input that is no object":  {change: func(s *AgentState) { s.Input = json.RawMessage(`["parentSubject$$"]`) }},
		"a parent that is no text": {change: func(s *AgentState) { s.Input = json.RawMessage(`{"parentSubject$$":5}`) }},
		"a fork": {change: func(s *AgentState) {
			s.Input, s.From = json.RawMessage(`{"parentSubject$$":"p"}`), &Origin{Kind: OriginFork}
		}},
		"not done":  {change: func(s *AgentState) { s.Subject, s.Status = "x", RunWaiting }},
		"a subject": {change: func(s *AgentState) { s.Subject = "x" }, owed: true, kind: TypeRunCompleted, data: `{"reason":"natural_end","output":{"n":1.0}}`},
		"a parent": {
			change: func(s *AgentState) { s.Input = json.RawMessage(`{"parentSubject$$":"p"}`) }, owed: true, parent: "p", kind: TypeRunCompleted,
			data: `{"reason":"natural_end","output":{"n":1.0}}`,
		},
		"in error": {
			change: func(s *AgentState) {
				s.Subject, s.Reason, s.Output, s.Error = "x", ReasonError, nil, &RunError{Code: CodeInternal, Message: "m"}
			}, owed: true, kind: TypeRunFailed, data: `{"reason":"error","error":{"code":"internal","message":"m"}}`,
		},
		"cancelled": {change: func(s *AgentState) { s.Subject, s.Reason, s.Output = "x", ReasonCancelled, nil }, owed: true, kind: TypeRunCompleted, data: `{"reason":"cancelled"}`},
		"too long for an event": {
			change: func(s *AgentState) { s.Subject, s.Output = "x", textOutput(strings.Repeat("x", maxAnnounced)) }, owed: true, kind: TypeRunCompleted,
			data: `{"reason":"natural_end","outputOmitted":true}`,
		},
	} {
		s := done
		tt.change(&s)
		e, owed, err := Announcement(&s)
		require.NoError(t, err, name)
		require.Equal(t, tt.owed, owed, name)
		if owed {
			require.Equal(t, []string{"r1#end", tt.kind, tt.parent, tt.data}, []string{e.ID, e.Type, e.ParentSubject, string(e.Data)}, name)
			require.EqualValues(t, 7, e.ExecutionUnits)
		}
	}
}

// The correlation key is nobody's but ours: a schema that asks for it does not make the model's arguments wrong, nor do arguments that bring it.
func TestServiceArguments(t *testing.T) {
	d := worldDefinition()
	var s AgentState
	seen := ""
	valid := func(spec ToolSpec, args json.RawMessage) error {
		seen = string(spec.Schema) + " " + string(args)
		return fmt.Errorf("asked")
	}
	spec := ToolSpec{Name: "post", Kind: KindService, Schema: json.RawMessage(
		`{"type":"object","properties":{"parentSubject$$":{"type":"string"},"n":{"minimum":1.10}},"required":["parentSubject$$","n"]}`)}
	require.EqualError(t, checkArguments(&d, &s, spec, Call{Input: json.RawMessage(`{"n":1.0,"parentSubject$$":"x"}`)}, valid), "asked")
	require.Equal(t, `{"type":"object","properties":{"n":{"minimum":1.10}},"required":["n"]} {"n":1.0}`, seen)
	spec.Schema = json.RawMessage(`{ "type": "object" }`)
	require.Error(t, checkArguments(&d, &s, spec, Call{Input: json.RawMessage(`{}`)}, valid))
	require.Equal(t, `{ "type": "object" } {}`, seen, "to the byte")
	require.EqualError(t, checkArguments(&d, &s, spec, Call{Input: json.RawMessage(`"{}"`)}, valid), "asked", "its schema wants an object")

	d.Limits.Validators, s.Interactions = ValidatorsNotExhausted, Interactions{Current: 2, Max: 2}
	require.Error(t, checkArguments(&d, &s, spec, Call{Input: json.RawMessage(`{}`)}, valid), "the last one that is not exhausted")
	s.Interactions.Current = 3
	require.NoError(t, checkArguments(&d, &s, spec, Call{Input: json.RawMessage(`{}`)}, valid))
	require.Error(t, checkArguments(&d, &s, spec, Call{Input: json.RawMessage(`5`)}, valid), "an event's data is an object")
	spec.Kind = KindInternal
	require.Error(t, checkArguments(&d, &s, spec, Call{Input: json.RawMessage(`{}`)}, valid), "what runs here is always checked")
}

// Contracts are good tools as they are.
func TestContracts(t *testing.T) {
	require.NoError(t, CheckTools(contracts))
	review, ok := Contract("human_review")
	require.True(t, ok)
	ask, ok := Contract("tool_approval")
	require.True(t, ok)
	require.Greater(t, review.Priority, ask.Priority)
	_, ok = Contract("other")
	require.False(t, ok)
}

func TestReadApprovals(t *testing.T) {
	got, ok := ReadApprovals([]byte(`{"approvals":[{"tool":"b","value":true},{"tool":"a","value":false,"comments":"no"},{"tool":"b","value":false}],"more":1}`))
	require.True(t, ok)
	require.Equal(t, []ToolApproval{{Tool: "a", Comments: "no"}, {Tool: "b"}}, got, "the last word on a tool counts")
	for _, in := range []string{``, `null`, `[]`, `"x"`, `{"approvals":[]}`, `{"approvals":{}}`, `{"approvals":[{"tool":"a"}]}`, `{"approvals":[{"tool":"a b","value":true}]}`, `{"approvals":[{"tool":"a","value":"yes"}]}`, `{"approvals":[{"value":true}]}`} {
		_, ok := ReadApprovals([]byte(in))
		require.False(t, ok, in)
	}
}

// A judgement changes no state that is there already, and is the same twice.
func TestToolsJudged(t *testing.T) {
	s := started(t)
	one, err := Apply(s, ToolsJudged{Tools: []ToolApproval{{Tool: "pay", Value: true}}})
	require.NoError(t, err)
	require.True(t, one.Advice.Read)
	two, err := Apply(one, ToolsJudged{Call: "c1", Tools: []ToolApproval{{Tool: "look"}, {Tool: "pay", Comments: "no"}}})
	require.NoError(t, err)
	require.Equal(t, []ToolApproval{{Tool: "pay", Value: true}}, one.Advice.Tools)
	require.Equal(t, []ToolApproval{{Tool: "look"}, {Tool: "pay", Comments: "no"}}, two.Advice.Tools)
	again, err := Apply(two, ToolsJudged{Call: "c1", Tools: []ToolApproval{{Tool: "look"}, {Tool: "pay", Comments: "no"}}})
	require.NoError(t, err)
	require.Equal(t, two.Advice, again.Advice)
	s.Advice = Advice{}
	told, err := Apply(s, ToolsJudged{Call: "c1"})
	require.NoError(t, err)
	require.False(t, told.Advice.Read, "an answer is not the record")
}

// What the fold refuses of a service's call, and what it knows already.
func TestServiceCall(t *testing.T) {
	fold := func(events ...Event) (AgentState, error) {
		d := NewDraft(started(t), "w1", worldEpoch)
		err := d.Add(append([]Event{Replied{Inference: 1, Requests: 1, Calls: []RepliedCall{{ID: "a", Name: "post", Effect: EffectRead, Service: true}}}}, events...)...)
		return d.State, err
	}
	asked := CallSuspended{Call: "a", For: ForAnswer, Expires: worldEpoch.Add(time.Hour)}
	for name, events := range map[string][]Event{
		"not claimed":       {asked},
		"without an expiry": {CallClaimed{Call: "a"}, CallSuspended{Call: "a", For: ForAnswer}},
		"run without claim": {CallFinished{Call: "a", Ran: true, Content: "x"}},
	} {
		_, err := fold(events...)
		require.Error(t, err, name)
	}
	s, err := fold(CallClaimed{Call: "a"}, asked, asked)
	require.NoError(t, err)
	require.Equal(t, &Wait{For: ForAnswer, Since: worldEpoch, Expires: worldEpoch.Add(time.Hour)}, s.Live[0].Wait)
	require.Zero(t, s.Live[0].Asks, "nobody was asked by a request")
	for name, ignored := range map[string]Event{
		"a rerun":                Answered{Slot: 1, Call: "a", Rerun: true},
		"one to another request": Answered{Slot: 1, Call: "a", Approval: "a1", Content: "x"},
		"a decision":             Decided{Slot: 1, Call: "a", Action: ActionApprove},
		"a late result":          LateResult{Slot: 1, Call: "a", Content: "x"},
	} {
		n, err := Apply(s, ignored)
		require.NoError(t, err, name)
		require.Equal(t, StatusSuspended, n.Live[0].Status, name)
	}
	s, err = Apply(s, Answered{Slot: 1, Call: "a", Content: "first"})
	require.NoError(t, err)
	s, err = Apply(s, Answered{Slot: 2, Call: "a", Content: "second"})
	require.NoError(t, err)
	require.Equal(t, "first", s.Live[0].Result.Content)
	require.EqualValues(t, 2, s.Drained)

	early, err := fold(CallClaimed{Call: "a"}, Answered{Slot: 1, Call: "a", Content: "at once"}, asked)
	require.NoError(t, err)
	require.Equal(t, StatusSucceeded, early.Live[0].Status, "what is settled stays so")
	_, err = fold(Answered{Slot: 1, Call: "a", Content: "before"})
	require.NoError(t, err)
}
