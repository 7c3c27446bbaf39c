package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/scenario"
)

// disturbed runs a scenario with what WITH says, each at a call of the run with those before it. What goes wrong without any is said as such.
func disturbed(s *scenario.Scenario, with string) ([]string, error) {
	var o scenario.Options
	var at fault.Call
	points, warm := strings.CutPrefix(with, "warm")
	o.Warm = warm
	r := s.Run(o)
	if found := bad(r); len(found) > 0 {
		return said("without a fault: ", found), nil
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(points, ", "), ", ") {
		if part == "" { // warm alone
			continue
		}
		w, err := parseWith(part)
		if err != nil {
			return nil, err
		}
		c, err := w.find(r.Calls)
		if err != nil {
			return nil, err
		}
		if c.Number <= at.Number {
			return nil, fmt.Errorf("%s is at %s, want it behind %s", part, c, at)
		}
		if at = c; w.kind != "" {
			o.Faults = append(o.Faults, fault.Point{Call: c.Number, Kind: w.kind, More: w.more})
		} else {
			o.Acts = append(o.Acts, scenario.Act{Call: c.Number, Do: w.deed, Lost: w.lost})
		}
		r = s.Run(o)
	}
	if r.Idle > 0 {
		return nil, fmt.Errorf("%s: %d of the deeds found nothing to do", with, r.Idle)
	}
	return said(fmt.Sprintf("%s: ", with), bad(r)), nil
}

// where is a fault or a deed at a call.
type where struct {
	kind          fault.Kind // "" = a deed
	more          int
	deed          scenario.Deed
	lost          bool
	port, subject string
	nth           int // from 1
}

func parseWith(text string) (where, error) {
	what, at, ok := strings.Cut(text, "@")
	what, more, _ := strings.Cut(what, "/")
	w := where{nth: 1}
	err := fmt.Errorf("got %q, want crash, or one of %q with a number behind /, or of %v, perhaps with /lost, and then @, a port and a part of its subject", text, names(), scenario.Deeds())
	switch {
	case !ok:
		return w, err
	case slices.Contains(fault.Kinds(), fault.Kind(what)):
		w.kind = fault.Kind(what)
		if more != "" {
			n, bad := strconv.Atoi(more)
			if bad != nil || n < 1 {
				return w, err
			}
			w.more = n
		}
	case slices.Contains(scenario.Deeds(), scenario.Deed(what)) && (more == "" || more == "lost"):
		w.deed, w.lost = scenario.Deed(what), more != ""
	default:
		return w, err
	}
	if i := strings.LastIndex(at, " #"); i >= 0 {
		n, bad := strconv.Atoi(at[i+2:])
		if bad != nil || n < 1 {
			return w, fmt.Errorf("got %q, want a number from 1 behind #", text)
		}
		at, w.nth = at[:i], n
	}
	w.port, w.subject, _ = strings.Cut(at, " ")
	return w, nil
}

// names are those of the kinds of faults.
func names() []string {
	var list []string
	for _, k := range fault.Kinds() {
		list = append(list, string(k))
	}
	return list
}

// find is the call among those of a run.
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
