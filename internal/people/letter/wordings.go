package letter

import (
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/notify"
)

// subjects are how the subjects of what is open begin.
func subjects(of notify.Occasion) string {
	switch of {
	case notify.Asked:
		return "Approval needed"
	case notify.Reminder:
		return "Still waiting for approval"
	case notify.Escalated:
		return "Approval needed from you as well"
	case notify.Question:
		return "Question about a request"
	case notify.Answer:
		return "Answer about a request"
	case notify.Code:
		return "Your code for a request"
	}
	return ""
}

// outcomes are how the subjects of what is over begin.
func outcomes(of approval.Status) string {
	switch of {
	case approval.Approved:
		return "Approved"
	case approval.Denied:
		return "Denied"
	case approval.Expired:
		return "Expired"
	case approval.Cancelled:
		return "Called off"
	case approval.Voided:
		return "No longer needed"
	}
	return ""
}

// openings are why people are told of what is open.
func openings(of notify.Occasion) string {
	switch of {
	case notify.Asked:
		return "You are asked to decide about this. Nothing of it is carried out before it is approved."
	case notify.Reminder:
		return "This still waits for a decision. Nothing of it is carried out before it is approved."
	case notify.Escalated:
		return "This is not decided yet, so you are asked as well. Nothing of it is carried out before it is approved."
	case notify.Question:
		return "Who is to decide about this asks for information. Answering decides nothing."
	case notify.Answer:
		return "What you asked about this was answered. It still waits for a decision."
	case notify.Code:
		return "Somebody asked for this code on the request's page, which a link of yours opens. If it was you, type the " +
			"code there within ten minutes, and nowhere else. If not, somebody else has your link: tell those who run Countersign."
	}
	return ""
}

// opening is why the person is told, or what became of the request.
func opening(m notify.Message) string {
	if m.Occasion != notify.Decided {
		return openings(m.Occasion)
	}
	return Outcome(m.Approval)
}

// Outcome says what became of a request, by whom and when.
func Outcome(a approval.Approval) string {
	by := ""
	if n := len(a.Decisions); n > 0 {
		d := a.Decisions[n-1]
		by = " by " + personName(d.By) + " on " + formatTime(d.At)
		if d.Action == approval.Edit && a.Status == approval.Approved {
			return "Approved with other arguments" + by + "."
		}
	}
	switch a.Status {
	case approval.Pending:
		return "It still waits for a decision."
	case approval.Approved, approval.Denied:
		return outcomes(a.Status) + by + "."
	case approval.Expired:
		return "Expired on " + formatTime(a.ExpiresAt) + ": nobody decided in time. It was not carried out."
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
