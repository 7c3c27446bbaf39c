package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	colmetricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// span is a span as OTLP's JSON has it.
type span struct {
	TraceID      string `json:"traceId"`
	SpanID       string `json:"spanId"`
	ParentSpanID string `json:"parentSpanId"`
	Name         string
	Status       struct{ Code int }
	Attributes   []struct {
		Key   string
		Value struct{ StringValue string }
	}
}

// hasFailed reports whether the status is OTLP's STATUS_CODE_ERROR.
func (s span) hasFailed() bool { return s.Status.Code == 2 }

func (s span) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue
		}
	}
	return ""
}

// collector is an OTLP endpoint that records spans, each once, and the names of metrics.
type collector struct {
	mu      sync.Mutex
	spans   []span
	metrics []string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = map[string]func([]byte) error{"/v1/traces": c.recordSpans, "/v1/metrics": c.recordMetrics}[r.URL.Path](body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{}`)
}

func (c *collector) recordSpans(body []byte) error {
	var sent struct {
		ResourceSpans []struct {
			ScopeSpans []struct{ Spans []span }
		}
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range sent.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				if !slices.ContainsFunc(c.spans, func(had span) bool { return had.SpanID == s.SpanID }) {
					c.spans = append(c.spans, s)
				}
			}
		}
	}
	return nil
}

func (c *collector) recordMetrics(body []byte) error {
	var sent colmetricspb.ExportMetricsServiceRequest
	if err := proto.Unmarshal(body, &sent); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rm := range sent.ResourceMetrics {
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				c.metrics = append(c.metrics, m.Name)
			}
		}
	}
	return nil
}

func (c *collector) allSpans() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]span(nil), c.spans...)
}

// A run on five functions, parked and approved, is one trace: every span is beneath the run's own, and all were sent
// before their function could be frozen. Neither spans nor logs hold what was said; the metrics are there.
func TestOneTraceAcrossFunctions(t *testing.T) {
	c := &collector{}
	url := serve(t, c)
	d := deploy(t, newRefundModel(t), func(d *deployment) {
		d.values["OtlpEndpoint"] = url
		d.env = []string{"OTEL_EXPORTER_OTLP_PROTOCOL=http/json", "OTEL_EXPORTER_OTLP_COMPRESSION=none"}
	})
	run := d.refundRun("k")
	var root span
	require.Eventually(t, func() bool {
		for _, s := range c.allSpans() {
			if s.attribute("openinference.span.kind") == "AGENT" {
				root = s
			}
		}
		return root.SpanID != ""
	}, 2*time.Minute, 10*time.Millisecond)
	require.Equal(t, run, root.attribute("session.id"))
	byID, kinds := map[string]span{}, map[string]int{}
	for _, s := range c.allSpans() {
		byID[s.SpanID] = s
	}
	for _, s := range c.allSpans() {
		if s.attribute("session.id") != run {
			continue // a look at a list is of no run
		}
		if !s.hasFailed() { // a request to the model that met a broken connection is a span of its own, and is made again
			kinds[s.attribute("openinference.span.kind")]++
		}
		require.Equal(t, root.TraceID, s.TraceID, s.Name)
		for at := s; at.SpanID != root.SpanID; at = byID[at.ParentSpanID] {
			require.Contains(t, byID, at.ParentSpanID, "%s hangs in the air", s.Name)
		}
	}
	require.Equal(t, 1, kinds["AGENT"])
	require.Equal(t, 3, kinds["LLM"], "%+v", c.allSpans())
	require.Equal(t, 4, kinds["TOOL"], "two calls, and the order that the refund depends on, read twice")
	require.GreaterOrEqual(t, kinds["CHAIN"], 6)
	require.GreaterOrEqual(t, kinds["GUARDRAIL"], 2, "the gate and the decision")
	for _, metric := range []string{`"RunsStarted":1`, `"RunsEnded":1`, `"Inferences":1`, `"ApprovalsDecided":1`, `"StateMachine":"` + name + `"`} {
		require.Eventually(t, func() bool { return strings.Contains(d.log.String(), metric) }, 2*time.Minute, 10*time.Millisecond, metric)
	}
	c.mu.Lock()
	metrics := slices.Clone(c.metrics)
	c.mu.Unlock()
	for _, metric := range []string{
		"countersign.runs.ended", "countersign.approvals.decided", "countersign.tool.duration",
		"gen_ai.client.operation.duration", "gen_ai.client.token.usage",
	} {
		require.Contains(t, metrics, metric)
	}
	for _, secret := range []string{"wheel", "Order 1002"} { // the bare number would meet a time or an id by chance
		require.NotContains(t, d.log.String(), secret)
	}
	for _, s := range c.allSpans() {
		for _, a := range s.Attributes {
			require.NotRegexp(t, `wheel|\b1002\b`, a.Value.StringValue, "%s of %s", a.Key, s.Name)
		}
	}
}
