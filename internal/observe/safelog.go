package observe

// This file writes logs that hold no content (R17): attributes of an allow-list of names, and of an error its kinds,
// never its text. What a caller, a model or a tool said may stand in an error's text; it does not stand in a log.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
)

// allowed are the names of attributes that are written. Their values are ids, counts, durations and words of ours.
var allowed = []string{
	"tenant", "run", "execution", "approval", "repair", "count", "status", "millis", "panic", "stack", "event", "route",
	"kind", "reason", "seq", "hash", "agent", "tool", "digest", "by", "via", "person",
}

// NewLogger makes a logger that writes lines of JSON to w. known are errors whose own text is fit for a log, wherever
// they stand in another error; constants, that is.
func NewLogger(w io.Writer, known ...error) *slog.Logger {
	return slog.New(&handler{next: slog.NewJSONHandler(w, nil), known: known})
}

// handler drops what is not allowed before next sees it.
type handler struct {
	next  slog.Handler
	known []error
}

func (h *handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, r.Message, 0)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.safe(a)...)
		return true
	})
	return h.next.Handle(ctx, out)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var kept []slog.Attr
	for _, a := range attrs {
		kept = append(kept, h.safe(a)...)
	}
	return &handler{next: h.next.WithAttrs(kept), known: h.known}
}

// WithGroup implements slog.Handler. A group's name is the program's own.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{next: h.next.WithGroup(name), known: h.known}
}

// safe is what of an attribute may be written, if anything.
func (h *handler) safe(a slog.Attr) []slog.Attr {
	v := a.Value.Resolve()
	if err, ok := v.Any().(error); ok {
		return []slog.Attr{slog.Any(a.Key, ErrorKinds(err, h.known...))}
	}
	if slices.Contains(allowed, a.Key) && v.Kind() != slog.KindAny && v.Kind() != slog.KindGroup {
		return []slog.Attr{{Key: a.Key, Value: v}}
	}
	return nil
}

// ErrorKinds describes an error without its text: its Go types and codes from the outside in, and each of the known
// texts that it contains.
func ErrorKinds(err error, known ...error) []string {
	var out []string
	for _, k := range known {
		if errors.Is(err, k) {
			out = append(out, k.Error())
		}
	}
	if out = kinds(err, out); len(out) == 0 {
		out = append(out, fmt.Sprintf("%T", err))
	}
	return out
}

func kinds(err error, out []string) []string {
	if t := fmt.Sprintf("%T", err); !slices.Contains(dull, t) {
		out = append(out, t)
	}
	switch e := err.(type) { //nolint:errorlint // each link of the chain is looked at by itself
	case interface{ ErrorCode() string }: // what a service of AWS or an identity provider answered
		out = appendCode(out, e.ErrorCode())
	case interface{ ErrorType() string }: // of ours
		out = appendCode(out, e.ErrorType())
	}
	switch e := err.(type) { //nolint:errorlint // the same
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return kinds(inner, out)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			out = kinds(inner, out)
		}
	}
	return out
}

// dull are types that every error has somewhere and that say nothing.
var dull = []string{"*fmt.wrapError", "*fmt.wrapErrors", "*errors.errorString", "*errors.joinError"}

// appendCode appends c if it has the form of what services answer, such as ThrottlingException, invalid_client or
// Countersign.Throttled.
func appendCode(out []string, c string) []string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if c != "" && len(c) <= 64 && c[0] != '.' && strings.Trim(c, letters+"._") == "" {
		return append(out, c)
	}
	return out
}
