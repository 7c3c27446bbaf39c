package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// fakeCourier is a service behind the bus. It records its requests by id, and all other events.
type fakeCourier struct {
	mu   sync.Mutex
	seen map[string][]policy.Outgoing
}

func (c *fakeCourier) rule() standins.Rule {
	return standins.Rule{Name: "Courier", Pattern: json.RawMessage(`{"source": ["countersign"]}`), Target: func(_ context.Context, _ string, input []byte) error {
		var event struct {
			Type   string `json:"detail-type"`
			Detail policy.Outgoing
		}
		if err := json.Unmarshal(input, &event); err != nil {
			return err
		}
		if event.Type != event.Detail.Type {
			return fmt.Errorf("detail-type %s of an event of type %s", event.Type, event.Detail.Type)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.seen == nil {
			c.seen = map[string][]policy.Outgoing{}
		}
		c.seen[event.Detail.ID] = append(c.seen[event.Detail.ID], event.Detail)
		return nil
	}}
}

// received returns the events with an id, and requires them to be equal.
func (c *fakeCourier) received(t *testing.T, id string) []policy.Outgoing {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.seen[id] {
		require.Equal(t, c.seen[id][0], e, "one event for each id")
	}
	return append([]policy.Outgoing(nil), c.seen[id]...)
}

// bookingModel is a model that books a courier and reports the result.
func bookingModel(t *testing.T) *standins.Bedrock {
	t.Helper()
	return newModel(t, func(r standins.BedrockRequest) standins.Turn {
		b := standins.ToolUse("t1", "courier_book", `{"order":"1002"}`)
		if strings.Contains(string(r.Body), `"toolResult"`) {
			b = standins.Text("Booked.")
		}
		return standins.Reply{Blocks: []standins.Block{b}, Usage: standins.Usage{Input: 100, Output: 20}}
	})
}

// startBooking starts a run that calls the courier.
func (d *deployment) startBooking(tenant string) run.AgentState {
	d.t.Helper()
	def, err := agent.Definition{
		Name: "deliveries", System: "You book couriers.", Model: agent.ModelSpec{Provider: "bedrock", ID: "m"}, Permission: agent.Permission{Default: agent.DefaultAllow},
		Tools: []agent.ToolSpec{{
			Name: "courier.book", Kind: agent.KindService, Description: "Book a courier.", Domain: "eu",
			Schema: json.RawMessage(`{"type":"object","properties":{"order":{"type":"string"}},"required":["order"]}`),
		}},
	}.Resolve()
	require.NoError(d.t, err)
	require.NoError(d.t, def.Check())
	return d.start(runtime.Start{Tenant: tenant, Agent: &def, Key: "k", Subject: "order 1002"}, "Order 1002.")
}

// sendAnswer sends a service's answer to call t1 over the bus.
func (d *deployment) sendAnswer(run, rest string) {
	d.t.Helper()
	d.putEvent("Countersign Call Answered", fmt.Sprintf(`{"run":%q,"call":"t1",%s}`, run, rest))
}

// putEvent puts an event on the bus, as what the template's rules listen for, and returns its id.
func (d *deployment) putEvent(kind, detail string) (id string) {
	d.t.Helper()
	out, err := d.events.PutEvents(context.Background(), &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{
		{Source: aws.String(eventSource), DetailType: &kind, Detail: &detail},
	}})
	require.NoError(d.t, err)
	require.Zero(d.t, out.FailedEntryCount)
	return *out.Entries[0].EventId
}

// requireBooked requires one request to the service, one answer, and the event of the run's end.
func (d *deployment) requireBooked(c *fakeCourier, s run.AgentState, result string) {
	d.t.Helper()
	require.Equal(d.t, run.ReasonNaturalEnd, s.Reason, "%+v", s.Error)
	calls := s.Calls()
	require.Len(d.t, calls, 1)
	require.Equal(d.t, run.StatusSucceeded, calls[0].Status)
	require.Equal(d.t, 1, calls[0].Executions)
	require.Equal(d.t, result, calls[0].Result.Content)
	require.EqualValues(d.t, 2, s.Inferences)
	asked := c.received(d.t, s.Run+"/"+calls[0].ID)
	require.NotEmpty(d.t, asked)
	require.JSONEq(d.t, `{"order":"1002","parentSubject$$":"order 1002"}`, string(asked[0].Data))
	require.Equal(d.t, []string{"courier.book", "eu", "order 1002", s.Tenant, calls[0].ID}, []string{asked[0].Type, asked[0].Domain, asked[0].Subject, asked[0].Tenant, asked[0].Call})
	require.EqualValues(d.t, 120, asked[0].ExecutionUnits)
	require.Eventually(d.t, func() bool { return len(c.received(d.t, s.Run+"#end")) > 0 }, 2*time.Minute, 10*time.Millisecond)
	end := c.received(d.t, s.Run+"#end")[0]
	require.Equal(d.t, policy.TypeRunCompleted, end.Type)
	require.EqualValues(d.t, 240, end.ExecutionUnits)
	require.JSONEq(d.t, `{"reason":"natural_end","output":"Booked."}`, string(end.Data))
	require.Equal(d.t, &policy.JournalHead{Seq: s.Seq(), Hash: s.Hash()}, end.Journal)
}

// A service is asked over the bus and answers over it, three times each, once the run is parked and all functions are
// gone.
func TestServiceAnswersByEvent(t *testing.T) {
	c := &fakeCourier{}
	d := deploy(t, bookingModel(t), func(d *deployment) { d.bus.Deliveries, d.bus.Rules = 3, []standins.Rule{c.rule()} })
	s := d.waitFor(eventTenant, d.startBooking(eventTenant).Run, isParked)
	require.Equal(t, run.ForAnswer, s.Waits()[0].Wait.For)
	ours := d.startBooking(acme) // by the rule, an answer is one of the tenant default
	d.waitFor(acme, ours.Run, isParked)
	d.killAll()
	d.sendAnswer(ours.Run, `"result":1`)
	d.sendAnswer(s.Run, `"result":1,"error":"x"`)
	d.sendAnswer(s.Run, `"result":{"at":10.50}`)
	d.requireBooked(c, d.waitFor(eventTenant, s.Run, isDone), `{"at":10.50}`)
	d.sendAnswer(s.Run, `"error":"too late"`)
	require.Len(t, d.bus.Undelivered(), 2, "a late answer is taken and changes nothing; those that are no answers are refused")
	d.waitFor(acme, ours.Run, isParked)
}

// Answers by the API: the first one counts, and who says it again, or something else, is told whether it did.
func TestServiceAnswersByTheAPI(t *testing.T) {
	c := &fakeCourier{}
	d := deploy(t, bookingModel(t), func(d *deployment) { d.bus.Rules = []standins.Rule{c.rule()} })
	s := d.waitFor(acme, d.startBooking(acme).Run, isParked)
	ana := d.anaClient()
	one, err := ana.Run(t.Context(), s.Run)
	require.NoError(t, err)
	require.Equal(t, run.ForAnswer, one.Waiting[0].For)
	require.Empty(t, one.Waiting[0].Approval)
	say := func(result string) bool {
		got, err := ana.Input(t.Context(), s.Run, web.Input{Answers: []web.Answer{{Call: "t1", Result: json.RawMessage(result)}}}, "")
		require.NoError(t, err)
		return *got.Applied
	}
	require.True(t, say(`"10:50"`))
	require.False(t, say(`"11:50"`))
	d.requireBooked(c, d.waitFor(acme, s.Run, isDone), "10:50")
	require.False(t, say(`"10:50"`))
	_, err = ana.Input(t.Context(), "r2222222222222222222222222", web.Input{Answers: []web.Answer{{Call: "t1", Result: json.RawMessage(`1`)}}}, "")
	requireProblem(t, err, 404, web.RunNotFound)
	_, err = d.client("other", "eve", "operators").Input(t.Context(), s.Run, web.Input{Answers: []web.Answer{{Call: "t1", Result: json.RawMessage(`1`)}}}, "")
	requireProblem(t, err, 404, web.RunNotFound)
}
