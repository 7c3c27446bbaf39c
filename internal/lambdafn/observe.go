package lambdafn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// EnvMetrics says whether metrics are written: on, which is the default, or off.
const EnvMetrics = "COUNTERSIGN_METRICS"

// Observer is what watches a function: its traces and its metrics. It writes both out before the function answers,
// which is when the process may be frozen. Safe for concurrent use.
type Observer struct {
	Trace   *observe.Tracer    // nil = runs are not traced
	Metrics *observe.EMF       // nil = no metrics for CloudWatch
	OTel    *observe.OTel      // nil = no metrics by OpenTelemetry
	Send    *observe.Telemetry // sends what Trace and OTel record before a function answers; nil = somebody else does
	Clock   clock.Clock
	Log     func(text string) // is told of metrics that could not be written
}

// Watch makes an observer of runs by OpenTelemetry's environment variables and OPENINFERENCE_HIDE_*, and what sends
// what it records. Both record nothing if the environment names no exporter.
func Watch(
	getenv func(string) string, x observe.Exporters, c clock.Clock, log func(text string),
) (*Observer, *observe.Telemetry, error) {
	o := &Observer{Clock: c}
	sends, err := observe.TelemetryFromEnv(context.Background(), getenv, x, observe.TelemetryConfig{
		Clock: c, Random: clock.NewIDs(c).Fill, Log: log,
	})
	if err != nil || sends == nil {
		return o, nil, err
	}
	hide, err := observe.HideFromEnv(getenv)
	if err == nil {
		o.OTel, err = observe.NewOTel(sends.Meters)
	}
	if err != nil {
		sends.Shutdown(context.Background())
		return o, nil, err
	}
	o.Trace = observe.NewTracer(sends.Tracers, c, hide)
	return o, sends, nil
}

// newObserver makes a function's observer from its environment; metrics are written to out, troubles to log. A function
// goes on without traces and metrics by OpenTelemetry if they are misconfigured.
func newObserver(getenv func(string) string, out, log io.Writer) (*Observer, error) {
	clk := clock.System()
	warn := func(text string) { // Write one line of the function's log.
		line, err := json.Marshal(map[string]string{"level": "WARN", "message": text})
		if err == nil { // a map of strings always marshals
			_, _ = fmt.Fprintf(log, "%s\n", line) // a log that cannot be written has nobody to be told to
		}
	}
	o, sends, misconfigured := Watch(getenv, observe.OTLP{}, clk, warn)
	o.Send, o.Log = sends, warn
	switch got := getenv(EnvMetrics); got {
	case "", "on":
		o.Metrics = observe.NewEMF(out, clk, observe.Namespace, observe.Dimension,
			path.Base(strings.ReplaceAll(getenv(envMachine), ":", "/")))
	case "off":
	default:
		return nil, fmt.Errorf("%s: got %q, want on or off", EnvMetrics, got)
	}
	o.disablePart("OpenTelemetry", misconfigured)
	return o, nil
}

// disablePart says, in the log and as a metric, that the function runs without a misconfigured part. err names
// variables and never their values; nil does nothing.
func (o *Observer) disablePart(part string, err error) {
	if err == nil {
		return
	}
	o.Log("goes on without " + part + ": " + err.Error())
	o.Metrics.Count(observe.Misconfigured, 1)
}

// Model watches every request to a model. It stands below the retries: each try is one.
func (o *Observer) Model(next runtime.Model) runtime.Model {
	if m := o.meters(); m != nil {
		next = observe.MeterModel(next, m, o.OTel, o.Clock)
	}
	return o.Trace.Model(next)
}

func (o *Observer) meters() observe.Meters {
	var all observe.Meters
	if o.Metrics != nil {
		all = append(all, o.Metrics)
	}
	if o.OTel != nil {
		all = append(all, o.OTel)
	}
	return all
}

// Ports watches tools, where there are any, and commits; not the tools that are somewhere else: see Remotes.
func (o *Observer) Ports(p runtime.Ports) runtime.Ports {
	var sinks runtime.Sinks
	if p.Sink != nil {
		sinks = append(sinks, p.Sink)
	}
	if m := o.meters(); m != nil {
		sinks = append(sinks, observe.MeterEvents(m))
	}
	if o.Trace != nil {
		p.Trace, sinks = o.Trace, append(sinks, o.Trace)
	}
	if p.Tools != nil { // of functions that run none
		p.Tools = observe.ToolsAround(p.Tools, o.tool)
	}
	if p.Warn == nil && o.Log != nil { // what an error says may be content (R17)
		p.Warn = func(what string, _ error) { o.Log("could not " + what) }
	}
	if len(sinks) > 0 {
		p.Sink = sinks
	}
	return p
}

// Remotes watches the tools that are somewhere else as it does the others. It stands apart from Ports so that functions
// which run no tools do not link it.
func (o *Observer) Remotes(next runtime.Remotes) runtime.Remotes { return next.Around(o.tool) }

func (o *Observer) tool(found tool.Tool) tool.Tool {
	if m := o.meters(); m != nil {
		found = observe.MeterTool(found, m, o.Clock)
	}
	return o.Trace.Tool(found)
}

// Invoked begins an invocation: see Deployment.Invoked.
func (o *Observer) Invoked(ctx context.Context, function string) (context.Context, func(error)) {
	ctx, ended := o.Trace.Invoked(ctx, function)
	return ctx, func(err error) {
		ended(err)
		if failed, ok := errors.AsType[*Error](err); ok && slices.Contains(throttled, failed.Kind) {
			o.Metrics.Count(observe.Throttled, 1, observe.DimFunction, function)
		}
		o.flush(ctx)
	}
}

// flush sends what was recorded, and writes CloudWatch's metrics out.
func (o *Observer) flush(ctx context.Context) {
	o.Send.Flush(ctx)
	if failed := o.Metrics.Flush(); failed != nil {
		o.Log(failed.Error())
	}
}
