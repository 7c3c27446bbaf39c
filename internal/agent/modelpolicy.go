package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// CutStream says what becomes of a reply whose stream broke off after part of it was there.
type CutStream string

// The request has failed, or what was received is the reply (semantics 4.2). "" = fail.
const (
	CutStreamFail CutStream = "fail"
	CutStreamKeep CutStream = "keep"
)

// Repair says what becomes of a call whose arguments are not JSON.
type Repair string

// The model is told, or what its words can only mean is taken for them (semantics 4.5). "" = off.
const (
	RepairOff Repair = "off"
	RepairOn  Repair = "on"
)

// Busy says what becomes of a run when every model of its chain has failed and the last error may pass.
type Busy string

// The run waits: nothing is committed and the state machine asks again for about an hour, then the sweep; or it ends in error. "" = wait.
const (
	BusyWait Busy = "wait"
	BusyFail Busy = "fail"
)

// StopInterrupted is the StopReason of a reply whose stream broke off.
const StopInterrupted = "interrupted"

// Withheld reports whether a model stopped, in its provider's word, because it refused to answer or was kept from it.
func Withheld(stop string) bool {
	return slices.Contains([]string{"refusal", "content_filter", "content_filtered", "guardrail_intervened"}, stop)
}

// ModelErrorClasses are all classes, those that may be retried first.
func ModelErrorClasses() []ModelErrorClass {
	return []ModelErrorClass{
		ModelThrottled, ModelTimeout, ModelConnection, ModelUnavailable, ModelServer, ModelAuth, ModelInvalid, ModelContextOverflow,
	}
}

// Repeats reports whether the same request is sent to the same model again after e, as far as e alone decides.
func (r Retry) Repeats(e *ModelError) bool {
	return e.Class.Retryable() && !e.Lasting && (r.On == nil || slices.Contains(r.On, e.Class))
}

// MovesOn reports whether the next model of the chain is asked, or in the end the static text stands, when one has failed for good with
// an error of this class. Any other ends the run at once.
func (m ModelSpec) MovesOn(c ModelErrorClass) bool {
	return m.MoveOn == nil || slices.Contains(m.MoveOn, c)
}

// Waits reports whether a run whose chain ended with e waits until its models answer again. Otherwise e ends the run.
func (m ModelSpec) Waits(e *ModelError) bool {
	return m.Busy != BusyFail && e.Class.Retryable() && !e.Lasting && m.MovesOn(e.Class)
}

// Kept is the reply that is made of what was received before e, if the model's replies are kept like that.
func (m ModelSpec) Kept(e *ModelError) (Reply, bool) {
	if m.CutStream != CutStreamKeep || e == nil || e.Partial == nil {
		return Reply{}, false
	}
	return *e.Partial, true
}

// Interrupted is what is kept of a reply whose stream broke off: its text and the calls whose arguments are all there, which is to say a
// JSON object. nil = nothing that anybody could read or do. Usage is what was told until then.
func Interrupted(r Reply) *Reply {
	whole := make([]int, 0, len(r.Calls)) // the places of the calls that are kept
	var calls []ReplyCall
	for i, c := range r.Calls {
		if c.Name == "" || !isJSONObject(c.Input) {
			continue
		}
		whole, calls = append(whole, i), append(calls, c)
	}
	if len(calls) == 0 && strings.TrimSpace(r.Text) == "" {
		return nil
	}
	r.Calls, r.Reasoning = calls, slices.Clone(r.Reasoning)
	for i, b := range r.Reasoning { // behind so many of the calls that are kept
		r.Reasoning[i].AfterCalls, _ = slices.BinarySearch(whole, b.AfterCalls)
	}
	r.StopReason, r.Truncated = StopInterrupted, false
	return &r
}

// or is r with p's values where it has none.
func (r Retry) or(p Retry) Retry {
	if r.On == nil {
		r.On = p.On
	}
	return Retry{
		Attempts: cmp.Or(r.Attempts, p.Attempts), Backoff: cmp.Or(r.Backoff, p.Backoff), MaxBackoff: cmp.Or(r.MaxBackoff, p.MaxBackoff),
		Window: cmp.Or(r.Window, p.Window), Jitter: cmp.Or(r.Jitter, p.Jitter), On: r.On,
	}
}

// or is m with p's policies and parameters where it has none; what names and prices a model is m's own.
func (m ModelSpec) or(p ModelSpec) ModelSpec {
	m.Retry = m.Retry.or(p.Retry)
	m.Continuations = cmp.Or(m.Continuations, p.Continuations)
	m.CutStream = cmp.Or(m.CutStream, p.CutStream)
	m.Repair = cmp.Or(m.Repair, p.Repair)
	m.Busy = cmp.Or(m.Busy, p.Busy)
	m.MaxTokens = cmp.Or(m.MaxTokens, p.MaxTokens)
	m.Temperature = cmp.Or(m.Temperature, p.Temperature)
	m.Timeout = cmp.Or(m.Timeout, p.Timeout)
	m.Dialect = cmp.Or(m.Dialect, p.Dialect)
	if m.MoveOn == nil {
		m.MoveOn = p.MoveOn
	}
	return m
}

// retryClasses checks the classes that are asked again.
func (c *checker) retryClasses(at string, r Retry) {
	retryable := slices.DeleteFunc(ModelErrorClasses(), func(class ModelErrorClass) bool { return !class.Retryable() })
	for i, class := range r.On {
		oneOf(c, fmt.Sprintf("%s.on[%d]", at, i), class, retryable...)
	}
}

// wholeChain checks what holds for all models of a chain and is said once, by the first.
func (c *checker) wholeChain(m ModelSpec) {
	for i, class := range m.MoveOn {
		oneOf(c, fmt.Sprintf("model.moveOn[%d]", i), class, ModelErrorClasses()...)
	}
	oneOf(c, "model.cutStream", cmp.Or(m.CutStream, CutStreamFail), CutStreamFail, CutStreamKeep)
	oneOf(c, "model.repair", cmp.Or(m.Repair, RepairOff), RepairOff, RepairOn)
	oneOf(c, "model.busy", cmp.Or(m.Busy, BusyWait), BusyWait, BusyFail)
	for i, f := range m.Fallbacks {
		at := chainPath(i + 1)
		c.that(f.MoveOn == nil, at+".moveOn", "got a list, want none: it is the whole chain's")
		c.that(f.CutStream == "", at+".cutStream", "got a word, want none: it is the whole chain's")
		c.that(f.Repair == "", at+".repair", "got a word, want none: it is the whole chain's")
		c.that(f.Busy == "", at+".busy", "got a word, want none: it is the whole chain's")
	}
}
