package asl

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// taskState calls a resource, with retries, catches and limits in time.
type taskState struct {
	dataflow
	resource   resource
	parameters *template
	selector   *template
	place      selector
	timeout    limit
	heartbeat  limit
	retry      []retrier
	catch      []catcher
	next       string
}

// limit is a number of seconds, fixed or from the input; the zero value is none.
type limit struct {
	seconds int
	path    *path
}

func parseTask(f *fields) state {
	s := &taskState{dataflow: f.dataflow(), place: f.result(), selector: f.template("ResultSelector", false), next: f.next()}
	arn := f.text("Resource", required)
	var ok bool
	if s.resource, ok = resources[arn]; !ok {
		f.fault("Resource", fmt.Sprintf("%q is not supported", arn))
	}
	s.parameters = f.template("Parameters", s.resource.token)
	if ok {
		s.resource.check(f, s.parameters)
	}
	s.timeout, s.heartbeat = f.limit("TimeoutSeconds"), f.limit("HeartbeatSeconds")
	if s.timeout.seconds > 0 && s.heartbeat.seconds >= s.timeout.seconds {
		f.fault("HeartbeatSeconds", "must be smaller than TimeoutSeconds")
	}
	s.retry, s.catch = parseRetry(f), parseCatch(f)
	return s
}

func (f *fields) limit(key string) limit {
	if f.has(key) && f.has(key+"Path") {
		f.fault(key, "want either "+key+" or "+key+"Path")
	}
	return limit{seconds: f.seconds(key), path: f.path(key + "Path")}
}

func parseRetry(f *fields) []retrier {
	var all []retrier
	var names [][]string
	for _, r := range f.objects("Retry") {
		all = append(all, parseRetrier(r))
		names = append(names, all[len(all)-1].errors)
		r.end()
	}
	f.allLast("Retry", names)
	return all
}

func parseRetrier(f *fields) retrier {
	f.text("Comment", optional)
	r := retrier{
		errors:   f.errorNames(),
		interval: f.integer("IntervalSeconds", 1, maxSeconds, defaultInterval),
		attempts: f.integer("MaxAttempts", 0, maxSeconds, defaultAttempts),
		maxDelay: f.integer("MaxDelaySeconds", 1, maxDelayLimit-1, 0),
		backoff:  f.backoff(),
	}
	switch strategy := f.text("JitterStrategy", optional); strategy {
	case "", "NONE":
	case "FULL":
		r.jitter = true
	default:
		f.fault("JitterStrategy", fmt.Sprintf("%q is neither FULL nor NONE", strategy))
	}
	return r
}

// backoff is BackoffRate.
func (f *fields) backoff() float64 {
	v, ok := f.get("BackoffRate", optional)
	if !ok {
		return defaultBackoff
	}
	if !isNumeric(v) || number(v) < 1 {
		f.fault("BackoffRate", "want a number of at least 1")
		return defaultBackoff
	}
	return number(v)
}

func parseCatch(f *fields) []catcher {
	var all []catcher
	var names [][]string
	for _, c := range f.objects("Catch") {
		c.text("Comment", optional)
		all = append(all, catcher{errors: c.errorNames(), result: c.result(), next: c.text("Next", required)})
		names = append(names, all[len(all)-1].errors)
		c.end()
	}
	f.allLast("Catch", names)
	return all
}

func (s *taskState) kind() string { return "Task" }
func (s *taskState) final() bool  { return s.next == "" }

func (s *taskState) targets() []target {
	all := nextTarget(s.next)
	for i, c := range s.catch {
		all = append(all, target{key: fmt.Sprintf("Catch[%d].Next", i), name: c.next})
	}
	return all
}

func (s *taskState) enter(x *execution, in any) (any, string, error) {
	r := newRetries(s.retry)
	a := x.takeResumed(r)
	for {
		x.retryCount = r.count()
		out, err := s.try(x, in, r, a)
		var f *Failure
		if !errors.As(err, &f) {
			return out, s.next, err
		}
		delay, again := r.next(f, x.engine.jitter)
		if !again {
			return s.caught(in, f)
		}
		if x.engine.Retrying != nil {
			x.engine.Retrying(x.describe(), f, delay)
		}
		if err := x.sleep(delay); err != nil {
			return nil, "", err
		}
		x.transition()
		a = nil
	}
}

// caught goes on where the first Catch that matches says.
func (s *taskState) caught(in any, f *Failure) (any, string, error) {
	i := slices.IndexFunc(s.catch, func(c catcher) bool { return c.matches(f) })
	if i < 0 {
		return nil, "", f
	}
	out, err := s.catch[i].result.place(in, f.output())
	if err == nil {
		err = checkSize(out)
	}
	return out, s.catch[i].next, err
}

// try is one attempt, from input to output. A resumed attempt is given; else it is nil and a new one is made.
func (s *taskState) try(x *execution, in any, r *retries, a *attempt) (any, error) {
	if a == nil {
		a = x.newAttempt()
		if s.resource.token {
			a.token = x.engine.IDs()
		}
	}
	x.token, x.object = a.token, nil
	work, err := s.prepare(x, in, a)
	if err != nil {
		return nil, err
	}
	if err := x.park(in, r, a); err != nil {
		return nil, err
	}
	result, err := a.perform(x, work)
	if err != nil {
		return nil, err
	}
	return s.finish(x, in, result)
}

// prepare fills in the parameters and the limits in time.
func (s *taskState) prepare(x *execution, in any, a *attempt) (work, error) {
	sc, err := s.receive(x, in)
	if err != nil {
		return nil, err
	}
	if err := a.limit(s, sc, x.engine.Clock.Now()); err != nil {
		return nil, err
	}
	params, err := s.parameters.eval(sc)
	if err != nil {
		return nil, err
	}
	return s.resource.prepare(x, params.(map[string]any))
}

// limit sets the attempt's limits; the deadline of a resumed one stands.
func (a *attempt) limit(s *taskState, sc scope, now time.Time) error {
	timeout, err := s.timeout.in(sc)
	if err != nil {
		return err
	}
	heartbeat, err := s.heartbeat.in(sc)
	if err != nil {
		return err
	}
	if timeout > 0 && heartbeat >= timeout {
		return failf(Runtime, "the heartbeat of %s must be smaller than the timeout of %s", heartbeat, timeout)
	}
	a.heartbeat, a.beat = heartbeat, now
	if timeout > 0 && !a.resumed {
		a.deadline = now.Add(timeout)
	}
	return nil
}

// in is the limit for an input; 0 is none.
func (l limit) in(sc scope) (time.Duration, error) {
	seconds := l.seconds
	if l.path != nil {
		var err error
		if seconds, err = sc.seconds(l.path, 1); err != nil {
			return 0, err
		}
	}
	return time.Duration(seconds) * time.Second, nil
}

// finish makes the state's output of the task's result.
func (s *taskState) finish(x *execution, in, result any) (any, error) {
	sc := x.scope(result)
	if s.selector != nil {
		var err error
		if result, err = s.selector.eval(sc); err != nil {
			return nil, err
		}
	}
	placed, err := s.place.place(in, result)
	if err != nil {
		return nil, err
	}
	sc.data = placed
	return s.emit(sc)
}

// check refuses parameters that the resource does not take.
func (r resource) check(f *fields, t *template) {
	if t == nil || t.object == nil {
		f.get("Parameters", required)
		f.fault("Parameters", "want an object")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(t.object)) {
		if !slices.Contains(r.required, key) && !slices.Contains(r.optional, key) {
			f.fault("Parameters."+key, "not supported here")
		}
	}
	for _, key := range r.required {
		if t.object[key] == nil {
			f.fault("Parameters."+key, "missing")
		}
	}
	if r.token && !t.uses(taskToken) {
		f.fault("Parameters", "must pass "+taskToken+" on")
	}
}
