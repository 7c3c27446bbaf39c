package tracing

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"github.com/countersign/countersign/internal/observe/otlp"
)

// What a span keeps of events and links, and each of them of its attributes: the specification's defaults.
const (
	maxEvents   = 128
	maxLinks    = 128
	maxEachHas  = 128
	maxStack    = 2048 // bytes
	eventOfFail = "exception"
)

// span is a span that is recorded until it ends, or not at all. Safe for concurrent use.
type span struct {
	embedded.Span
	by *recorder

	mu        sync.Mutex
	recording bool
	done      otlp.Span             // name and so on as they are so far; SpanContext never changes
	at        map[attribute.Key]int // where in done.Attributes a key is
}

var _ trace.Span = (*span)(nil)

// SpanContext identifies the span.
func (s *span) SpanContext() trace.SpanContext { return s.done.SpanContext }

// TracerProvider makes spans that are sent with this one.
func (s *span) TracerProvider() trace.TracerProvider { return s.by }

// IsRecording reports whether the span is sampled and has not ended.
func (s *span) IsRecording() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recording
}

// whileRecording does f, if the span is sampled and has not ended.
func (s *span) whileRecording(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recording {
		f()
	}
}

// SetName names the span.
func (s *span) SetName(name string) { s.whileRecording(func() { s.done.Name = name }) }

// SetStatus says how it went. An error does not change what is ok.
func (s *span) SetStatus(code codes.Code, description string) {
	if code != codes.Error {
		description = ""
	}
	s.whileRecording(func() {
		if code >= s.done.Status.Code {
			s.done.Status = otlp.Status{Code: code, Description: description}
		}
	})
}

// SetAttributes sets attributes; of one key, the last counts. Those over the bound and those without key or value are dropped.
func (s *span) SetAttributes(kvs ...attribute.KeyValue) {
	s.whileRecording(func() {
		if s.at == nil {
			s.at = make(map[attribute.Key]int, len(kvs))
		}
		for _, kv := range kvs {
			s.set(kv)
		}
	})
}

func (s *span) set(kv attribute.KeyValue) {
	if !kv.Valid() {
		s.done.DroppedAttributes++
		return
	}
	at, known := s.at[kv.Key]
	if !known && s.by.limits.Attributes > 0 && len(s.at) >= s.by.limits.Attributes {
		s.done.DroppedAttributes++
		return
	}
	kv.Value = cut(kv.Value, s.by.limits.Value)
	if known {
		s.done.Attributes[at] = kv
		return
	}
	s.at[kv.Key] = len(s.done.Attributes)
	s.done.Attributes = append(s.done.Attributes, kv)
}

// cut is a value with texts of at most so many characters; below 0 = no bound. A value with more to it than a list is its text.
func cut(v attribute.Value, most int) attribute.Value {
	switch v.Type() {
	case attribute.STRING:
		return attribute.StringValue(cutText(v.AsString(), most))
	case attribute.STRINGSLICE:
		list := v.AsStringSlice()
		for i := range list {
			list[i] = cutText(list[i], most)
		}
		return attribute.StringSliceValue(list)
	case attribute.BYTESLICE, attribute.SLICE, attribute.MAP:
		return attribute.StringValue(cutText(v.String(), most))
	default:
		return v
	}
}

// cutText is the first characters of a text; one that is cut loses what is no UTF-8, too.
func cutText(s string, most int) string {
	if most < 0 || len(s) <= most {
		return s
	}
	s = strings.ToValidUTF8(s, "")
	n := 0
	for i := range s {
		if n == most {
			return s[:i]
		}
		n++
	}
	return s
}

// AddEvent notes what happened. The first of more than maxEvents is forgotten.
func (s *span) AddEvent(name string, opts ...trace.EventOption) {
	c := trace.NewEventConfig(opts...)
	s.event(name, &c)
}

func (s *span) event(name string, c *trace.EventConfig) {
	e := otlp.Event{Name: name, Time: c.Timestamp(), Attributes: bounded(c.Attributes())}
	s.whileRecording(func() { s.done.Events = last(append(s.done.Events, e), maxEvents) })
}

// AddLink links to another span. The first of more than maxLinks is forgotten.
func (s *span) AddLink(l trace.Link) {
	if !l.SpanContext.IsValid() && len(l.Attributes) == 0 && l.SpanContext.TraceState().Len() == 0 {
		return
	}
	l.Attributes = bounded(l.Attributes)
	s.whileRecording(func() { s.done.Links = last(append(s.done.Links, l), maxLinks) })
}

func last[T any](list []T, most int) []T { return list[max(0, len(list)-most):] }

func bounded(kvs []attribute.KeyValue) []attribute.KeyValue {
	return slices.Clone(kvs[:min(len(kvs), maxEachHas)])
}

// RecordError notes an error as an event, with its text. It is for those who instrument: nothing of ours calls it.
func (s *span) RecordError(err error, opts ...trace.EventOption) {
	if err != nil && s.IsRecording() {
		s.fail(err, err.Error(), opts...)
	}
}

func (s *span) fail(what any, text string, opts ...trace.EventOption) {
	kvs := []attribute.KeyValue{attribute.String("exception.type", typeName(what)), attribute.String("exception.message", text)}
	c := trace.NewEventConfig(opts...)
	if c.StackTrace() {
		stack := make([]byte, maxStack)
		kvs = append(kvs, attribute.String("exception.stacktrace", string(stack[:runtime.Stack(stack, false)])))
	}
	s.AddEvent(eventOfFail, append(slices.Clip(opts), trace.WithAttributes(kvs...))...)
}

func typeName(v any) string {
	t := reflect.TypeOf(v)
	if t.PkgPath() == "" && t.Name() == "" {
		return t.String()
	}
	return t.PkgPath() + "." + t.Name()
}

// End ends the span; only the first time counts. Deferred in a function that panics, it notes that, too.
func (s *span) End(opts ...trace.SpanEndOption) {
	c := trace.NewSpanEndConfig(opts...)
	if !s.IsRecording() {
		return
	}
	if p := recover(); p != nil {
		defer panic(p)
		s.fail(p, fmt.Sprint(p), trace.WithStackTrace(c.StackTrace()))
	}
	s.finish(&c)
}

func (s *span) finish(c *trace.SpanConfig) {
	end := c.Timestamp()
	if end.IsZero() {
		end = s.by.clock.Now()
	}
	s.whileRecording(func() {
		s.recording, s.done.EndTime = false, end
		s.by.ended(s.done)
	})
}
