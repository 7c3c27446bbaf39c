// Package emf writes metrics as lines of CloudWatch's embedded metric format: a Lambda function's standard output becomes metrics
// without a call. https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
package emf

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/countersign/countersign/pkg/agent/clock"
)

// Namespace is that of all our metrics.
const Namespace = "Countersign"

// Metrics writes to one writer. Make one with New. Safe for concurrent use.
type Metrics struct {
	clock clock.Clock
	mu    sync.Mutex
	out   io.Writer
}

// New makes a Metrics that writes lines to w, a Lambda function's standard output.
func New(w io.Writer, c clock.Clock) *Metrics { return &Metrics{clock: c, out: w} }

type (
	directive struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []metric
	}
	metric struct{ Name, Unit string }
	meta   struct {
		Timestamp         int64
		CloudWatchMetrics []directive
	}
)

// Count writes one value of a metric: a count, or seconds where the name ends in Seconds. dims are names and values of dimensions, in
// turn; a metric with dimensions is written without them, too, so that an alarm can watch all of it. A line that cannot be written is
// lost: there is nobody to tell.
func (m *Metrics) Count(name string, n int64, dims ...string) {
	unit := "Count"
	if strings.HasSuffix(name, "Seconds") {
		unit = "Seconds"
	}
	line := map[string]any{name: n}
	names := []string{}
	for i := 0; i+1 < len(dims); i += 2 {
		names = append(names, dims[i])
		line[dims[i]] = dims[i+1]
	}
	sets := [][]string{{}}
	if len(names) > 0 {
		sets = append(sets, names)
	}
	line["_aws"] = meta{Timestamp: m.clock.Now().UnixMilli(), CloudWatchMetrics: []directive{
		{Namespace: Namespace, Dimensions: sets, Metrics: []metric{{Name: name, Unit: unit}}},
	}}
	data, err := json.Marshal(line)
	if err != nil { // strings and numbers
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintf(m.out, "%s\n", data)
}
