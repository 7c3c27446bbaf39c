package tracing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/observe/otlp"
)

// draws gives the SDK the ids that a recorder draws.
type draws func([]byte)

func (d draws) NewIDs(ctx context.Context) (id trace.TraceID, _ trace.SpanID) {
	d(id[:])
	return id, d.NewSpanID(ctx, id)
}

func (d draws) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	d(id[:])
	return id
}

// ofSDK keeps what the SDK records, in our words.
type ofSDK struct{ spans []otlp.Span }

func (*ofSDK) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (*ofSDK) Shutdown(context.Context) error                  { return nil }
func (*ofSDK) ForceFlush(context.Context) error                { return nil }

func (o *ofSDK) OnEnd(s sdktrace.ReadOnlySpan) {
	out := otlp.Span{
		Name: s.Name(), SpanContext: s.SpanContext(), Parent: s.Parent(), SpanKind: s.SpanKind(), Attributes: s.Attributes(),
		Scope:     otlp.Scope{Name: s.InstrumentationScope().Name, Version: s.InstrumentationScope().Version},
		StartTime: s.StartTime(), EndTime: s.EndTime(), Status: otlp.Status(s.Status()), DroppedAttributes: s.DroppedAttributes(),
	}
	for _, e := range s.Events() {
		out.Events = append(out.Events, otlp.Event{Name: e.Name, Time: e.Time, Attributes: e.Attributes})
	}
	for _, l := range s.Links() {
		out.Links = append(out.Links, trace.Link{SpanContext: l.SpanContext, Attributes: l.Attributes})
	}
	o.spans = append(o.spans, out)
}

// pair is the same recording twice: by a recorder and by the SDK.
type pair struct {
	t     *rapid.T
	ours  []otlp.Span
	sdk   ofSDK
	to    [2]trace.TracerProvider
	spans [2][]trace.Span
	ctxs  [2][]context.Context
	now   time.Time
}

var samplers = map[string]struct {
	ours Sampler
	sdk  sdktrace.Sampler
}{
	"always":            {Always, sdktrace.AlwaysSample()},
	"never":             {Never, sdktrace.NeverSample()},
	"half":              {Ratio(0.5), sdktrace.TraceIDRatioBased(0.5)},
	"none":              {Ratio(0), sdktrace.TraceIDRatioBased(0)},
	"all":               {Ratio(1), sdktrace.TraceIDRatioBased(1)},
	"parent or a third": {ParentBased(Ratio(0.3)), sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.3))},
	"parent or always":  {ParentBased(Always), sdktrace.ParentBased(sdktrace.AlwaysSample())},
}

func newPair(t *rapid.T) *pair {
	p := &pair{t: t, now: time.Unix(1_700_000_000, 0)}
	names := []string{"always", "never", "half", "none", "all", "parent or a third", "parent or always"}
	s := samplers[rapid.SampledFrom(names).Draw(t, "sampler")]
	seed := rapid.Uint64().Draw(t, "seed")
	limits := Limits{Attributes: rapid.IntRange(1, 6).Draw(t, "attributes"), Value: rapid.IntRange(-1, 6).Draw(t, "value")}
	p.to[0] = &recorder{
		ended: func(s otlp.Span) { p.ours = append(p.ours, s) }, random: ids.Seeded(clock.System(), seed).Fill, sampled: s.ours, limits: limits, clock: clock.System(),
	}
	l := sdktrace.NewSpanLimits()
	l.AttributeCountLimit, l.AttributeValueLengthLimit = limits.Attributes, limits.Value
	p.to[1] = sdktrace.NewTracerProvider(sdktrace.WithRawSpanLimits(l), sdktrace.WithSampler(s.sdk), sdktrace.WithSpanProcessor(&p.sdk),
		sdktrace.WithIDGenerator(draws(ids.Seeded(clock.System(), seed).Fill)))
	return p
}

func (p *pair) at() time.Time {
	p.now = p.now.Add(time.Millisecond)
	return p.now
}

// text is short, with few different ones, and what is no UTF-8 among them.
func (p *pair) text(what string) string {
	return rapid.SampledFrom([]string{"", "a", "b", "grüße", "日本語テキスト", "x\xffy\xc3", "\xff\xff\xff\xff\xff\xff\xffabcdefgh", "abcdefgh\xff", "\uFFFDbcdefgh"}).Draw(p.t, what)
}

func (p *pair) attributes() []attribute.KeyValue {
	kv := rapid.Custom(func(t *rapid.T) attribute.KeyValue {
		k := attribute.Key(rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e", "f", "g", "h"}).Draw(t, "key"))
		switch rapid.IntRange(0, 6).Draw(t, "type") {
		case 0:
			return k.Int64(rapid.Int64().Draw(t, "int"))
		case 1:
			return k.Bool(rapid.Bool().Draw(t, "bool"))
		case 2:
			return k.Float64(rapid.Float64().Draw(t, "float"))
		case 3:
			return k.StringSlice([]string{p.text("first"), p.text("second")})
		case 4:
			return attribute.KeyValue{Key: k} // without a value
		default:
			return k.String(p.text("value"))
		}
	})
	return rapid.SliceOfN(kv, 0, 8).Draw(p.t, "attributes")
}

func (p *pair) context(what string) trace.SpanContext {
	state, err := trace.ParseTraceState(rapid.SampledFrom([]string{"", "a=1", "a=1,b=2"}).Draw(p.t, "state"))
	require.NoError(p.t, err)
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{15: rapid.ByteRange(0, 3).Draw(p.t, what)}, SpanID: trace.SpanID{7: rapid.ByteRange(0, 3).Draw(p.t, what)},
		TraceFlags: trace.TraceFlags(rapid.ByteRange(0, 3).Draw(p.t, "flags")), TraceState: state, Remote: rapid.Bool().Draw(p.t, "remote"),
	})
}

// start starts a span: a root, or below one that there is, or below somebody else's.
func (p *pair) start() {
	above := rapid.IntRange(-2, len(p.spans[0])-1).Draw(p.t, "above")
	remote := p.context("parent")
	name, at := p.text("name"), p.at()
	opts := []trace.SpanStartOption{
		trace.WithTimestamp(at), trace.WithAttributes(p.attributes()...), trace.WithSpanKind(trace.SpanKind(rapid.IntRange(0, 7).Draw(p.t, "kind"))),
		trace.WithLinks(trace.Link{SpanContext: p.context("link"), Attributes: p.attributes()}),
	}
	if rapid.Bool().Draw(p.t, "root") {
		opts = append(opts, trace.WithNewRoot())
	}
	scope := rapid.SampledFrom([]string{"a", "b"}).Draw(p.t, "scope")
	for i, to := range p.to {
		ctx := context.Background()
		if above >= 0 {
			ctx, to = p.ctxs[i][above], p.spans[i][above].TracerProvider()
		} else if above == -2 {
			ctx = trace.ContextWithSpanContext(ctx, remote)
		}
		ctx, s := to.Tracer(scope, trace.WithInstrumentationVersion("v1")).Start(ctx, name, opts...)
		require.Equal(p.t, s, trace.SpanFromContext(ctx))
		p.ctxs[i], p.spans[i] = append(p.ctxs[i], ctx), append(p.spans[i], s)
	}
}

// both does the same to a span and to the SDK's.
func (p *pair) both(f func(trace.Span)) {
	if len(p.spans[0]) == 0 {
		return
	}
	n := rapid.IntRange(0, len(p.spans[0])-1).Draw(p.t, "span")
	for i := range p.spans {
		f(p.spans[i][n])
	}
	require.Equal(p.t, p.spans[1][n].IsRecording(), p.spans[0][n].IsRecording())
	require.Equal(p.t, p.spans[1][n].SpanContext(), p.spans[0][n].SpanContext())
}

func (p *pair) event() {
	opts := []trace.EventOption{trace.WithTimestamp(p.at()), trace.WithAttributes(p.attributes()...)}
	name := p.text("name")
	for range rapid.SampledFrom([]int{1, 1, 1, 130}).Draw(p.t, "times") {
		p.both(func(s trace.Span) { s.AddEvent(name, opts...) })
	}
}

func (p *pair) links() {
	l := trace.Link{SpanContext: p.context("link"), Attributes: p.attributes()}
	n := rapid.SampledFrom([]int{1, 1, 1, 130}).Draw(p.t, "times")
	p.both(func(s trace.Span) {
		for range n {
			s.AddLink(l)
		}
	})
}

func (p *pair) end() {
	at, panics := p.at(), rapid.Bool().Draw(p.t, "panic")
	p.both(func(s trace.Span) {
		defer func() { require.Equal(p.t, panics, recover() != nil, "a panic goes on") }()
		defer s.End(trace.WithTimestamp(at))
		if panics {
			panic(errors.New("oh"))
		}
	})
}

// What is recorded is what the SDK of OpenTelemetry records, whatever is done in whatever order.
func TestRecordsAsTheSDK(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		t.Repeat(map[string]func(*rapid.T){
			"start": func(*rapid.T) { p.start() },
			"event": func(*rapid.T) { p.event() },
			"links": func(*rapid.T) { p.links() },
			"end":   func(*rapid.T) { p.end() },
			"set": func(*rapid.T) {
				kvs := p.attributes()
				p.both(func(s trace.Span) { s.SetAttributes(kvs...) })
			},
			"name": func(*rapid.T) {
				name := p.text("name")
				p.both(func(s trace.Span) { s.SetName(name) })
			},
			"status": func(*rapid.T) {
				code, why := codes.Code(rapid.IntRange(0, 2).Draw(t, "code")), p.text("why")
				p.both(func(s trace.Span) { s.SetStatus(code, why) })
			},
			"error": func(*rapid.T) {
				at, err := p.at(), rapid.SampledFrom([]error{nil, errors.New("e"), &otlp.Unavailable{}, context.DeadlineExceeded}).Draw(t, "err")
				p.both(func(s trace.Span) { s.RecordError(err, trace.WithTimestamp(at)) })
			},
			"": func(*rapid.T) { require.Equal(t, alike(p.sdk.spans), alike(p.ours)) },
		})
	})
}

// alike is spans without what does not matter: whether a list is empty or none, and when a panic was noted.
func alike(spans []otlp.Span) []otlp.Span {
	out := []otlp.Span{}
	for _, s := range spans {
		s.Attributes = append([]attribute.KeyValue{}, s.Attributes...)
		s.Links = append([]trace.Link{}, s.Links...)
		for i := range s.Links {
			s.Links[i].Attributes = append([]attribute.KeyValue{}, s.Links[i].Attributes...)
		}
		s.Events = append([]otlp.Event{}, s.Events...)
		for i, e := range s.Events {
			s.Events[i].Attributes = append([]attribute.KeyValue{}, e.Attributes...)
			if e.Name == "exception" && e.Time.After(time.Unix(1_710_000_000, 0)) {
				s.Events[i].Time = time.Time{}
			}
		}
		out = append(out, s)
	}
	return out
}

// The last word on a status counts, but what was said to be ok stays so.
func TestStatus(t *testing.T) {
	var got otlp.Span
	c := clock.System()
	r := &recorder{ended: func(s otlp.Span) { got = s }, random: ids.Seeded(c, 1).Fill, sampled: Always, limits: Limits{}.orDefault(), clock: c}
	for name, e := range map[string]struct {
		said []otlp.Status
		want otlp.Status
	}{
		"a later error": {[]otlp.Status{{Code: codes.Error, Description: "a"}, {Code: codes.Error, Description: "b"}}, otlp.Status{Code: codes.Error, Description: "b"}},
		"unset again":   {[]otlp.Status{{Code: codes.Error, Description: "a"}, {Code: codes.Unset, Description: ""}}, otlp.Status{Code: codes.Error, Description: "a"}},
		"ok after all":  {[]otlp.Status{{Code: codes.Error, Description: "a"}, {Code: codes.Ok, Description: "no word"}}, otlp.Status{Code: codes.Ok}},
		"ok and stays":  {[]otlp.Status{{Code: codes.Ok, Description: ""}, {Code: codes.Error, Description: "a"}}, otlp.Status{Code: codes.Ok}},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := r.Tracer("lib").Start(context.Background(), "a")
			for _, said := range e.said {
				s.SetStatus(said.Code, said.Description)
			}
			s.End()
			require.Equal(t, e.want, got.Status)
		})
	}
}

// A stack is noted where it is asked for, and times that nobody says are the clock's.
func TestStackAndTimes(t *testing.T) {
	var got otlp.Span
	c := clock.System()
	r := &recorder{ended: func(s otlp.Span) { got = s }, random: ids.Seeded(c, 1).Fill, sampled: Always, limits: Limits{}.orDefault(), clock: c}
	before := c.Now()
	_, s := r.Tracer("lib").Start(context.Background(), "a")
	s.RecordError(errors.New("oh"), trace.WithStackTrace(true))
	require.Zero(t, got, "it has not ended")
	s.End()
	require.False(t, s.IsRecording())
	require.False(t, got.StartTime.Before(before))
	require.False(t, got.EndTime.Before(got.StartTime))
	require.Len(t, got.Events, 1)
	text := fmt.Sprint(got.Events[0].Attributes)
	require.Contains(t, text, "TestStackAndTimes")
	require.Less(t, len(text), 4096)
}

// Values that a request has no room for are sent as bounded text.
func TestOtherValuesAreText(t *testing.T) {
	for name, c := range map[string]struct {
		in   attribute.Value
		want string
	}{
		"bytes": {attribute.ByteSliceValue([]byte(strings.Repeat("x", 100))), "eHh4eHh4"},
		"list":  {attribute.SliceValue(attribute.StringValue("abcdefghij")), `["abcdef`},
		"map":   {attribute.MapValue(attribute.String("k", "abcdefghij")), `{"k":"ab`},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, attribute.StringValue(c.want), cut(c.in, 8)) })
	}
}
