// Package incident is the example of an agent that is written in Go: an alarm starts it, it looks into metrics, logs
// and deploys, and asks the people on call before it rolls anything back. What a file does not show is here: tools
// whose schemas are made of Go types, a context builder that reads the alarm, a plugin that holds the agent to an order
// of work, and a definition that the compiler checks.
//
// The services it looks after are made up: see Estate.
package incident

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/agents/ledger"
	"github.com/countersign/countersign/pkg/agent"
)

// Name is the agent's, which the rule for alarms in template.yaml names.
const Name = "incident"

const system = "You are the first to answer when an alarm goes off. Today is {{.Date}}. Find out what is broken " +
	"before you do anything: query\nthe metrics of the service, list its deploys and read its logs. If what runs is " +
	"plainly worse than the version before it, roll back to\nthat one with deploys_rollback and query the metrics " +
	"again. If nothing points at a deploy, or the rollback is refused or changes nothing,\nwake a person with " +
	"page_human and pass on what they say. End with three sentences: what was broken, what was done, what is left to do.\n"

// Agent is the definition, with the tools of Tools.
func Agent(tools []agent.Tool) (agent.Definition, error) {
	order, err := json.Marshal(Order{"deploys.rollback": {"metrics.query", "deploys.list"}})
	if err != nil {
		return agent.Definition{}, fmt.Errorf("define agent %s: %w", Name, err)
	}
	d := agent.Definition{
		Name: Name, Version: "1", System: system, Builder: AlarmBuilder,
		Model: agent.ModelSpec{
			Provider: "bedrock", ID: "global.anthropic.claude-sonnet-4-5-20250929-v1:0", MaxTokens: 2048,
			Temperature: new(float64),
		},
		Permission: agent.Permission{
			Approvers: []string{"group:operators"},
			Rules: []agent.Rule{
				{Tool: "deploys.rollback", Verdict: agent.VerdictAsk, Approvers: []string{"group:oncall"}, Expires: time.Hour,
					Note: "An alarm is on. Roll back unless you know why not."},
				{Tool: "page.human", Verdict: agent.VerdictAllow},
			},
		},
		Plugins: []agent.PluginSpec{{Name: OrderPlugin, Config: order}},
		Limits:  agent.Limits{Interactions: 30},
	}
	for _, t := range tools {
		d.Tools = append(d.Tools, t.Spec())
	}
	d.Tools = append(d.Tools, page())
	d, err = d.Resolve()
	if err != nil {
		return agent.Definition{}, fmt.Errorf("define agent %s: %w", Name, err)
	}
	return d, nil
}

// Estate is the services that the agent looks after. What is known of them is a file of this folder; what has been
// rolled back is in the ledger, and decides which version runs. Put clients of your own metrics, logs and deployments
// in its place. Safe for concurrent use.
type Estate struct {
	services []service
	ledger   ledger.Ledger
}

type service struct {
	Name    string                        `json:"service"`
	Deploys []deploy                      `json:"deploys"` // oldest first
	Metrics map[string]map[string]float64 `json:"metrics"` // version -> metric -> value while it ran
	Logs    []logLine                     `json:"logs"`    // oldest first
}

type deploy struct {
	Version string `json:"version"`
	At      string `json:"at"`
	By      string `json:"by"`
	Change  string `json:"change"`
}

type logLine struct {
	Version string `json:"version"`
	Level   string `json:"level"`
	Text    string `json:"text"`
}

// Rollback is a service put back to a version that ran before.
type Rollback struct {
	Service string `json:"service"`
	From    string `json:"from"`
	To      string `json:"to"`
	Key     string `json:"key"` // the call that did it
}

//go:embed estate.json
var known []byte

// Open is the estate with its ledger.
func Open(l ledger.Ledger) (Estate, error) {
	e := Estate{ledger: l}
	if err := json.Unmarshal(known, &e.services); err != nil {
		return Estate{}, fmt.Errorf("read estate.json: %w", err)
	}
	return e, nil
}

func (e Estate) find(name string) (service, error) {
	i := slices.IndexFunc(e.services, func(s service) bool { return s.Name == name })
	if i < 0 {
		return service{}, agent.Refuse("There is no service %s.", name)
	}
	return e.services[i], nil
}

// lookUp finds a service and the version of it that runs: the newest one deployed, unless that was rolled back.
func (e Estate) lookUp(name string) (service, string, error) {
	s, err := e.find(name)
	if err != nil {
		return service{}, "", err
	}
	version := s.Deploys[len(s.Deploys)-1].Version
	for {
		var r Rollback
		found, err := e.ledger.Find(rollbackFrom(s.Name, version), &r)
		if err != nil || !found {
			return s, version, err
		}
		version = r.To
	}
}

// rolledBack finds the rollback that a call has made.
func (e Estate) rolledBack(name, key string) (r Rollback, found bool, err error) {
	s, err := e.find(name)
	if err != nil { // then no call has done anything to it
		return Rollback{}, false, nil
	}
	for _, d := range s.Deploys {
		if found, err := e.ledger.Find(rollbackFrom(name, d.Version), &r); err != nil || found && r.Key == key {
			return r, found, err
		}
	}
	return Rollback{}, false, nil
}

func rollbackFrom(service, version string) string { return service + " " + version }

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
		Level    string `json:"level,omitempty" jsonschema:"enum=info,enum=warn,enum=error,description=lines of this level"`
		Limit    int    `json:"limit,omitempty" jsonschema:"minimum=1,maximum=50,description=the newest so many; default 20"`
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
	metrics, noMetrics := agent.NewTool("metrics.query",
		"Says what a metric of a service is, for the version that runs and for those before it.",
		agent.EffectRead, e.metrics, nil)
	logs, noLogs := agent.NewTool("logs.search", "Returns the newest log lines of the version of a service that runs.",
		agent.EffectRead, e.logs, nil)
	list, noList := agent.NewTool("deploys.list",
		"Lists what was deployed of a service, oldest first, and which version runs.", agent.EffectRead, e.deploys, nil)
	rollback, noRollback := agent.NewTool("deploys.rollback", "Puts a service back to a version that ran before.",
		agent.EffectNonIdempotent, e.rollback,
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
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"service":{"type":"string","description":"the service's name"},` +
			`"summary":{"type":"string","description":"what is broken and what you have tried, in two sentences"}},` +
			`"required":["service","summary"],"additionalProperties":false}`),
	}
}

func (e Estate) metrics(_ context.Context, _ agent.Call, in metricsInput) (agent.Result, error) {
	s, version, err := e.lookUp(in.Service)
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
	s, version, err := e.lookUp(in.Service)
	if err != nil {
		return agent.Result{}, err
	}
	lines := []string{}
	for _, l := range s.Logs {
		if l.Version == version && strings.Contains(l.Text, in.Contains) && (in.Level == "" || in.Level == l.Level) {
			lines = append(lines, l.Level+" "+l.Text)
		}
	}
	return agent.JSONResult(lines[max(0, len(lines)-cmp.Or(in.Limit, usualLines)):])
}

func (e Estate) deploys(_ context.Context, _ agent.Call, in deploysInput) (agent.Result, error) {
	s, version, err := e.lookUp(in.Service)
	if err != nil {
		return agent.Result{}, err
	}
	return agent.JSONResult(struct {
		Service string   `json:"service"`
		Runs    string   `json:"runs"`
		Deploys []deploy `json:"deploys"`
	}{s.Name, version, s.Deploys})
}

// rollback puts a service back from the version that runs to one that was deployed before it. That happens once for
// each version, so two who want it at the same time do not both do it.
func (e Estate) rollback(_ context.Context, c agent.Call, in rollbackInput) (agent.Result, error) {
	if done, found, err := e.rolledBack(in.Service, c.Key); err != nil {
		return agent.Result{}, err
	} else if found {
		return agent.JSONResult(done)
	}
	s, from, err := e.lookUp(in.Service)
	if err != nil {
		return agent.Result{}, err
	}
	at := func(version string) int {
		return slices.IndexFunc(s.Deploys, func(d deploy) bool { return d.Version == version })
	}
	if at(in.To) < 0 || at(in.To) >= at(from) {
		return agent.Result{}, agent.Refuse("%s runs %s, and %s is no version from before it.", in.Service, from, in.To)
	}
	r := Rollback{Service: in.Service, From: from, To: in.To, Key: c.Key}
	switch kept, err := e.ledger.Keep(rollbackFrom(in.Service, from), r); {
	case err != nil: // it may be kept: reconcile knows
		return agent.Result{}, &agent.LostError{Err: err}
	case !kept:
		return agent.Result{}, agent.Refuse("Somebody else has just rolled %s back from %s.", in.Service, from)
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
