package lambdafn

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/badinput"
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

// Every key of what the state machine and those who start executions send, wrong in every way.
func TestBadTasks(t *testing.T) {
	inBubble(t, func(t *testing.T, d *deployed) {
		d.replys = []agent.Reply{{Calls: []agent.ReplyCall{{ID: "c1", Name: "pay"}}}}
		run := d.must("step", "exec-1", `{"agent":"clerk","message":"Pay Ana.","key":"evt-1"}`).Run
		count := 0
		for _, c := range []struct {
			function, good string
			keys           fields
		}{
			{"step", aimed, eventKeys}, {"tool", aimed, eventKeys}, {"approve", waiting, eventKeys}, {"approve", waiting, tokenKeys}, {"step", byWord, eventKeys}, {"step", byInput, eventKeys},
		} {
			e := d.functionEdge(func(payload []byte) error { _, err := d.Invoke(t.Context(), c.function, payload); return err })
			good := strings.ReplaceAll(c.good, "RUN", run)
			for _, bad := range append(badinput.Cases(good, c.keys), badinput.WholeCases(good)...) {
				if strings.HasSuffix(bad.Key, "/zzz") && (bad.Key != "/state/zzz" || c.good == aimed || c.good == waiting) {
					continue // of a newer version
				}
				if bad.What == "the text: another protocol" || bad.What == "the text: null" || bad.Key == "/state" {
					bad.KeyNotNamed = true
				}
				e.RequireRefused(t, bad)
				count++
			}
			e.RequireRefused(t, badinput.Case{What: "260 KiB and a byte", Body: badinput.Padded(good, runtime.MaxStart+1)})
		}
		t.Logf("%d tasks", count)
	})
}

// A key of the event without a line fails.
func TestBadTasksAreComplete(t *testing.T) {
	var have []string
	for key := range eventKeys {
		have = append(have, key)
	}
	for key := range tokenKeys {
		have = append(have, key)
	}
	require.ElementsMatch(t, badinput.Keys(reflect.TypeFor[event]()), have)
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
		run := d.must("step", "exec-1", `{"agent":"clerk","message":"Hello.","key":"evt-1"}`).Run
		take := answers{d.Inputs}
		e := d.functionEdge(func(payload []byte) error {
			got, ok := readDelivery(payload)
			if !ok {
				return invalidf("tenant, answer: an event of the gateway, which says what it wants")
			}
			_, err := take.accept(t.Context(), got)
			return err
		})
		var have []string
		count := 0
		for _, good := range []string{`{"tenant":"default","answer":{"run":"RUN","call":"c1","result":{"n":1}}}`, `{"tenant":"default","answer":{"run":"RUN","call":"c1","error":"no"}}`} {
			for _, c := range badinput.Cases(strings.ReplaceAll(good, "RUN", run), answerKeys) {
				if strings.HasSuffix(c.Key, "/zzz") { // an event may say more
					continue
				}
				c.KeyNotNamed = !json.Valid(c.Body)
				e.RequireRefused(t, c)
				count++
			}
			for _, c := range badinput.WholeCases(good) {
				e.RequireRefused(t, c)
				count++
			}
		}
		for key := range answerKeys {
			have = append(have, key)
		}
		all := badinput.Keys(reflect.TypeFor[delivery]())
		for _, key := range badinput.Keys(reflect.TypeFor[eventAnswer]()) {
			all = append(all, "/answer"+key)
		}
		require.ElementsMatch(t, all, have)
		t.Logf("%d answers", count)
	})
}

func testLog(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }

// elsewhere is what an event of another kind is.
var elsewhere = regexp.MustCompile(`source, detail-type|detail|notify|EventBridge`)

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
		d.must("step", "exec-1", `{"agent":"clerk","message":"Hello.","key":"evt-1"}`)
		log := &strings.Builder{}
		d.Log = testLog(log)
		s := d.Sweep(d.blobs, nil, "arn:machine", noMetrics{})
		e := d.functionEdge(func(payload []byte) error { _, err := s(t.Context(), payload); return err })
		e.Observed = log.String
		good := `{"source":"aws.states","detail-type":"Step Functions Execution Status Change","detail":{"name":"x","stateMachineArn":"arn:machine","status":"FAILED","input":"{}"}}`
		const asked = `{"notify":{"tenant":"acme","run":"r1"}}`
		count := 0
		for _, c := range slices.Concat(badinput.Cases(good, triggerKeys), badinput.WholeCases(good), badinput.Cases(asked, notifyKeys)) {
			if strings.HasSuffix(c.Key, "/zzz") {
				continue
			}
			c.KeyNotNamed = true
			send := e.Send
			e.Send = func(c badinput.Case) badinput.Answer {
				got := send(c)
				require.True(t, elsewhere.MatchString(got.Message), "%s: %s", c, got.Message)
				return got
			}
			e.RequireRefused(t, c)
			e.Send = send
			count++
		}
		all := badinput.Keys(reflect.TypeFor[trigger]())
		for _, key := range badinput.Keys(reflect.TypeFor[executionEnd]()) {
			all = append(all, "/detail"+key)
		}
		var have []string
		for key := range triggerKeys {
			have = append(have, key)
		}
		for key := range notifyKeys {
			have = append(have, key)
		}
		require.ElementsMatch(t, all, have)
		t.Logf("%d triggers", count)
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
