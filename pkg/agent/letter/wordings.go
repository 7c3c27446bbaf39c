package letter

import (
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/notify"
)

// subjects are how the subjects of what is open begin.
var subjects = map[notify.Occasion]string{
	notify.Asked: "Approval needed", notify.Reminder: "Still waiting for approval", notify.Escalated: "Approval needed from you as well",
	notify.Question: "Question about a request", notify.Answer: "Answer about a request",
}

// outcomes are how the subjects of what is over begin.
var outcomes = map[approval.Status]string{
	approval.Approved: "Approved", approval.Denied: "Denied", approval.Expired: "Expired", approval.Cancelled: "Called off", approval.Voided: "No longer needed",
}

// openings are why people are told of what is open.
var openings = map[notify.Occasion]string{
	notify.Asked:     "You are asked to decide about this. Nothing of it is carried out before it is approved.",
	notify.Reminder:  "This still waits for a decision. Nothing of it is carried out before it is approved.",
	notify.Escalated: "Nobody has decided about this yet, so you are asked as well. Nothing of it is carried out before it is approved.",
	notify.Question:  "Who is to decide about this asks for information. Answering decides nothing.",
	notify.Answer:    "What you asked about this was answered. It still waits for a decision.",
}

// opening is why the person is told, or what became of the request.
func opening(m notify.Message) string {
	if m.Occasion != notify.Decided {
		return openings[m.Occasion]
	}
	return Outcome(m.Approval)
}

// Outcome says what became of a request, by whom and when.
func Outcome(a approval.Approval) string {
	by := ""
	if n := len(a.Decisions); n > 0 {
		d := a.Decisions[n-1]
		by = " by " + name(d.By) + " on " + when(d.At)
		if d.For != "" {
			by = " by " + name(d.By) + " for " + name(d.For) + " on " + when(d.At)
		}
		if d.Action == approval.Edit && a.Status == approval.Approved {
			return "Approved with other arguments" + by + "."
		}
	}
	switch a.Status {
	case approval.Pending:
		return "It still waits for a decision."
	case approval.Approved, approval.Denied:
		return outcomes[a.Status] + by + "."
	case approval.Expired:
		return "Expired on " + when(a.ExpiresAt) + ": nobody decided in time. It was not carried out."
	case approval.Cancelled:
		return "Called off" + by + ". It was not carried out."
	default:
		return "No longer needed: it was overtaken by what happened since. Nobody has to decide."
	}
}

// remarkTitle stands over a question or an answer.
func remarkTitle(o notify.Occasion) string {
	if o == notify.Answer {
		return "The answer"
	}
	return "The question"
}
