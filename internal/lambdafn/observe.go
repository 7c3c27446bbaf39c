package lambdafn

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/observe/emf"
	"github.com/countersign/countersign/internal/observe/metrics"
	"github.com/countersign/countersign/internal/observe/tracing"
	"github.com/countersign/countersign/internal/runtime"
)

// envMetrics says whether metrics are written: on, which is the default, or off.
const envMetrics = "COUNTERSIGN_METRICS"

// Observer is what watches a function: its traces and its metrics. It writes both out before the function answers, which is when the
// process may be frozen. Safe for concurrent use.
type Observer struct {
	Trace   *tracing.Tracer // nil = runs are not traced
	Metrics *emf.Sink       // nil = nothing is measured
	Clock   clock.Clock
	Log     func(text string) // is told of metrics that could not be written
}

// observe makes a function's observer from its environment; metrics are written to out, troubles to log.
func observe(getenv func(string) string, out, log io.Writer) (*Observer, error) {
	clk := clock.System()
	draw := ids.System(clk)
	o := &Observer{Clock: clk, Log: func(text string) { logLine(log, text) }}
	var err error
	o.Trace, err = tracing.FromEnv(getenv, tracing.Sources{Clock: clk, Random: draw.Fill, Jitter: draw.Jitter, Log: o.Log})
	if err != nil {
		return nil, err
	}
	switch got := getenv(envMetrics); got {
	case "", "on":
		o.Metrics = emf.New(out, clk, metrics.Namespace, metrics.Dimension, path.Base(strings.ReplaceAll(getenv(envMachine), ":", "/")))
	case "off":
	default:
		return nil, fmt.Errorf("%s: got %q, want on or off", envMetrics, got)
	}
	return o, nil
}

// without says that a function goes on without a part of it that is misconfigured, in its log and as a metric. What err says names variables, and
// holds nothing of them. Nil = nothing is wrong.
func (o *Observer) without(part string, err error) {
	if err == nil {
		return
	}
	o.Log("goes on without " + part + ": " + err.Error())
	if o.Metrics != nil {
		o.Metrics.Count(metrics.Misconfigured, 1)
	}
}

// logLine writes one line of the function's log.
func logLine(w io.Writer, text string) {
	line, err := json.Marshal(map[string]string{"level": "WARN", "message": text})
	if err == nil { // a map of strings always marshals
		_, _ = fmt.Fprintf(w, "%s\n", line) // a log that cannot be written has nobody to be told to
	}
}

// Model watches every request to a model. It stands below the retries: each try is one.
func (o *Observer) Model(next runtime.Model) runtime.Model {
	if o.Metrics != nil {
		next = metrics.Model(next, o.Metrics, o.Clock)
	}
	return o.Trace.Model(next)
}

// Ports watches tools, where there are any, and commits; not the tools that are somewhere else: see Remotes.
func (o *Observer) Ports(p runtime.Ports) runtime.Ports {
	var sinks runtime.Sinks
	if p.Sink != nil {
		sinks = append(sinks, p.Sink)
	}
	if o.Metrics != nil {
		sinks = append(sinks, metrics.Sink(o.Metrics))
	}
	if o.Trace != nil {
		p.Trace, sinks = o.Trace, append(sinks, o.Trace)
	}
	if p.Tools != nil { // of functions that run none
		p.Tools = o.tools(p.Tools)
	}
	if p.Warn == nil && o.Log != nil { // what an error says may be content (R17)
		p.Warn = func(what string, _ error) { o.Log("could not " + what) }
	}
	if len(sinks) > 0 {
		p.Sink = sinks
	}
	return p
}

func (o *Observer) tools(next runtime.ToolSource) runtime.ToolSource {
	if o.Metrics != nil {
		next = metrics.Tools(next, o.Metrics, o.Clock)
	}
	if o.Trace != nil {
		next = o.Trace.Tools(next)
	}
	return next
}

// Remotes watches the tools that are somewhere else as it does the others. It stands apart from Ports so that functions which run no tools do
// not link it.
func (o *Observer) Remotes(next runtime.Remotes) runtime.Remotes {
	if o.Metrics != nil {
		next = metrics.Remotes(next, o.Metrics, o.Clock)
	}
	return o.Trace.Remotes(next)
}

// Invoked is a Handlers' Invoked.
func (o *Observer) Invoked(ctx context.Context, function string) (context.Context, func(error)) {
	ctx, ended := o.Trace.Invoked(ctx, function)
	return ctx, func(err error) {
		ended(err)
		o.flush()
	}
}

// flush writes the metrics out.
func (o *Observer) flush() {
	if o.Metrics == nil {
		return
	}
	if failed := o.Metrics.Flush(); failed != nil {
		o.Log(failed.Error())
	}
}

// unmeasured takes metrics that nobody wants.
type unmeasured struct{}

func (unmeasured) Count(string, int64, ...string) {}

func (unmeasured) Seconds(string, time.Duration, ...string) {}
