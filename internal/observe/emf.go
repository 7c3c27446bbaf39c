package observe

// This file writes metrics in CloudWatch's embedded metric format: lines of JSON that a Lambda function prints and
// CloudWatch Logs turns into metrics, with no call and no agent.
//
// A line is one document: one set of dimensions and the metrics under it. Dimensions must be of low cardinality,
// because every set of values is a metric of its own that is paid for: never the id of a run, a call or a person.

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
)

// The bounds of the format: metrics a document, values a metric, dimensions a set, characters of a dimension's value.
const (
	maxMetrics    = 100
	maxValues     = 100
	maxDimensions = 30
	maxDimension  = 1024
)

// EMF gathers metrics until Flush; a nil one gathers none. Safe for concurrent use.
type EMF struct {
	out       io.Writer
	clock     clock.Clock
	namespace string
	base      []string

	mu   sync.Mutex
	sets []*set // in the order in which they came up
}

// set is what was measured under one set of dimensions.
type set struct {
	values  map[string]any // texts, by dimension
	metrics []*emfMetric
}

type emfMetric struct {
	Name, Unit string // as a document's head declares it
	values     []float64
}

const unitCount = "Count"

// NewEMF makes a sink that writes to w, one line at a time. The namespace is CloudWatch's; base are dimensions that
// every metric has, names and values in turn.
func NewEMF(w io.Writer, c clock.Clock, namespace string, base ...string) *EMF {
	return &EMF{out: w, clock: c, namespace: namespace, base: base}
}

// Count adds n to a counter. Dims are names and values of dimensions in turn.
func (s *EMF) Count(name string, n int64, dims ...string) { s.add(name, unitCount, float64(n), dims) }

// Millis notes a duration, in milliseconds. CloudWatch makes percentiles of them.
func (s *EMF) Millis(name string, d time.Duration, dims ...string) {
	s.add(name, "Milliseconds", float64(d.Microseconds())/1000, dims)
}

// Seconds notes a span of time, in whole seconds: what alarms compare with days and hours.
func (s *EMF) Seconds(name string, d time.Duration, dims ...string) {
	s.add(name, "Seconds", float64(d/time.Second), dims)
}

// add notes a value of a metric; those of a counter are summed up.
func (s *EMF) add(name, unit string, value float64, dims []string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.set(dims)
	i := slices.IndexFunc(t.metrics, func(m *emfMetric) bool { return m.Name == name && m.Unit == unit })
	switch {
	case i < 0:
		t.metrics = append(t.metrics, &emfMetric{name, unit, []float64{value}})
	case unit == unitCount:
		t.metrics[i].values[0] += value
	default:
		t.metrics[i].values = append(t.metrics[i].values, value)
	}
}

// set finds or makes the set of these dimensions and the base, whatever their order.
func (s *EMF) set(dims []string) *set {
	values := map[string]any{}
	dims = append(slices.Clone(s.base), dims...)
	for i := 0; i < len(dims) && len(values) < maxDimensions; i += 2 {
		value := "none" // the format does not allow that there is no value
		if i+1 < len(dims) && strings.TrimSpace(dims[i+1]) != "" {
			value = strings.ToValidUTF8(dims[i+1][:min(len(dims[i+1]), maxDimension)], "")
		}
		values[dims[i]] = value
	}
	for _, have := range s.sets {
		if maps.Equal(have.values, values) {
			return have
		}
	}
	s.sets = append(s.sets, &set{values: values})
	return s.sets[len(s.sets)-1]
}

// Flush writes what was gathered and forgets it, also where writing fails.
func (s *EMF) Flush() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sets := s.sets
	s.sets = nil
	for _, t := range sets {
		for len(t.metrics) > 0 {
			names := append([]string{}, jsonx.SortedKeys(t.values)...) // an empty list is written as one
			d := directive{s.namespace, [][]string{names}, t.takeMetrics()}
			doc := maps.Clone(t.values)
			for _, m := range d.Metrics {
				if doc[m.Name] = any(m.values); len(m.values) == 1 {
					doc[m.Name] = m.values[0]
				}
			}
			doc["_aws"] = head{s.clock.Now().UnixMilli(), []directive{d}}
			line, err := json.Marshal(doc)
			if err != nil {
				return fmt.Errorf("write metrics: %w", err)
			}
			if _, err := s.out.Write(append(line, '\n')); err != nil {
				return fmt.Errorf("write metrics: %w", err)
			}
		}
	}
	return nil
}

// takeMetrics removes as many metrics, and of each as many values, as one document may hold.
func (t *set) takeMetrics() []emfMetric {
	var out []emfMetric
	var rest []*emfMetric
	for _, m := range t.metrics {
		if len(out) == maxMetrics {
			rest = append(rest, m)
			continue
		}
		n := min(len(m.values), maxValues)
		out = append(out, emfMetric{m.Name, m.Unit, m.values[:n]})
		if n < len(m.values) {
			rest = append(rest, &emfMetric{m.Name, m.Unit, m.values[n:]})
		}
	}
	t.metrics = rest
	return out
}

// The head of a document, as CloudWatch specifies it.
type (
	head struct {
		Timestamp         int64 // milliseconds since 1970
		CloudWatchMetrics []directive
	}
	directive struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []emfMetric
	}
)
