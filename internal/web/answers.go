package web

import "github.com/countersign/countersign/internal/approval"

// answers adds what the visitor is asked, or why they are not.
func (s *server) answers(page *requestPage, v visit) {
	page.AnswerHead = "Your answer"
	if page.Fine == "" {
		page.Fine = "This address is yours alone: whoever has it answers as you. Do not pass it on."
	}
	switch m := page.May; {
	case !page.Open:
		page.AnswerHead = "Nothing left to answer"
		page.AnswerText = "This page says what became of the request. Nothing on it can be changed."
	case v.voted():
		page.AnswerHead, page.AnswerText = "You have answered", "Others have still to."
	case m.Deny && !m.Approve && !m.Result && v.a.FourEyes:
		page.AnswerText = "It is done for you, so that somebody else has to approve it. You may deny it."
	case !m.Approve && !m.Deny && !m.Result:
		page.AnswerHead, page.AnswerText = "For you to know", "You are not among those who decide this."
	}
	if page.Kind != approval.KindTools || !page.May.Deny {
		return
	}
	for _, p := range v.a.Permissions {
		if p.Verdict == "" {
			page.Each = append(page.Each, eachTool{p.Tool, s.Show.Text(p.Tool)})
		}
	}
	if len(page.Each) == 1 {
		page.Each = nil
	}
}
