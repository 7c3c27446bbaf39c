package lambdafn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web"
)

// pay is the model's script: one call that waits for a person, then the end.
const pay = `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 5}}], "text": "I will pay."}
{"text": "Paid."}`

type payment struct {
	Amount int    `json:"amount"`
	To     string `json:"to,omitempty"`
}

// stack is a deployment: the state machine and its functions on the local engine, and beside them functions/http and
// functions/sweep over ports of their own, as other processes have them.
type stack struct {
	t       *testing.T
	machine *local.Machine
	agents  *registry.Registry
	counts  *fault.Table
	table   *fault.Table
	api     lambdafn.Invoke
	sweep   lambdafn.Invoke
	metrics *metrics
	logs    *lines
	paid    chan payment
	mute    atomic.Bool // Step Functions starts nothing
}

func inStack(t *testing.T, model string, f func(t *testing.T, s *stack)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, deploy(t, model)) })
}

// deploy makes a deployment of an agent.
func deploy(t *testing.T, model string, change ...func(*agent.Definition)) *stack {
	t.Helper()
	s := &stack{t: t, counts: fault.NewTable(store.NewMemory()), metrics: &metrics{}, logs: &lines{}, paid: make(chan payment, 10)}
	s.table = fault.NewTable(s.counts)
	payTool := tool.Must(tool.New("pay", "Pays.", run.EffectNonIdempotent, func(_ context.Context, _ tool.Call, in payment) (agent.ToolResultData, error) {
		s.paid <- in
		return tool.Text("paid"), nil
	}, nil))
	s.agents = registry.Must(registry.New(payTool))
	def, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	def.Name, def.Version, def.System, def.Tools = "payer", "1", "You pay.", []agent.ToolSpec{payTool.Spec()}
	def.Model.Provider, def.Model.File = "script", "model.jsonl"
	for _, f := range change {
		f(&def)
	}
	require.NoError(t, s.agents.Add(def))
	lines := must(script.Parse("model.jsonl", []byte(model)))
	blobs := store.NewMemoryBlobs()
	c := clock.System()
	s.machine, err = local.New(local.Config{
		Table: s.counts, Blobs: blobs, Model: script.New(lines), Tools: s.agents.Tools(), Agents: s.agents.Agent, Clock: c, IDs: clock.NewIDs(c),
		Executions: local.NewExecutions(store.NewMemory()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.machine.Engine.Close()) })
	ports := s.machine.Ports
	ports.Table, ports.Journal = s.table, store.NewJournal(s.table, 8)
	ports.Model, ports.Tools, ports.Uploads = nil, nil, permits{}
	isMute := func(c fault.Call) bool { return s.mute.Load() && c.Port == fault.WaiterStart }
	ports.Waiter = fault.NewWaiter(ports.Waiter, fault.OnlyIf(isMute, fault.Fail(store.ErrThrottled)))
	d := s.deployment(ports)
	s.api = d.Serve(s.agents, lambdafn.Identity{})
	s.sweep = d.Sweep(blobs, executions{s.machine.Engine}, machineARN, s.metrics)
	return s
}

// deployment is what stands behind functions/http and functions/sweep, over ports of their own.
func (s *stack) deployment(p runtime.Ports) *lambdafn.Deployment {
	d := &lambdafn.Deployment{
		Ports: p, Definitions: runtime.WithCurrentPolicy(
			runtime.PinnedDefinitions(p.Blobs), s.machine.Agents,
		), Agents: s.machine.Agents,
		Ring: func() (*secrets.Ring, error) { return ring, nil }, Log: s.log(),
	}
	return d.Compose()
}

func (s *stack) log() *slog.Logger { return observe.NewLogger(s.logs, store.ErrThrottled) }

const (
	machineARN   = "arn:aws:states:local:000000000000:stateMachine:countersign"
	executionARN = "arn:aws:states:local:000000000000:execution:countersign:"
)

// permits names the place of an upload by its tenant and digest.
type permits struct{}

func (permits) Presign(_ context.Context, tenant, digest string, _ int64, _ string) (store.Upload, error) {
	return store.Upload{URL: "https://uploads.example/" + tenant + "/" + digest}, nil
}

// executions is the engine as Step Functions' lists show it.
type executions struct{ engine *asl.Engine }

func (x executions) Running(ctx context.Context, _ string) (page []runtime.Execution, next string, err error) {
	for _, d := range x.engine.List(ctx, asl.Running) {
		page = append(page, runtime.Execution{Name: d.Name, Started: d.StartDate})
	}
	return page, "", nil
}

func (x executions) Input(ctx context.Context, name string) ([]byte, bool, error) {
	d, err := x.engine.Describe(ctx, executionARN+name)
	if _, ok := errors.AsType[*asl.Error](err); ok {
		return nil, false, nil
	}
	return d.Input, true, err
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// metrics is what was counted, by name and dimensions.
type metrics struct {
	mu      sync.Mutex
	counted map[string]int64
}

func (m *metrics) Count(name string, n int64, dims ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counted == nil {
		m.counted = map[string]int64{}
	}
	m.counted[strings.Join(append([]string{name}, dims...), " ")] += n
}

func (m *metrics) Seconds(name string, d time.Duration, dims ...string) {
	m.Count(name, int64(d/time.Second), dims...)
}

func (m *metrics) take() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.counted
	m.counted = nil
	return got
}

// ana may decide; bob works for another company.
var (
	ana = map[string]string{"tenant": "acme", "sub": "ana", "groups": "[operators staff]"}
	bob = map[string]string{"tenant": "globex", "sub": "bob", "groups": "[operators]"}
)

// request makes an event of payload format 2.0 of a method and path, as API Gateway sends it. Nil claims = nobody was
// verified.
func request(line, body string, claims map[string]string, headers ...string) []byte {
	method, path, _ := strings.Cut(line, " ")
	path, query, _ := strings.Cut(path, "?")
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: path, RawQueryString: query, Body: body, Headers: map[string]string{"accept": "application/json"},
	}
	e.RequestContext.Stage = "$default"
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path = method, path
	if body != "" {
		e.Headers["content-type"] = "application/json"
	}
	for i := 0; i < len(headers); i += 2 {
		e.Headers[headers[i]] = headers[i+1]
	}
	if claims == nil {
		return mustJSON(e)
	}
	return claiming(claims)(mustJSON(e))
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// do sends an event and reads the answer.
func (s *stack) do(claims map[string]string, line, body string, headers ...string) events.APIGatewayV2HTTPResponse {
	s.t.Helper()
	return s.answered(s.api(s.t.Context(), request(line, body, claims, headers...)))
}

// must is the value of a call that has to succeed.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// answered reads an answer, which had to come.
func (s *stack) answered(out []byte, err error) (a events.APIGatewayV2HTTPResponse) {
	s.t.Helper()
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(out, &a))
	return a
}

// read sends an event that must be answered with that status, and reads the answer's body.
func read[T any](s *stack, claims map[string]string, status int, line, body string, headers ...string) T {
	s.t.Helper()
	a := s.do(claims, line, body, headers...)
	require.Equal(s.t, status, a.StatusCode, a.Body)
	var v T
	require.NoError(s.t, json.Unmarshal([]byte(a.Body), &v))
	return v
}

// waiting starts a run that waits for approval, and gives it.
func (s *stack) waiting(claims map[string]string, key string) web.Run {
	s.t.Helper()
	a := read[web.Accepted](s, claims, 202, "POST /v1/runs", `{"agent":"payer","message":"pay 5","key":"`+key+`"}`)
	synctest.Wait()
	r := read[web.Run](s, claims, 200, "GET /v1/runs/"+a.ID, "")
	require.Equal(s.t, run.RunWaiting, r.Status)
	return r
}

// writes is how many writes there have been.
func (s *stack) writes() int64 {
	c := s.counts.Counts()
	return c.Writes + c.Transactions
}

// dump is everything in acme's lists, as the journal holds it.
func (s *stack) dump() string {
	s.t.Helper()
	out := map[string]run.AgentState{}
	for _, status := range []run.RunStatus{run.RunRunning, run.RunWaiting, run.RunDone} {
		heads, _, err := s.machine.Ports.Journal.List(context.Background(), "acme", status, 200, "")
		require.NoError(s.t, err)
		for _, h := range heads {
			l := must(s.machine.Ports.Journal.Load(context.Background(), "acme", h.Run))
			require.Empty(s.t, l.Inbox)
			out[h.Run] = l.State
		}
	}
	return string(mustJSON(out))
}

func with(claims map[string]string, name, value string) map[string]string {
	out := maps.Clone(claims)
	out[name] = value
	return out
}

// A run is accepted once it is written. Where its execution cannot be started, a client with a key is told to try
// again, which starts it; one without is not, since it would start another, and the sweep starts this one.
func TestRunIsAcceptedOnceItIsWritten(t *testing.T) {
	inStack(t, pay+"\n"+pay, func(t *testing.T, s *stack) {
		const body = `{"agent":"payer","message":"pay 5"}`
		s.mute.Store(true)
		late := read[web.Accepted](s, ana, 202, "POST /v1/runs", body)
		read[web.Problem](s, ana, 503, "POST /v1/runs", body, "idempotency-key", "k")
		require.Contains(t, s.logs.String(), "its execution is not started yet")
		s.mute.Store(false)
		keyed := read[web.Accepted](s, ana, 202, "POST /v1/runs", body, "idempotency-key", "k")
		require.Equal(t, agent.RunID("acme", "payer", "k"), keyed.ID)
		time.Sleep(10 * time.Minute)
		require.Equal(t, run.RunRunning, read[web.Run](s, ana, 200, "GET /v1/runs/"+late.ID, "").Status)
		require.Equal(t, map[runtime.Repair]int64{runtime.RepairStarted: 1}, s.swept(ruleEvent).Repaired)
		synctest.Wait()
		for _, id := range []string{late.ID, keyed.ID} {
			require.Equal(t, run.RunWaiting, read[web.Run](s, ana, 200, "GET /v1/runs/"+id, "").Status)
		}
	})
}

// ring is the stacks'.
var ring = func() *secrets.Ring {
	r, err := secrets.Parse(`{"id":"1","key":"0123456789abcdef0123456789abcdef"}`)
	if err != nil {
		panic(err)
	}
	return r
}()

// addressed is a token for the run's call c1.
func addressed(tenant, run string) string {
	return secrets.Token(
		ring, secrets.Claim{Tenant: tenant, Run: run, Call: "c1", Expires: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)},
	)
}

// Infrastructure that fails is a problem to try again or an internal one; what it said stays inside, and out of the
// log.
func TestInfrastructureFails(t *testing.T) {
	const canary = "sk-canary-7331"
	for _, c := range []struct {
		err    error
		status int
	}{
		{fmt.Errorf("the table said %s: %w", canary, store.ErrThrottled), 503},
		{fmt.Errorf("%s: connection reset", canary), 500},
		{context.DeadlineExceeded, 503},
	} {
		inStack(t, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 5, "to": "`+canary+`"}}], "text": "`+canary+`"}`, func(t *testing.T, s *stack) {
			run := s.waiting(ana, "k")
			s.table.Use(fault.Fail(c.err))
			for _, line := range []string{
				"GET /v1/runs", "GET /v1/runs/" + run.ID, "GET /v1/approvals", "POST /v1/runs", "POST /v1/runs/" + run.ID + "/cancel",
				"POST /v1/approvals/" + run.Waiting[0].Approval + "/decision", "GET /v1/runs/" + run.ID + "/events",
			} {
				body := map[bool]string{true: `{"agent":"payer","message":"` + canary + `"}`, false: ""}[line == "POST /v1/runs"]
				if strings.HasSuffix(line, "/decision") {
					body = `{"action":"deny","note":"` + canary + `"}`
				}
				a := s.do(ana, line, body, "authorization", "Bearer "+canary, "idempotency-key", canary)
				require.Equal(t, c.status, a.StatusCode, "%s: %s", line, a.Body)
				require.NotContains(t, a.Body, canary)
			}
			s.table.Use(nil)
			for _, bad := range []string{`{"agent":"` + canary + `","message":"x"}`, `{"` + canary + `":1}`, canary} {
				require.Equal(t, 400, s.do(ana, "POST /v1/runs?", bad).StatusCode)
			}
			s.do(with(ana, "tenant", canary+"!"), "GET /v1/runs?x="+canary, "")
			s.do(nil, "GET /"+canary, "", "authorization", canary)
			_, err := s.api(t.Context(), []byte(`{"canary":"`+canary+`"}`))
			require.NotContains(t, err.Error(), canary)
			require.NotContains(t, s.logs.String(), canary)
			require.Contains(t, s.logs.String(), map[int]string{500: "request failed", 503: "request put off"}[c.status])
			require.Contains(t, s.logs.String(), "POST /v1/runs/{id}/cancel")
		})
	}
}

// A store that does not answer is a problem for the client and a line in the log, before the function's own time is up.
func TestAnswersInTime(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		run := s.waiting(ana, "k")
		for line, hangs := range map[string]bool{"GET /v1/runs": true, "GET /v1/runs/" + run.ID + "/events": false} {
			s.table.Use(func(ctx context.Context, c fault.Call, call func() error) error {
				if hangs && c.Port == fault.TableQuery {
					<-ctx.Done()
					return ctx.Err()
				}
				return call()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			begin := time.Now()
			a := s.answered(s.api(ctx, request(line, "", ana, "accept", "text/event-stream", "last-event-id", "99")))
			require.NoError(t, ctx.Err())
			require.Equal(t, 5*time.Second, time.Since(begin))
			cancel()
			require.Equal(t, map[bool]int{true: 503, false: 200}[hangs], a.StatusCode, a.Body)
			s.table.Use(nil)
		}
		require.Contains(t, s.logs.String(), "request put off")
		require.Equal(t, 1, strings.Count(s.logs.String(), "\n"))
	})
}

// An event's run whose tenant has as many running runs as it may have waits in its execution, for a day here, and
// begins when there is room.
func TestEventsWaitForRoom(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		s.machine.Starter.MaxRunning = 1
		const body = `{"agent":"payer","message":"pay 5","key":"k"}`
		s.mute.Store(true)
		require.Equal(t, 503, s.do(ana, "POST /v1/runs", body).StatusCode, "it is written, and its execution does not start")
		s.mute.Store(false)
		x, err := s.machine.Engine.Start(t.Context(), "an-event", []byte(`{"agent":"payer","tenant":"acme","key":"e","message":"pay 5"}`))
		require.NoError(t, err)
		time.Sleep(24 * time.Hour)
		id := agent.RunID("acme", "payer", "e")
		require.Equal(t, 404, s.do(ana, "GET /v1/runs/"+id, "").StatusCode)
		require.Equal(t, 202, s.do(ana, "POST /v1/runs", body).StatusCode)
		synctest.Wait()
		time.Sleep(5 * time.Minute)
		require.Equal(t, run.RunWaiting, read[web.Run](s, ana, 200, "GET /v1/runs/"+id, "").Status)
		x = must(s.machine.Engine.Describe(t.Context(), x.ExecutionARN))
		require.Equal(t, asl.Running, x.Status)
	})
}
