package tracing

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// Sampler decides whether a span is recorded and sent. Parent is not valid for the root of a trace, whose id is id either way. It is called
// by several at once.
type Sampler func(parent trace.SpanContext, id trace.TraceID) bool

// Always samples every span.
func Always(trace.SpanContext, trace.TraceID) bool { return true }

// Never samples none.
func Never(trace.SpanContext, trace.TraceID) bool { return false }

// Ratio samples that part of all traces, from 0 to 1, by their ids: as the SDKs of OpenTelemetry do, so that all that see a trace decide the same.
func Ratio(part float64) Sampler {
	switch {
	case part >= 1:
		return Always
	case !(part > 0):
		return Never
	}
	below := uint64(part * (1 << 63))
	return func(_ trace.SpanContext, id trace.TraceID) bool { return binary.BigEndian.Uint64(id[8:])>>1 < below }
}

// ParentBased samples a span where its parent is sampled, and asks root about those without a parent.
func ParentBased(root Sampler) Sampler {
	return func(parent trace.SpanContext, id trace.TraceID) bool {
		if parent.IsValid() {
			return parent.IsSampled()
		}
		return root(parent, id)
	}
}

// samplerFromEnv reads OTEL_TRACES_SAMPLER and its argument.
func samplerFromEnv(getenv func(string) string) (Sampler, error) {
	name, parentBased := strings.CutPrefix(getenv("OTEL_TRACES_SAMPLER"), "parentbased_")
	var root Sampler
	switch name {
	case "":
		parentBased, root = true, Always
	case "always_on":
		root = Always
	case "always_off":
		root = Never
	case "traceidratio":
		part, err := strconv.ParseFloat(getenv("OTEL_TRACES_SAMPLER_ARG"), 64)
		if err != nil || !(part >= 0 && part <= 1) {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: got %q, want a ratio from 0 to 1", getenv("OTEL_TRACES_SAMPLER_ARG"))
		}
		root = Ratio(part)
	default:
		return nil, fmt.Errorf("OTEL_TRACES_SAMPLER: got %q, want always_on, always_off or traceidratio, alone or behind parentbased_",
			getenv("OTEL_TRACES_SAMPLER"))
	}
	if parentBased {
		return ParentBased(root), nil
	}
	return root, nil
}
