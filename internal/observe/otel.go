package observe

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"

	"github.com/countersign/countersign/internal/agent"
)

// otelNames are the names under which metrics are recorded with OpenTelemetry. The others of runs are not: the GenAI
// conventions' own metrics say the same of models and tokens (see recordRequest).
var otelNames = map[string]string{
	RunsStarted: "countersign.runs.started", RunsEnded: "countersign.runs.ended", RunTime: "countersign.run.duration",
	Inferences: "countersign.inferences", ToolCalls: "countersign.tool.calls", ToolLatency: "countersign.tool.duration",
	ApprovalsAsked: "countersign.approvals.requested", ApprovalsDecided: "countersign.approvals.decided",
	CallsUnknown: "countersign.calls.unknown",
}

var otelKeys = map[string]attribute.Key{
	dimAgent: semconv.GenAIAgentNameKey, dimTool: semconv.GenAIToolNameKey,
	dimReason: "countersign.reason", dimOutcome: "countersign.outcome",
}

// The bounds of histograms: what the GenAI conventions advise, and for runs and tools, up to a week of waiting.
var (
	tokenBounds   = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	requestBounds = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	longBounds    = []float64{0.01, 0.1, 1, 10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}
)

// OTel records measurements with OpenTelemetry. It is a Meter.
type OTel struct {
	counters  map[string]metric.Int64Counter
	durations map[string]metric.Float64Histogram
	tokens    genaiconv.ClientTokenUsage
	requests  genaiconv.ClientOperationDuration
}

// NewOTel makes an OTel that records with p; a nil p makes a nil OTel.
func NewOTel(p metric.MeterProvider) (*OTel, error) {
	if p == nil {
		return nil, nil
	}
	m := p.Meter("github.com/countersign/countersign")
	o := &OTel{counters: map[string]metric.Int64Counter{}, durations: map[string]metric.Float64Histogram{}}
	var errs [3]error
	o.tokens, errs[0] = genaiconv.NewClientTokenUsage(m, metric.WithExplicitBucketBoundaries(tokenBounds...))
	o.requests, errs[1] = genaiconv.NewClientOperationDuration(m, metric.WithExplicitBucketBoundaries(requestBounds...))
	for name, as := range otelNames {
		var err error
		if name == RunTime || name == ToolLatency {
			o.durations[name], err = m.Float64Histogram(as, metric.WithUnit("s"),
				metric.WithExplicitBucketBoundaries(longBounds...))
		} else {
			o.counters[name], err = m.Int64Counter(as)
		}
		errs[2] = errors.Join(errs[2], err)
	}
	return o, errors.Join(errs[:]...)
}

// Count adds n to a counter.
func (o *OTel) Count(name string, n int64, dims ...string) {
	if c, ok := o.counters[name]; ok {
		c.Add(context.Background(), n, otelAttributes(dims))
	}
}

// Millis notes a duration, in seconds.
func (o *OTel) Millis(name string, d time.Duration, dims ...string) {
	if h, ok := o.durations[name]; ok {
		h.Record(context.Background(), d.Seconds(), otelAttributes(dims))
	}
}

func otelAttributes(dims []string) metric.MeasurementOption {
	var kvs []attribute.KeyValue
	for i := 0; i+1 < len(dims); i += 2 {
		kvs = append(kvs, otelKeys[dims[i]].String(dims[i+1]))
	}
	return metric.WithAttributes(kvs...)
}

// recordRequest records one request to a model as the GenAI conventions say.
func (o *OTel) recordRequest(ctx context.Context, r agent.Request, reply agent.Reply, took time.Duration, err error) {
	of := metric.WithAttributes(semconv.GenAIOperationNameChat, ModelProvider(r.Model.Provider),
		semconv.GenAIRequestModel(r.Model.ID), semconv.GenAIAgentName(r.Agent))
	if err != nil {
		class := semconv.ErrorTypeKey.String(errorClass(err))
		o.requests.Inst().Record(ctx, took.Seconds(), of, metric.WithAttributes(class))
		return
	}
	by := metric.WithAttributes(semconv.GenAIResponseModel(cmp.Or(reply.Model, r.Model.ID)))
	o.requests.Inst().Record(ctx, took.Seconds(), of, by)
	u, tokens := reply.Usage, o.tokens.Inst()
	tokens.Record(ctx, u.Input+u.CacheRead+u.CacheWrite, of, by, metric.WithAttributes(semconv.GenAITokenTypeInput))
	tokens.Record(ctx, u.Output, of, by, metric.WithAttributes(semconv.GenAITokenTypeOutput))
}

// Meters takes measurements to each of several.
type Meters []Meter

// Count adds n to a counter of each.
func (all Meters) Count(name string, n int64, dims ...string) {
	for _, m := range all {
		m.Count(name, n, dims...)
	}
}

// Millis notes a duration with each.
func (all Meters) Millis(name string, d time.Duration, dims ...string) {
	for _, m := range all {
		m.Millis(name, d, dims...)
	}
}
