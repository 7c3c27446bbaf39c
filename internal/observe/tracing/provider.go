package tracing

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe/otlp"
)

// scopeName is the instrumentation scope of our spans.
const scopeName = "github.com/countersign/countersign"

// LongPause is the pause after which a run goes on in a new trace where Config says nothing else. Backends close a trace long before a
// day is over, and few show one well that spans more than hours.
const LongPause = time.Hour

// Config is what a Tracer is made of. Exporter, Clock and Random are required.
type Config struct {
	Exporter Exporter
	Clock    clock.Clock
	Random   func([]byte) // fills with random bytes

	Sampler   Sampler // nil = parentbased_always_on
	Limits    Limits
	Service   string // service.name; empty = countersign
	Hide      Hide
	LongPause time.Duration     // 0 = LongPause
	Log       func(text string) // is told once when the collector begins to fail; nil = nobody is
}

// Exporter sends spans; *otlp.Exporter does. An error that is an *otlp.Unavailable says that they may be sent later, any other that they
// are lost. It may not keep the batch's slices.
type Exporter interface {
	Export(ctx context.Context, b otlp.Batch) error
}

// Limits bound a span. Zero values are the defaults.
type Limits struct {
	Attributes int // how many; 0 = 10,000, as OpenInference has it: each message takes several
	Value      int // characters of one; 0 = 16,384; below 0 = no bound
}

// Tracer records runs. Its methods may be called on a nil Tracer, which records nothing. Safe for concurrent use.
type Tracer struct {
	spans     trace.Tracer
	buffer    *buffer
	clock     clock.Clock
	hide      Hide
	longPause time.Duration
}

// New makes a tracer. It starts nothing.
func New(c Config) *Tracer {
	if c.Sampler == nil {
		c.Sampler = ParentBased(Always)
	}
	if c.Service == "" {
		c.Service = defaultService
	}
	if c.LongPause == 0 {
		c.LongPause = LongPause
	}
	if c.Log == nil {
		c.Log = func(string) {}
	}
	b := &buffer{exporter: c.Exporter, service: c.Service, clock: c.Clock, log: c.Log}
	r := &recorder{ended: b.keep, random: c.Random, sampled: c.Sampler, limits: c.Limits.orDefault(), clock: c.Clock}
	return &Tracer{spans: r.Tracer(scopeName), buffer: b, clock: c.Clock, hide: c.Hide, longPause: c.LongPause}
}

const defaultService = "countersign"

func (l Limits) orDefault() Limits {
	if l.Attributes == 0 {
		l.Attributes = 10_000
	}
	if l.Value == 0 {
		l.Value = 16 << 10
	}
	return l
}

// Sources are what FromEnv cannot read from the environment. Clock and Random are required.
type Sources struct {
	Clock  clock.Clock
	Random func([]byte)
	Jitter func(limit time.Duration) time.Duration
	Log    func(text string)
}

// FromEnv makes a tracer from the standard variables: OTEL_EXPORTER_OTLP_* (see otlp.FromEnv), OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
// OTEL_TRACES_SAMPLER and _ARG, OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT, OPENINFERENCE_HIDE_*, and of our
// own COUNTERSIGN_TRACE_PAUSE, a duration such as 1h. The tracer is nil, which is no error, where no endpoint is set, where
// OTEL_SDK_DISABLED is true or OTEL_TRACES_EXPORTER is none. An error names the variable and what it wants.
func FromEnv(getenv func(string) string, s Sources) (*Tracer, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	if v := getenv("OTEL_TRACES_EXPORTER"); v != "" && v != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: got %q, want otlp or none", v)
	}
	to, ok, err := otlp.FromEnv(getenv)
	if err != nil || !ok {
		return nil, err
	}
	c := Config{Exporter: otlp.New(to, s.Clock, s.Jitter), Clock: s.Clock, Random: s.Random, Log: s.Log, Service: service(getenv)}
	if c.Hide, err = HideFromEnv(getenv); err != nil {
		return nil, err
	}
	if c.Sampler, err = samplerFromEnv(getenv); err != nil {
		return nil, err
	}
	if c.Limits.Attributes, err = positive(getenv, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"); err != nil {
		return nil, err
	}
	if c.Limits.Value, err = positive(getenv, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"); err != nil {
		return nil, err
	}
	if v := getenv("COUNTERSIGN_TRACE_PAUSE"); v != "" {
		if c.LongPause, err = time.ParseDuration(v); err != nil || c.LongPause <= 0 {
			return nil, fmt.Errorf("COUNTERSIGN_TRACE_PAUSE: got %q, want a duration above 0 such as 1h", v)
		}
	}
	return New(c), nil
}

// service is service.name by the rules of the SDK's environment.
func service(getenv func(string) string) string {
	if v := getenv("OTEL_SERVICE_NAME"); v != "" {
		return v
	}
	for pair := range strings.SplitSeq(getenv("OTEL_RESOURCE_ATTRIBUTES"), ",") {
		if k, v, _ := strings.Cut(pair, "="); strings.TrimSpace(k) == "service.name" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func positive(getenv func(string) string, name string) (int, error) {
	v := getenv(name)
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s: got %q, want a number above 0", name, v)
	}
	return n, nil
}
