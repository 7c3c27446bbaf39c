package repotest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// sample is one sample event of a function of the state machine: what has happened before it, and what it does.
type sample struct {
	file   string
	before func(w *world)
	// follows is the sample whose output is this one's state. Empty where an execution starts with it.
	follows string
	want    func(t *testing.T, w *world, out []byte)
}

var ofTheMachine = []sample{
	{
		file: "step/events/first-step.json", before: (*world).started,
		want: func(t *testing.T, w *world, out []byte) {
			requireNext(t, runtime.NextTools, out)
			require.Equal(t, run.StatusNew, w.call("c2").Status, "asks for two calls, runs none")
		},
	},
	{
		file: "step/events/event-message.json", before: func(*world) {},
		want: func(t *testing.T, w *world, out []byte) {
			r := requireNext(t, runtime.NextTools, out)
			require.Equal(t, agent.RunID(tenant, agentN, "7b1f1f0e-5c0b-4a1e-9a57-0d5cf1f0c9aa"), r.Run, "the event's id is the key")
			require.Contains(t, said(w.state(r.Run)), `A wheel of my "office chair" is broken. Order 1002.`)
		},
	},
	{
		file: "step/events/event-input.json", before: func(*world) {},
		want: func(t *testing.T, w *world, out []byte) {
			r := requireNext(t, runtime.NextTools, out)
			require.Equal(t, agent.RunID(tenant, agentN, "c2a4b7de-93f1-4f0e-8a65-2f4e1f6a7b10"), r.Run)
			require.JSONEq(t, `{"agent":"refunds","order":"1002","photos":3,"by":"web form"}`, said(w.state(r.Run)))
		},
	},
	{
		file: "step/events/event-s3.json", before: func(*world) {},
		want: func(t *testing.T, w *world, out []byte) {
			r := requireNext(t, runtime.NextTools, out)
			require.Contains(t, said(w.state(r.Run)), `"key":"orders/1002/wheel.jpg"`)
		},
	},
	{
		file: "step/events/event-sqs.json", before: func(*world) {},
		want: func(t *testing.T, w *world, out []byte) {
			r := requireNext(t, runtime.NextTools, out)
			require.Equal(t, agent.RunID(tenant, agentN, "059f36b4-87a3-44ab-83d2-661975830a7d"), r.Run, "the message's id is the key")
			require.Contains(t, said(w.state(r.Run)), `"by":"returns desk"`)
		},
	},
	{
		file: "step/events/event-slack.json", before: func(*world) {},
		want: func(t *testing.T, w *world, out []byte) {
			s := w.state(requireNext(t, runtime.NextTools, out).Run)
			require.Equal(t, "slack:T012ABCDEF:C024BE91L:1793644353.000200", s.Subject, "the thread that hears of the end")
			require.Contains(t, said(s), "can we refund it?")
		},
	},
	{
		file: "step/events/event-schedule.json", before: func(*world) {},
		want: func(t *testing.T, w *world, out []byte) {
			r := requireNext(t, runtime.NextTools, out)
			require.Equal(t, agent.RunID(tenant, agentN, "returns/2026-11-02T06:00:00Z"), r.Run, "one run a time of the schedule")
		},
	},
	{
		file: alarmFile, before: (*world).alarmed,
		want: func(t *testing.T, w *world, out []byte) {
			r := requireNext(t, runtime.NextTools, out)
			require.Equal(t, alarmRun, r.Run, "the event's id is the key")
			text := said(w.state(r.Run))
			require.Contains(t, text, "The alarm incident-checkout-errors went off at 2026-02-13T14:09:12Z in eu-central-1.")
			require.Contains(t, text, "Service: checkout")
			require.NotContains(t, text, "{", "the context builder has read it")
		},
	},
	{
		file: "tool/events/batch.json", follows: "step/events/first-step.json",
		before: func(w *world) { w.started(); w.feed("step/events/first-step.json") },
		want: func(t *testing.T, w *world, out []byte) {
			requireNext(t, runtime.NextStep, out)
			require.Equal(t, []string{"orders.get", "orders.get"}, w.entered, "the refund waits, and whoever is asked sees the order")
		},
	},
	{
		file: "step/events/after-tools.json", follows: "tool/events/batch.json",
		before: func(w *world) {
			w.started()
			w.feed("step/events/first-step.json")
			w.feed("tool/events/batch.json")
		},
		want: func(t *testing.T, w *world, out []byte) {
			r := requireNext(t, runtime.NextWait, out)
			require.Equal(t, int64(24*3600), r.WaitSeconds)
			require.Equal(t, 1, w.asked, "nothing to ask before the move is decided")
		},
	},
	{
		file: "approve/events/wait.json", follows: "step/events/after-tools.json", before: waiting,
		want: func(t *testing.T, w *world, out []byte) {
			require.JSONEq(t, `{}`, string(out))
			h, err := w.ports.Journal.Head(context.Background(), tenant, runSample)
			require.NoError(t, err)
			require.NotEmpty(t, h.Token, "keeps the task token")
			require.Empty(t, w.woken)
			w.approved()
			require.Equal(t, []string{h.Token}, w.woken, "and a decision uses it")
		},
	},
	{
		file: "step/events/woken.json", follows: "step/events/after-tools.json",
		before: func(w *world) {
			waiting(w)
			w.feed("approve/events/wait.json")
			w.approved()
		},
		want: func(t *testing.T, w *world, out []byte) {
			requireNext(t, runtime.NextTools, out)
			batch := fmt.Appendf(nil, `{"name":"%s-0","state":%s}`, runSample, out)
			out, err := w.functions["tool"].Tool(context.Background(), batch)
			require.NoError(t, err)
			requireNext(t, runtime.NextStep, out)
			require.Equal(t, []string{"orders.get", "orders.get", "orders.get", "refunds.create"}, w.entered, "the countersigned refund is made")
		},
	},
	{
		file: "step/events/failure.json", follows: "step/events/first-step.json",
		before: func(w *world) { w.started(); w.feed("step/events/first-step.json") },
		want: func(t *testing.T, w *world, out []byte) {
			requireNext(t, runtime.NextFailed, out)
			s := w.state(runSample)
			require.Equal(t, run.ReasonError, s.Reason)
			require.Contains(t, s.Error.Message, "Sandbox.Timedout")
			require.NotContains(t, s.Error.Message, "RequestId", "a function's text stays out of the record")
		},
	},
}

// waiting brings the run to where it waits for a countersignature.
func waiting(w *world) {
	w.started()
	for _, file := range []string{"step/events/first-step.json", "tool/events/batch.json", "step/events/after-tools.json"} {
		w.feed(file)
	}
}

func requireNext(t *testing.T, want string, out []byte) runtime.Route {
	t.Helper()
	var r runtime.Route
	require.NoError(t, json.Unmarshal(out, &r))
	require.Equal(t, want, r.Next)
	return r
}

func said(s run.AgentState) string {
	text, _ := s.Messages.At(0).Block.(run.Text)
	return text.Text
}

// Each sample does what the README says of it, with the permissions of its function's role.
func TestSamplesOfTheMachine(t *testing.T) {
	var files []string
	for _, s := range ofTheMachine {
		files = append(files, s.file)
		t.Run(s.file, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s.before(w)
				s.want(t, w, w.feed(s.file))
			})
		})
	}
	require.ElementsMatch(t, samples(t, "step", "tool", "approve"), files, "every file has a row")
}

// A sample's state is what the state before it gives: what travels cannot drift.
func TestSamplesFollowEachOther(t *testing.T) {
	for _, s := range ofTheMachine {
		if s.follows == "" {
			continue
		}
		i := slices.IndexFunc(ofTheMachine, func(o sample) bool { return o.file == s.follows })
		inWorld(t, func(t *testing.T, w *world) {
			ofTheMachine[i].before(w)
			out := w.feed(s.follows)
			state := decode(t, s.file)["state"]
			state, _ = without(t, state, "failure")
			require.JSONEq(t, string(out), string(state), "%s: state: want the output of %s", s.file, s.follows)
		})
	}
}

// A sample has the keys that the state machine's Parameters give the function, and its execution's name is that of the ARN.
func TestSamplesHaveTheMachinesKeys(t *testing.T) {
	p, err := Read(sampleRoot, nil)
	require.NoError(t, err)
	for _, file := range samples(t, "step", "tool", "approve") {
		got := decode(t, file)
		placeholder := "${" + strings.ToUpper(file[:1]) + strings.Split(file, "/")[0][1:] + "FunctionArn}"
		matched := 0
		for name, s := range p.Machine.States {
			if s.Parameters["FunctionName"] != placeholder {
				continue
			}
			payload, ok := s.Parameters["Payload"].(map[string]any)
			require.True(t, ok, name)
			var want []string
			for key := range payload {
				want = append(want, strings.TrimSuffix(key, ".$"))
			}
			require.ElementsMatch(t, want, slices.Collect(maps.Keys(got)), "%s: want what state %s passes", file, name)
			matched++
		}
		require.Positive(t, matched, "no state invokes %s", placeholder)
		var execution, name string
		require.NoError(t, json.Unmarshal(got["execution"], &execution))
		require.NoError(t, json.Unmarshal(got["name"], &name))
		require.True(t, strings.HasSuffix(execution, ":"+name), file)
	}
}

func decode(t *testing.T, file string) map[string]json.RawMessage {
	t.Helper()
	var out map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(readSample(t, file), &out), file)
	return out
}

// without is an object less one of its keys, and what stood there.
func without(t *testing.T, object json.RawMessage, key string) (rest, value json.RawMessage) {
	t.Helper()
	var m map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(object, &m))
	value = m[key]
	delete(m, key)
	rest, err := json.Marshal(m)
	require.NoError(t, err)
	return rest, value
}

// An event of the rules' pattern becomes, by their input transformers, the state of the samples: what the rule starts is what is tried.
func TestRulesMakeTheSamples(t *testing.T) {
	for rule, c := range map[string]struct{ file, event string }{
		"MessageRule": {"step/events/event-message.json", `{"id":"7b1f1f0e-5c0b-4a1e-9a57-0d5cf1f0c9aa","source":"countersign-dev",
			"detail-type":"Countersign Run Requested",
			"detail":{"agent":"refunds","message":"A wheel of my \"office chair\" is broken. Order 1002."}}`},
		"InputRule": {"step/events/event-input.json", `{"id":"c2a4b7de-93f1-4f0e-8a65-2f4e1f6a7b10","source":"countersign-dev",
			"detail-type":"Countersign Run Requested",
			"detail":{"agent":"refunds","order":"1002","photos":3,"by":"web form"}}`},
		"AlarmRule": {alarmFile, alarmEvent(t)},
	} {
		var event map[string]any
		require.NoError(t, json.Unmarshal([]byte(c.event), &event))
		r := newRule(t, rule)
		require.True(t, r.matches(event), rule)
		for _, other := range []string{"MessageRule", "InputRule", "AlarmRule"} {
			require.Equal(t, other == rule, newRule(t, other).matches(event), "%s: one rule takes it, and so one execution starts", other)
		}
		require.JSONEq(t, string(decode(t, c.file)["state"]), r.transform(t, event), rule)
	}
}

// An event that is delivered again starts nothing new: the second execution ends without a write, and no model is asked.
func TestRedeliveredEventStartsNothing(t *testing.T) {
	for _, file := range []string{
		"step/events/event-message.json", "step/events/event-input.json", "step/events/event-s3.json", "step/events/event-sqs.json",
		"step/events/event-slack.json", "step/events/event-schedule.json", alarmFile,
	} {
		inWorld(t, func(t *testing.T, w *world) {
			if file == alarmFile {
				w.alarmed()
			}
			first := requireNext(t, runtime.NextTools, w.feed(file))
			entries := w.state(first.Run).Entries
			again := bytes.Replace(readSample(t, file), []byte(`"name": "`), []byte(`"name": "again-`), 1)
			out, err := w.functions["step"].Step(context.Background(), again)
			require.NoError(t, err)
			r := requireNext(t, runtime.NextDone, out)
			require.Equal(t, first.Run, r.Run)
			require.Equal(t, entries, w.state(first.Run).Entries)
			require.Equal(t, 1, w.asked)
		})
	}
}
