package repotest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A sample has the keys that the state machine's Parameters give the function, and its execution's name is that of the ARN.
func TestSamplesHaveTheMachinesKeys(t *testing.T) {
	p := project(t, nil)
	for _, file := range samples(t, "step", "tool", "approve") {
		got := strictly[map[string]json.RawMessage](t, file)
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

// A state tries again what Lambda ended or could not begin, whatever Lambda calls that.
func TestLambdasErrorsAreTriedAgain(t *testing.T) {
	for name, s := range project(t, nil).Machine.States {
		var retried []string
		for _, r := range s.Retry {
			retried = append(retried, r.ErrorEquals...)
		}
		if s.Parameters["FunctionName"] != nil {
			require.Subset(t, retried, []string{"Sandbox.Timedout", "Runtime.ExitError", "Runtime.OutOfMemory",
				"Lambda.ENILimitReachedException", "Lambda.SubnetIPAddressLimitReachedException"}, name)
		}
	}
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
		want := strictly[map[string]json.RawMessage](t, c.file)["state"]
		require.JSONEq(t, string(want), r.transform(event), rule)
	}
}
