package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/scenario"
)

// atOnePoint runs a scenario with one fault at one call. What goes wrong without it, too, is said as such.
func atOnePoint(s *scenario.Scenario, with string) ([]string, error) {
	w, err := parseWith(with)
	if err != nil {
		return nil, err
	}
	plain := s.Run(scenario.Options{})
	if len(plain.Failures) > 0 {
		return said("without a fault: ", plain.Failures), nil
	}
	c, err := w.find(plain.Calls)
	if err != nil {
		return nil, err
	}
	got := s.Run(scenario.Options{Crash: &fault.Point{Call: c.Number, Kind: w.kind}})
	return said(fmt.Sprintf("%s, %s: ", string(w.kind), c), got.Failures), nil
}

// where is a fault at a call.
type where struct {
	kind          fault.Kind
	port, subject string
	nth           int // from 1
}

func parseWith(text string) (where, error) {
	kind, at, ok := strings.Cut(text, "@")
	w := where{kind: fault.Kind(kind), nth: 1}
	if !ok || !slices.Contains(fault.Kinds(), w.kind) {
		return w, fmt.Errorf("got %q, want crash, or one of %v, @, a port and a part of its subject", text, fault.Kinds())
	}
	w.port, w.subject, _ = strings.Cut(at, " ")
	subject, nth, ok := cutLast(w.subject, " #")
	if !ok {
		return w, nil
	}
	n, err := strconv.Atoi(nth)
	if err != nil || n < 1 {
		return w, fmt.Errorf("got %q, want a number from 1 behind #", text)
	}
	w.subject, w.nth = subject, n
	return w, nil
}

func cutLast(text, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

// find is the call among those of a run without faults.
func (w where) find(calls []fault.Call) (fault.Call, error) {
	n := 0
	for _, c := range calls {
		if c.Port != w.port || !strings.Contains("^"+c.What, w.subject) {
			continue
		}
		if n++; n == w.nth {
			return c, nil
		}
	}
	lines := make([]string, len(calls))
	for i, c := range calls {
		lines[i] = c.String()
	}
	return fault.Call{}, fmt.Errorf("the run has %d calls %s %s, want at least %d; it has:\n%s", n, w.port, w.subject, w.nth, strings.Join(lines, "\n"))
}
