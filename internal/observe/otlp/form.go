package otlp

import (
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// The types are the messages of opentelemetry/proto/trace/v1; their JSON is OTLP's: ids in hexadecimal, 64-bit integers as strings.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	span struct {
		TraceID           id         `json:"traceId"`
		SpanID            id         `json:"spanId"`
		TraceState        string     `json:"traceState,omitempty"`
		ParentSpanID      id         `json:"parentSpanId,omitempty"`
		Flags             uint32     `json:"flags,omitempty"`
		Name              string     `json:"name"`
		Kind              int        `json:"kind"`
		Start             uint64     `json:"startTimeUnixNano,string"`
		End               uint64     `json:"endTimeUnixNano,string"`
		Attributes        []keyValue `json:"attributes,omitempty"`
		DroppedAttributes uint32     `json:"droppedAttributesCount,omitempty"`
		Events            []event    `json:"events,omitempty"`
		Links             []link     `json:"links,omitempty"`
		Status            status     `json:"status"`
	}
	event struct {
		Time       uint64     `json:"timeUnixNano,string"`
		Name       string     `json:"name"`
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	link struct {
		TraceID    id         `json:"traceId"`
		SpanID     id         `json:"spanId"`
		TraceState string     `json:"traceState,omitempty"`
		Attributes []keyValue `json:"attributes,omitempty"`
		Flags      uint32     `json:"flags,omitempty"`
	}
	status struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code,omitempty"`
	}
	keyValue struct {
		Key   string   `json:"key"`
		Value anyValue `json:"value"`
	}
	// anyValue has one field set.
	anyValue struct {
		String *string     `json:"stringValue,omitempty"`
		Bool   *bool       `json:"boolValue,omitempty"`
		Int    *int64      `json:"intValue,omitempty,string"`
		Double *float64    `json:"doubleValue,omitempty"`
		Array  *arrayValue `json:"arrayValue,omitempty"`
	}
	arrayValue struct {
		Values []anyValue `json:"values"`
	}
)

// id is a trace's or a span's; nil = none.
type id []byte

// MarshalText writes it in hexadecimal.
func (i id) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, i), nil }

// The values of enums and flags in the protocol.
const (
	statusOK    = 1
	statusError = 2

	flagRemoteKnown = 1 << 8
	flagRemote      = 1 << 9
)

// requestOf is a batch as a request: spans are grouped by their scope, as they come.
func requestOf(b Batch) request {
	all := resourceSpans{Resource: resource{Attributes: []keyValue{keyValueOf(attribute.String("service.name", b.Service))}}}
	for i := range b.Spans {
		in := scope{Name: b.Spans[i].Scope.Name, Version: b.Spans[i].Scope.Version}
		if n := len(all.ScopeSpans); n == 0 || all.ScopeSpans[n-1].Scope != in {
			all.ScopeSpans = append(all.ScopeSpans, scopeSpans{Scope: in})
		}
		last := &all.ScopeSpans[len(all.ScopeSpans)-1]
		last.Spans = append(last.Spans, spanOf(&b.Spans[i]))
	}
	return request{ResourceSpans: []resourceSpans{all}}
}

func spanOf(s *Span) span {
	trace, own := s.SpanContext.TraceID(), s.SpanContext.SpanID()
	out := span{
		TraceID: trace[:], SpanID: own[:], TraceState: s.SpanContext.TraceState().String(), Flags: flags(s.SpanContext.TraceFlags(), s.Parent.IsRemote()),
		Name: s.Name, Kind: int(s.SpanKind), Start: uint64(s.StartTime.UnixNano()), End: uint64(s.EndTime.UnixNano()),
		DroppedAttributes: uint32(s.DroppedAttributes), Attributes: attributes(s.Attributes), Status: statusOf(s.Status),
	}
	if s.Parent.SpanID().IsValid() {
		above := s.Parent.SpanID()
		out.ParentSpanID = above[:]
	}
	for _, e := range s.Events {
		out.Events = append(out.Events, event{Time: uint64(e.Time.UnixNano()), Name: e.Name, Attributes: attributes(e.Attributes)})
	}
	for _, l := range s.Links {
		t, o := l.SpanContext.TraceID(), l.SpanContext.SpanID()
		out.Links = append(out.Links, link{
			TraceID: t[:], SpanID: o[:], TraceState: l.SpanContext.TraceState().String(), Attributes: attributes(l.Attributes),
			Flags: flags(l.SpanContext.TraceFlags(), l.SpanContext.IsRemote()),
		})
	}
	return out
}

func flags(f trace.TraceFlags, remote bool) uint32 {
	out := uint32(f) | flagRemoteKnown
	if remote {
		out |= flagRemote
	}
	return out
}

func statusOf(s Status) status {
	switch s.Code {
	case codes.Error:
		return status{Message: s.Description, Code: statusError}
	case codes.Ok:
		return status{Code: statusOK}
	default:
		return status{}
	}
}

func attributes(kvs []attribute.KeyValue) []keyValue {
	var out []keyValue
	for _, kv := range kvs {
		out = append(out, keyValueOf(kv))
	}
	return out
}

func keyValueOf(kv attribute.KeyValue) keyValue {
	return keyValue{Key: string(kv.Key), Value: valueOf(kv.Value)}
}

func valueOf(v attribute.Value) anyValue {
	switch v.Type() {
	case attribute.BOOL:
		b := v.AsBool()
		return anyValue{Bool: &b}
	case attribute.INT64:
		n := v.AsInt64()
		return anyValue{Int: &n}
	case attribute.FLOAT64:
		f := v.AsFloat64()
		return anyValue{Double: &f}
	case attribute.STRINGSLICE:
		a := &arrayValue{}
		for _, s := range v.AsStringSlice() {
			a.Values = append(a.Values, anyValue{String: &s})
		}
		return anyValue{Array: a}
	default: // the other kinds of lists are not used here and are sent as their text
		s := v.String()
		return anyValue{String: &s}
	}
}
