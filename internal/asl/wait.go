package asl

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// waitState lets time pass. One of its fields says how much.
type waitState struct {
	dataflow
	seconds       int
	timestamp     time.Time
	secondsPath   *path
	timestampPath *path
	next          string
}

func parseWait(f *fields) state {
	s := &waitState{
		dataflow: f.dataflow(), next: f.next(), seconds: f.integer("Seconds", 0, maxSeconds, 0),
		secondsPath: f.path("SecondsPath"), timestampPath: f.path("TimestampPath"),
	}
	if text := f.text("Timestamp", optional); text != "" {
		var err error
		if s.timestamp, err = time.Parse(time.RFC3339, text); err != nil {
			f.fault("Timestamp", "want an RFC 3339 time")
		}
	}
	if f.count("Seconds", "Timestamp", "SecondsPath", "TimestampPath") != 1 {
		f.fault("", "want one of Seconds, Timestamp, SecondsPath, TimestampPath")
	}
	return s
}

// count is how many of the keys are there.
func (f *fields) count(keys ...string) int {
	n := 0
	for _, k := range keys {
		if f.has(k) {
			n++
		}
	}
	return n
}

func (s *waitState) kind() string      { return "Wait" }
func (s *waitState) targets() []target { return nextTarget(s.next) }
func (s *waitState) final() bool       { return s.next == "" }

func (s *waitState) enter(x *execution, in any) (any, string, error) {
	sc, err := s.receive(x, in)
	if err != nil {
		return nil, "", err
	}
	until, err := s.until(sc, x.engine.Clock.Now())
	if err != nil {
		return nil, "", err
	}
	if err := x.sleep(until.Sub(x.engine.Clock.Now())); err != nil {
		return nil, "", err
	}
	out, err := s.emit(sc)
	return out, s.next, err
}

// until is the instant the state waits for.
func (s *waitState) until(sc scope, now time.Time) (time.Time, error) {
	switch {
	case s.secondsPath != nil:
		n, err := sc.seconds(s.secondsPath, 0)
		return now.Add(time.Duration(n) * time.Second), err
	case s.timestampPath != nil:
		v, _ := sc.get(s.timestampPath)
		text, _ := v.(string)
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return time.Time{}, failf(Runtime, "TimestampPath %s is no time", s.timestampPath.text)
		}
		return at, nil
	case !s.timestamp.IsZero():
		return s.timestamp, nil
	default:
		return now.Add(time.Duration(s.seconds) * time.Second), nil
	}
}

// seconds is the whole number of seconds a path leads to, at least low.
func (sc scope) seconds(p *path, low int) (int, error) {
	v, _ := sc.get(p)
	number, _ := v.(json.Number)
	n, err := strconv.Atoi(string(number))
	if err != nil || n < low || n > maxSeconds {
		return 0, failf(Runtime, "%s", fmt.Sprintf("the path %s must lead to a whole number from %d to %d", p.text, low, maxSeconds))
	}
	return n, nil
}
