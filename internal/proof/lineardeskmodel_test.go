package proof

import (
	"cmp"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/countersign/countersign/internal/approval"
)

// The sequential specification of a run's approval requests. A request is pending until it is decided, expires, or its
// run is cancelled. That state is final, and later operations return it.

// requests is the number of requests that the run makes at once.
const requests = 3

// request is the state of one request.
type request struct {
	status approval.Status
	args   string // what an approval lets run
	said   string // the decisions in order, each as who:action:args and a semicolon
}

// desk is the state of the specification.
type desk struct {
	of   [requests]request
	over string // "" = the run goes on, cancelled, or ended
}

// The operations.
type (
	// decide is a decision of a person. shown is the arguments that the person has read; "" = none.
	decide struct {
		of     int
		by     string
		action approval.Action
		args   string
		shown  string
		late   bool // the request had expired before the call
	}
	get    struct{ of int }
	cancel struct{}
	// work is an attempt of the run itself; finish is one that may have ended the run.
	work   struct{}
	finish struct{}
)

// answer is the answer to a decision.
type answer string

const (
	taken     answer = "taken"    // the decision counts, or an equal one before it
	beaten    answer = "beaten"   // another decision came first
	tooLate   answer = "too late" // the request had expired
	finished  answer = "finished" // the run has ended
	stale     answer = "stale"    // the arguments have changed since they were shown
	uncertain answer = "uncertain"
)

// outcome is the answer to an operation.
type outcome struct {
	answer answer
	shows  request // of taken, beaten, stale and get
	over   string  // of cancel: how the run ended
	late   bool    // the request may have expired before the return
}

func deskModel(quorum int, initial string) porcupine.Model {
	var first desk
	for i := range first.of {
		first.of[i] = request{status: approval.Pending, args: initial}
	}
	return specification(first, func(d desk, in any, out outcome) []desk { return d.statesAfter(in, out, quorum) })
}

// statesAfter returns the possible states after an operation with this answer; none = the answer is impossible. The end
// of a run closes its open requests one by one, so each of them may be closed or not yet.
func (d desk) statesAfter(in any, out outcome, quorum int) []desk {
	if d.over == "" {
		return d.statesAnswered(in, out, quorum)
	}
	states := []desk{d}
	for i := range d.of {
		for _, s := range states {
			if s.of[i].status == approval.Pending {
				s.of[i].status = approval.Cancelled
				states = append(states, s)
			}
		}
	}
	var next []desk
	for _, s := range states {
		next = append(next, s.statesAnswered(in, out, quorum)...)
	}
	return next
}

// statesAnswered is statesAfter while no request is closed.
func (d desk) statesAnswered(in any, out outcome, quorum int) []desk {
	switch in := in.(type) {
	case get:
		if out.answer == uncertain || d.of[in.of] == out.shows {
			return []desk{d}
		}
	case decide:
		next := d.decided(in, out, quorum)
		if in.shown == "" && d.of[in.of].said != "" { // it is about what they found at first, which others may have changed before they were heard
			in.shown = "what it was before"
			next = append(next, d.decided(in, out, quorum)...)
		}
		return next
	case cancel:
		return d.cancelled(out)
	case work:
		if out.late && d.over == "" {
			return []desk{d, d.close(approval.Expired)}
		}
		return []desk{d}
	case finish:
		next := []desk{d}
		if d.over == "" && !slices.ContainsFunc(d.of[:], func(r request) bool { return r.status == approval.Pending }) {
			d.over = "ended"
			next = append(next, d)
		}
		return next
	}
	return nil
}

func (d desk) close(as approval.Status) desk {
	for i := range d.of {
		if d.of[i].status == approval.Pending {
			d.of[i].status = as
		}
	}
	return d
}

func (d desk) cancelled(out outcome) []desk {
	next := d
	next.over = "cancelled"
	switch {
	case out.answer == uncertain && d.over == "":
		return []desk{d, next}
	case out.answer == uncertain:
		return []desk{d}
	case d.over == "" && out.over == "cancelled":
		return []desk{next}
	case d.over == out.over:
		return []desk{d}
	default:
		return nil
	}
}

// decided returns the possible states after a decision.
func (d desk) decided(in decide, out outcome, quorum int) []desk {
	r := d.of[in.of]
	will, now := r.applyDecision(in, quorum)
	changed := d
	changed.of[in.of] = now
	open := r.status == approval.Pending && !in.late
	is := func(ok bool) []desk {
		if ok {
			return []desk{d}
		}
		return nil
	}
	switch out.answer {
	case uncertain:
		if open && will == taken && d.over == "" {
			return []desk{d, changed}
		}
		return []desk{d}
	case tooLate: // nobody was first
		return is(r.status == approval.Pending && out.late)
	case finished:
		return is(d.over != "")
	}
	next := is(will == out.answer && out.shows == r && now == r)
	// After a lost answer they are shown what stands there by then, which is checked as a look of its own: their word,
	// and who has overtaken it.
	if open && will == taken && now != r && d.over == "" && strings.HasPrefix(out.shows.said, now.said) &&
		(out.answer == taken || out.answer == beaten && out.shows != now) {
		next = append(next, changed)
	}
	return next
}

// applyDecision returns a request's answer to a decision, and its state after it.
func (r request) applyDecision(in decide, quorum int) (answer, request) {
	if r.status != approval.Pending {
		if r.agreesWith(in) {
			return taken, r
		}
		return beaten, r
	}
	counted := r.countedApprovals()
	if in.action == approval.Edit && in.args == r.args && !strings.HasPrefix(counted[0], in.by+":edit:") {
		in.action, in.args, in.shown = approval.Approve, "", cmp.Or(in.shown, r.args) // an edit that changes nothing
	}
	switch {
	case in.action == approval.Edit && len(counted) > 0 && counted[0] == in.by+":edit:"+in.args:
		return taken, r // they have said it
	case in.action == approval.Approve && (in.shown == "" || in.shown == r.args) && slices.ContainsFunc(counted, func(s string) bool { return strings.HasPrefix(s, in.by+":") }):
		return taken, r
	case in.shown != "" && in.shown != r.args:
		return stale, r
	}
	now := r
	now.said += in.by + ":" + string(in.action) + ":" + in.args + ";"
	switch in.action {
	case approval.Deny:
		now.status = approval.Denied
	case approval.Cancel:
		now.status = approval.Cancelled
	case approval.Edit:
		now.args = in.args
		fallthrough
	default:
		if len(now.countedApprovals()) >= quorum {
			now.status = approval.Approved
		}
	}
	return taken, now
}

// decisions returns the decisions, each as who:action:args.
func (r request) decisions() []string {
	if r.said == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(r.said, ";"), ";")
}

// countedApprovals returns the approvals since the last change of the arguments.
func (r request) countedApprovals() []string {
	var of []string
	for _, s := range r.decisions() {
		switch strings.Split(s, ":")[1] {
		case "edit":
			of = []string{s}
		case "approve":
			of = append(of, s)
		}
	}
	return of
}

// agreesWith reports whether a settled request agrees with a decision: one of its decisions is the same. If nobody has
// decided it, the person's own earlier decision counts.
func (r request) agreesWith(in decide) bool {
	of := r.countedApprovals()
	if words := r.decisions(); r.status == approval.Denied || r.status == approval.Cancelled && len(words) > 0 && strings.Contains(words[len(words)-1], ":cancel:") {
		of = words[len(words)-1:]
	} else if r.status != approval.Approved {
		of = slices.DeleteFunc(of, func(s string) bool { return !strings.HasPrefix(s, in.by+":") })
	}
	shown := in.action != approval.Approve || in.shown == "" || in.shown == r.args
	return shown && slices.ContainsFunc(of, func(s string) bool {
		parts := strings.SplitN(s, ":", 3)
		return parts[1] == string(in.action) && (in.action != approval.Edit || parts[2] == in.args)
	})
}
