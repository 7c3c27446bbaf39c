package otlp

import (
	"encoding/binary"
	"math"
)

// message is a protobuf message under construction. Fields at their zero value are left out, as protobuf 3 does.
type message []byte

// The wire types of protobuf.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

func (m *message) tag(field, wire int) { *m = binary.AppendUvarint(*m, uint64(field<<3|wire)) }

func (m *message) varint(field int, v uint64) {
	if v != 0 {
		m.tag(field, wireVarint)
		*m = binary.AppendUvarint(*m, v)
	}
}

func (m *message) fixed64(field int, v uint64) {
	if v != 0 {
		m.tag(field, wireFixed64)
		*m = binary.LittleEndian.AppendUint64(*m, v)
	}
}

func (m *message) fixed32(field int, v uint32) {
	if v != 0 {
		m.tag(field, wireFixed32)
		*m = binary.LittleEndian.AppendUint32(*m, v)
	}
}

func (m *message) bytes(field int, b []byte) {
	if len(b) > 0 {
		m.message(field, b)
	}
}

// message writes a message or a member of a union, which stand there even if they are empty.
func (m *message) message(field int, b []byte) {
	m.tag(field, wireBytes)
	*m = binary.AppendUvarint(*m, uint64(len(b)))
	*m = append(*m, b...)
}

func (m *message) text(field int, s string) { m.bytes(field, []byte(s)) }

// The numbers are the fields' in opentelemetry/proto: collector/trace/v1, trace/v1, resource/v1, common/v1.

func (r request) protobuf() []byte {
	var m message
	for _, rs := range r.ResourceSpans {
		m.message(1, rs.protobuf())
	}
	return m
}

func (r resourceSpans) protobuf() []byte {
	var res, m message
	res.attributes(1, r.Resource.Attributes)
	m.message(1, res)
	for _, s := range r.ScopeSpans {
		m.message(2, s.protobuf())
	}
	return m
}

func (s scopeSpans) protobuf() []byte {
	var in, m message
	in.text(1, s.Scope.Name)
	in.text(2, s.Scope.Version)
	m.message(1, in)
	for _, s := range s.Spans {
		m.message(2, s.protobuf())
	}
	return m
}

func (s span) protobuf() []byte {
	var m, st message
	m.bytes(1, s.TraceID)
	m.bytes(2, s.SpanID)
	m.text(3, s.TraceState)
	m.bytes(4, s.ParentSpanID)
	m.text(5, s.Name)
	m.varint(6, uint64(s.Kind))
	m.fixed64(7, s.Start)
	m.fixed64(8, s.End)
	m.attributes(9, s.Attributes)
	m.varint(10, uint64(s.DroppedAttributes))
	for _, e := range s.Events {
		m.message(11, e.protobuf())
	}
	for _, l := range s.Links {
		m.message(13, l.protobuf())
	}
	st.text(2, s.Status.Message)
	st.varint(3, uint64(s.Status.Code))
	m.message(15, st)
	m.fixed32(16, s.Flags)
	return m
}

func (e event) protobuf() []byte {
	var m message
	m.fixed64(1, e.Time)
	m.text(2, e.Name)
	m.attributes(3, e.Attributes)
	return m
}

func (l link) protobuf() []byte {
	var m message
	m.bytes(1, l.TraceID)
	m.bytes(2, l.SpanID)
	m.text(3, l.TraceState)
	m.attributes(4, l.Attributes)
	m.fixed32(6, l.Flags)
	return m
}

func (m *message) attributes(field int, kvs []keyValue) {
	for _, kv := range kvs {
		var entry message
		entry.text(1, kv.Key)
		entry.message(2, kv.Value.protobuf())
		m.message(field, entry)
	}
}

// protobuf writes the member of the union that is set, also at its zero value.
func (v anyValue) protobuf() []byte {
	var m message
	switch {
	case v.String != nil:
		m.message(1, []byte(*v.String))
	case v.Bool != nil:
		m.tag(2, wireVarint)
		m = append(m, boolByte(*v.Bool))
	case v.Int != nil:
		m.tag(3, wireVarint)
		m = binary.AppendUvarint(m, uint64(*v.Int))
	case v.Double != nil:
		m.tag(4, wireFixed64)
		m = binary.LittleEndian.AppendUint64(m, math.Float64bits(*v.Double))
	case v.Array != nil:
		var list message
		for _, e := range v.Array.Values {
			list.message(1, e.protobuf())
		}
		m.message(5, list)
	}
	return m
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
