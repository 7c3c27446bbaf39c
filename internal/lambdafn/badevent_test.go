package lambdafn

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/runtime"
)

type fields = map[string]badinput.Field

const anyJSON = "snbao"

// eventKeys is the table of what the state machine sends its functions.
var eventKeys = fields{
	"/execution":     {Takes: "s"},
	"/name":          {Takes: "s", Required: true, Max: 80, Bad: map[string]string{`""`: "", `"a b"`: "", `"a#b"`: "", `"a\u0000"`: "", `"../x"`: "", `"\u202e"`: ""}},
	"/state":         {Takes: "o"},
	"/state/tenant":  {Takes: "s", Bad: map[string]string{`"A"`: "", `"a#b"`: "", `"a\u0000"`: "", `"default "`: "", badinput.Text(300): ""}},
	"/state/run":     {Takes: "s", Bad: map[string]string{`"r#x"`: "", `"r\u0000"`: "", `"R"`: "", `"../r"`: "", badinput.Text(300): ""}},
	"/state/at":      {Takes: "i", Bad: map[string]string{`-1`: ""}},
	"/state/woken":   {Takes: "i", Bad: map[string]string{`-1`: ""}},
	"/state/failure": {Takes: "o"}, "/state/failure/Error": {Takes: "s"}, "/state/failure/Cause": {Takes: "s"},
	"/state/next": {Takes: "s"}, "/state/waitSeconds": {Takes: "i"}, "/state/successor": {Takes: "s"},

	"/state/agent":   {Takes: "s", Bad: map[string]string{`""`: "", `null`: "", `"nobody"`: "", `"Clerk"`: "", `"clerk\u202e"`: "", badinput.Text(5000): ""}},
	"/state/key":     {Takes: "s", Max: 256, Bad: map[string]string{`"a\u0000b"`: ""}},
	"/state/subject": {Takes: "s", Max: 1024, Bad: map[string]string{`"a\u0000b"`: ""}},
	"/state/message": {Takes: "sa", Bad: map[string]string{
		`""`: "", `[]`: "", `[[]]`: "", `[null]`: "", `["x"]`: "", `[{"type":"text"}]`: "", `[{"type":"text","text":"x","zzz":1}]`: "", `[{"type":"text","text":""}]`: "",
		`[{"type":"media","mediaType":"image/png","data":"aGk"}]`: "", `[{"type":"media","mediaType":"image","data":"aGk="}]`: "",
		`[{"type":"media","mediaType":"image/png","blob":"` + strings.Repeat("0", 64) + `"}]`: "", `[{"type":"tool_use","id":"x","name":"pay","input":{}}]`: "",
	}},
	"/state/input": {Takes: anyJSON},
}

// tokenKeys are those that functions/approve alone reads.
var tokenKeys = fields{
	"/token":    {Takes: "s", Required: true, Max: 4096, Bad: map[string]string{`""`: ""}},
	"/retries":  {Takes: "i", Bad: map[string]string{`-1`: "", `1048576`: ""}},
	"/redrives": {Takes: "i", Bad: map[string]string{`-1`: ""}},
}

// aimed are what executions of a run that is there send, with its id and the wait that it is in.
const (
	aimed   = `{"execution":"e","name":"exec-1","state":{"tenant":"default","run":"RUN","next":"wait","at":0,"woken":0,"waitSeconds":60,"successor":"","failure":{"Error":"e","Cause":"c"}}}`
	waiting = `{"execution":"e","name":"exec-1","token":"t1","retries":0,"redrives":0,"state":{"tenant":"default","run":"RUN","at":0,"woken":1}}`
	byWord  = `{"execution":"e","name":"exec-9","state":{"tenant":"default","agent":"clerk","key":"k9","message":"x","subject":"s"}}`
	byInput = `{"execution":"e","name":"exec-9","state":{"agent":"clerk","input":{"n":1}}}`
)

// functionEdge is a function over the fakes; its errors are those of kind Invalid.
func (d *deployed) functionEdge(call func(payload []byte) error) *badinput.Edge {
	return &badinput.Edge{
		Code: string(KindInvalid),
		Send: func(c badinput.Case) badinput.Answer {
			err := call(c.Body)
			synctest.Wait()
			var known *Error
			switch {
			case err == nil:
				return badinput.Answer{}
			case !errors.As(err, &known):
				return badinput.Answer{Code: "an error of no kind", Message: err.Error()}
			}
			return badinput.Answer{Code: string(known.Kind), Message: err.Error()}
		},
		State:    func() string { return badinput.State(d.rows, d.blobs, d.asked, d.paid, d.woken) },
		Observed: func() string { return "" },
	}
}

// requireAllRefused sends a text with each key wrong in every way, and wrong as a whole. Keys that are not known are of a newer
// version, but for one.
func requireAllRefused(t *testing.T, e *badinput.Edge, good string, keys fields, unknown string, unnamed func(badinput.Case) bool) {
	t.Helper()
	for _, c := range append(badinput.Cases(good, keys), badinput.WholeCases(good)...) {
		if strings.HasSuffix(c.Key, "/zzz") && c.Key != unknown {
			continue
		}
		c.KeyNotNamed = unnamed(c)
		e.RequireRefused(t, c)
	}
}

// requireComplete fails for a key of the types, of which each lies below a path, that has no line.
func requireComplete(t *testing.T, tables []fields, types map[string]reflect.Type) {
	t.Helper()
	var have, want []string
	for _, table := range tables {
		have = slices.AppendSeq(have, maps.Keys(table))
	}
	for path, of := range types {
		for _, key := range badinput.Keys(of) {
			want = append(want, path+key)
		}
	}
	require.ElementsMatch(t, want, have)
}

// Every key of what the state machine and those who start executions send, wrong in every way.
func TestBadTasks(t *testing.T) {
	inBubble(t, func(t *testing.T, d *deployed) {
		d.replys = []agent.Reply{{Calls: []agent.ReplyCall{{ID: "c1", Name: "pay"}}}}
		run := d.must("step", `{"agent":"clerk","message":"Pay Ana.","key":"evt-1"}`).Run
		for _, c := range []struct {
			function, good string
			keys           fields
			unknown        string
		}{
			{"step", aimed, eventKeys, ""}, {"tool", aimed, eventKeys, ""}, {"approve", waiting, eventKeys, ""},
			{"approve", waiting, tokenKeys, ""}, {"step", byWord, eventKeys, "/state/zzz"}, {"step", byInput, eventKeys, "/state/zzz"},
		} {
			e := d.functionEdge(func(payload []byte) error { _, err := d.Invoke(t.Context(), c.function, payload); return err })
			good := strings.ReplaceAll(c.good, "RUN", run)
			requireAllRefused(t, e, good, c.keys, c.unknown, func(bad badinput.Case) bool {
				return bad.KeyNotNamed || bad.What == "the text: another protocol" || bad.What == "the text: null" || bad.Key == "/state"
			})
			e.RequireRefused(t, badinput.Case{What: "260 KiB and a byte", Body: badinput.Padded(good, runtime.MaxStart+1)})
		}
	})
}

// A key of the event without a line fails.
func TestBadTasksAreComplete(t *testing.T) {
	requireComplete(t, []fields{eventKeys, tokenKeys}, map[string]reflect.Type{"": reflect.TypeFor[event]()})
	for key := range eventKeys {
		require.True(t, badinput.Has(aimed, key) || badinput.Has(byWord, key) || badinput.Has(byInput, key), key)
	}
}

// answerKeys is the table of a service's answer as the event rule hands it on.
var answerKeys = fields{
	"/tenant":        {Takes: "s", Bad: map[string]string{`"A"`: "", `"a#b"`: "", `"a\u0000"`: "", badinput.Text(300): ""}},
	"/answer":        {Takes: "o", Says: "answer"},
	"/answer/run":    {Takes: "s", Required: true, Max: 256, Bad: map[string]string{`""`: "", `"r\u0000"`: "", `"rnone"`: ""}, Says: "run"},
	"/answer/call":   {Takes: "s", Required: true, Max: 256, Bad: map[string]string{`""`: "", `"c\u0000"`: ""}},
	"/answer/result": {Takes: anyJSON},
	"/answer/error":  {Takes: "s", Required: true},
}

func TestBadAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, d *deployed) {
		run := d.must("step", `{"agent":"clerk","message":"Hello.","key":"evt-1"}`).Run
		e := d.functionEdge(func(payload []byte) error {
			got, ok := readDelivery(payload)
			if !ok {
				return invalidf("tenant, answer: an event of the gateway, which says what it wants")
			}
			_, err := acceptAnswer(t.Context(), d.Inputs, got)
			return err
		})
		for _, of := range []string{`"result":{"n":1}`, `"error":"no"`} {
			good := `{"tenant":"default","answer":{"run":"` + run + `","call":"c1",` + of + `}}`
			requireAllRefused(t, e, good, answerKeys, "", func(c badinput.Case) bool { return !json.Valid(c.Body) })
		}
		requireComplete(t, []fields{answerKeys}, map[string]reflect.Type{
			"": reflect.TypeFor[delivery](), "/answer": reflect.TypeFor[eventAnswer](),
		})
	})
}

// triggerKeys is the table of the events that functions/sweep takes.
var triggerKeys = fields{
	"/source":                 {Takes: "s", Required: true, Bad: map[string]string{`"aws.canary"`: "", `"AWS.STATES"`: "", `""`: ""}},
	"/detail-type":            {Takes: "s", Required: true, Bad: map[string]string{`"Scheduled event"`: "", `""`: ""}},
	"/detail":                 {Takes: "o", Required: true, Bad: map[string]string{`{}`: ""}},
	"/detail/name":            {Takes: "s", Required: true, Max: 80, Bad: map[string]string{`""`: "", `"a b"`: "", `"x\u0000"`: ""}},
	"/detail/stateMachineArn": {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"arn:aws:states:other"`: ""}},
	"/detail/status":          {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"failed"`: "", `"BROKEN"`: ""}},
	"/detail/input":           {Takes: "s"},
}

// notifyKeys is the table of functions/approve's event.
var notifyKeys = fields{
	"/notify": {Takes: "o", Required: true}, "/notify/tenant": {Takes: "s", Required: true, Bad: map[string]string{`"A"`: "", `""`: ""}},
	"/notify/run": {Takes: "s", Required: true, Max: 256, Bad: map[string]string{`""`: ""}},
}

func TestBadTriggers(t *testing.T) {
	inBubble(t, func(t *testing.T, d *deployed) {
		d.must("step", `{"agent":"clerk","message":"Hello.","key":"evt-1"}`)
		log := &strings.Builder{}
		d.Log = slog.New(slog.NewTextHandler(log, nil))
		s := d.Sweep(d.blobs, nil, "arn:machine", (*observe.EMF)(nil))
		e := d.functionEdge(func(payload []byte) error { _, err := s(t.Context(), payload); return err })
		e.Observed = log.String
		send := e.Send
		e.Send = func(c badinput.Case) badinput.Answer {
			got := send(c)
			require.Regexp(t, `source, detail-type|detail|notify|EventBridge`, got.Message, "%s", c)
			return got
		}
		const good = `{"source":"aws.states","detail-type":"Step Functions Execution Status Change","detail":
			{"name":"x","stateMachineArn":"arn:machine","status":"FAILED","input":"{}"}}`
		for example, keys := range map[string]fields{good: triggerKeys, `{"notify":{"tenant":"acme","run":"r1"}}`: notifyKeys} {
			requireAllRefused(t, e, example, keys, "", func(badinput.Case) bool { return true })
		}
		requireComplete(t, []fields{triggerKeys, notifyKeys}, map[string]reflect.Type{
			"": reflect.TypeFor[trigger](), "/detail": reflect.TypeFor[executionEnd](),
		})
	})
}

// What started an execution is read by the sweep as the execution itself reads it: of what that refuses, there is no run.
func TestStartedRunsAreReadAlike(t *testing.T) {
	inBubble(t, func(t *testing.T, d *deployed) {
		for _, c := range badinput.Cases(`{"tenant":"default","agent":"clerk","key":"k9","message":"x"}`, fields{
			"/tenant": {Takes: "s", Bad: map[string]string{`"A"`: ""}}, "/agent": {Takes: "s", Bad: map[string]string{`""`: ""}}, "/key": {Takes: "s"},
		}) {
			if strings.HasSuffix(c.Key, "/zzz") {
				continue
			}
			_, err := decode([]byte(fmt.Sprintf(`{"name":"x","state":%s}`, c.Body)))
			_, _, ok := runtime.StartedRun("x", c.Body)
			if err != nil {
				require.False(t, ok, "%s: %s", c, c.Body)
			}
		}
	})
}
