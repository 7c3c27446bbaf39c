package otlp

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Batch is what goes out in one request: spans of one service.
type Batch struct {
	Service string // service.name
	Spans   []Span
}

// Span is a span that has ended.
type Span struct {
	Name        string
	SpanContext trace.SpanContext
	Parent      trace.SpanContext // not valid = a root
	SpanKind    trace.SpanKind
	Scope       Scope
	StartTime   time.Time
	EndTime     time.Time
	Attributes  []attribute.KeyValue // each key once
	Events      []Event
	Links       []trace.Link
	Status      Status

	DroppedAttributes int // how many were over the bound or made no sense
}

// Scope is the library that made a span.
type Scope struct{ Name, Version string }

// Event is what happened within a span.
type Event struct {
	Name       string
	Time       time.Time
	Attributes []attribute.KeyValue
}

// Status is how a span ended. Description says why where Code is codes.Error.
type Status struct {
	Code        codes.Code
	Description string
}
