package incident

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
)

// The arguments of the tools. Their schemas are made of these types: the model reads the descriptions, and what does
// not fit the tags never reaches a function.
type (
	metricsInput struct {
		Service string `json:"service" jsonschema_description:"the service's name"`
		Metric  string `json:"metric" jsonschema:"enum=errors_percent,enum=latency_p99_ms,enum=requests_per_minute"`
	}
	logsInput struct {
		Service  string `json:"service" jsonschema_description:"the service's name"`
		Contains string `json:"contains,omitempty" jsonschema_description:"only lines with this text in them"`
		Level    string `json:"level,omitempty" jsonschema:"enum=info,enum=warn,enum=error" jsonschema_description:"only lines of this level"`
		Limit    int    `json:"limit,omitempty" jsonschema:"minimum=1,maximum=50" jsonschema_description:"the newest so many; 20 where it is left out"`
	}
	deploysInput struct {
		Service string `json:"service" jsonschema_description:"the service's name"`
	}
	rollbackInput struct {
		Service string `json:"service" jsonschema_description:"the service's name"`
		To      string `json:"to" jsonschema_description:"a version that ran before the one that runs"`
		Reason  string `json:"reason" jsonschema_description:"why, in one sentence; the person on call reads it"`
	}
)

// Tools are metrics.query, logs.search, deploys.list and deploys.rollback.
func Tools(e Estate) ([]agent.Tool, error) {
	metrics, noMetrics := agent.NewTool("metrics.query", "Says what a metric of a service is, for the version that runs and for those before it.", agent.EffectRead, e.metrics, nil)
	logs, noLogs := agent.NewTool("logs.search", "Returns the newest log lines of the version of a service that runs.", agent.EffectRead, e.logs, nil)
	list, noList := agent.NewTool("deploys.list", "Lists what was deployed of a service, oldest first, and which version runs.", agent.EffectRead, e.deploys, nil)
	rollback, noRollback := agent.NewTool("deploys.rollback", "Puts a service back to a version that ran before.", agent.EffectNonIdempotent, e.rollback,
		&agent.ToolOptions[rollbackInput]{Reconcile: e.reconcile})
	if err := errors.Join(noMetrics, noLogs, noList, noRollback); err != nil {
		return nil, fmt.Errorf("make incident tools: %w", err)
	}
	return []agent.Tool{metrics, logs, list, rollback}, nil
}

// page is the tool that has no code: an event goes out, and whoever was woken answers.
func page() agent.ToolSpec {
	return agent.ToolSpec{
		Name: "page.human", Kind: agent.KindService, Effect: agent.EffectNonIdempotent,
		Description: "Wakes the person on call and waits for what they say.",
		Schema: json.RawMessage(`{"type":"object","properties":{"service":{"type":"string","description":"the service's name"},` +
			`"summary":{"type":"string","description":"what is broken and what you have tried, in two sentences"}},` +
			`"required":["service","summary"],"additionalProperties":false}`),
	}
}

func (e Estate) metrics(_ context.Context, _ agent.Call, in metricsInput) (agent.Result, error) {
	s, err := e.find(in.Service)
	if err != nil {
		return agent.Result{}, err
	}
	version, err := e.running(s)
	if err != nil {
		return agent.Result{}, err
	}
	type value struct {
		Version string  `json:"version"`
		Value   float64 `json:"value"`
	}
	out := struct {
		Service string  `json:"service"`
		Metric  string  `json:"metric"`
		Runs    string  `json:"runs"`
		Now     float64 `json:"now"`
		Were    []value `json:"while"` // each version ran
	}{Service: s.Name, Metric: in.Metric, Runs: version, Now: s.Metrics[version][in.Metric]}
	for _, d := range s.Deploys {
		out.Were = append(out.Were, value{d.Version, s.Metrics[d.Version][in.Metric]})
	}
	return agent.JSONResult(out)
}

// usualLines is how many lines logs.search returns where the model does not say.
const usualLines = 20

func (e Estate) logs(_ context.Context, _ agent.Call, in logsInput) (agent.Result, error) {
	s, err := e.find(in.Service)
	if err != nil {
		return agent.Result{}, err
	}
	version, err := e.running(s)
	if err != nil {
		return agent.Result{}, err
	}
	lines := []string{}
	for _, l := range s.Logs {
		if l.Version == version && strings.Contains(l.Text, in.Contains) && (in.Level == "" || in.Level == l.Level) {
			lines = append(lines, l.Level+" "+l.Text)
		}
	}
	limit := in.Limit
	if limit == 0 {
		limit = usualLines
	}
	return agent.JSONResult(lines[max(0, len(lines)-limit):])
}

func (e Estate) deploys(_ context.Context, _ agent.Call, in deploysInput) (agent.Result, error) {
	s, err := e.find(in.Service)
	if err != nil {
		return agent.Result{}, err
	}
	version, err := e.running(s)
	if err != nil {
		return agent.Result{}, err
	}
	return agent.JSONResult(struct {
		Service string   `json:"service"`
		Runs    string   `json:"runs"`
		Deploys []deploy `json:"deploys"`
	}{s.Name, version, s.Deploys})
}

func (e Estate) rollback(_ context.Context, c agent.Call, in rollbackInput) (agent.Result, error) {
	r, err := e.rollBack(in.Service, in.To, c.Key)
	if err != nil {
		return agent.Result{}, err
	}
	return agent.JSONResult(r)
}

// reconcile says what became of a rollback whose function died: the ledger knows.
func (e Estate) reconcile(_ context.Context, c agent.Call, in rollbackInput) (agent.Outcome, agent.Result, error) {
	r, found, err := e.rolledBack(in.Service, c.Key)
	if err != nil || !found {
		return agent.OutcomeNotDone, agent.Result{}, err
	}
	result, err := agent.JSONResult(r)
	return agent.OutcomeDone, result, err
}
