package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/countersign/countersign/internal/approval"
)

// said is what a page says of what was just tried, and what its person had typed.
type said struct {
	Head  string
	Bad   bool
	text  string
	typed map[string]string
}

// post takes a form. Where it is taken, the answer is the way back to the page; else it is the page, with what was typed and why it was not taken.
func (s *server) post(w http.ResponseWriter, r *http.Request, v visit) {
	form, err := readForm(r, v.proof != nil)
	if err != nil {
		s.page(w, r, v, http.StatusBadRequest, said{Head: "Your answer was not taken", text: "The form: " + err.Error() + ".", Bad: true})
		return
	}
	if v.proof != nil {
		if problem := v.proof(form); problem != "" {
			s.page(w, r, v, http.StatusForbidden, said{Head: "Your answer was not taken", text: problem, Bad: true, typed: form})
			return
		}
	}
	seen, ours := readTicket(v.link, form["form"])
	if !ours {
		s.page(w, r, v, http.StatusForbidden, said{Head: "Your answer was not taken", text: "The form was not one of this page. Answer anew.", Bad: true, typed: form})
		return
	}
	if what := seen.changes(stateOf(v.a, v.by.ID)); what != "" {
		s.page(w, r, v, http.StatusConflict, said{Head: "The request is not as you saw it", text: what, Bad: true, typed: form})
		return
	}
	if form["action"] == "uncover" {
		s.uncover(w, r, v, form)
		return
	}
	if err := s.act(r.Context(), v, form); err != nil {
		s.refuse(w, r, v, form, err)
		return
	}
	s.harden(w.Header())
	w.Header().Set("Location", r.URL.EscapedPath())
	w.WriteHeader(http.StatusSeeOther)
}

// uncover answers with the page on which nothing is masked, to who may decide. That they looked is recorded first: where it cannot be,
// nothing is shown.
func (s *server) uncover(w http.ResponseWriter, r *http.Request, v visit, form map[string]string) {
	err := s.mayUncover(v)
	if err != nil {
		s.refuse(w, r, v, form, err)
		return
	}
	if err := s.Desk.RecordUnmasking(r.Context(), v.link.Tenant, v.a.ID, v.by, v.via); err != nil {
		s.fails(w, r, fmt.Errorf("record that masked values were uncovered: %w", err))
		return
	}
	v.uncovered = true
	s.page(w, r, v, http.StatusOK, said{Head: "Nothing is masked on this page", text: "It is recorded that you looked. Open the page again to have it masked."})
}

func (s *server) mayUncover(v visit) error {
	if s.Show.Uncovered == nil {
		return &formError{"nothing is uncovered here"}
	}
	if !s.open(v.a) {
		return approval.ErrExpired
	}
	if _, deny := s.decides(v); !deny {
		return approval.ErrForbidden
	}
	return nil
}

// formError is what is wrong with a form, fit to be shown.
type formError struct{ problem string }

func (e *formError) Error() string { return e.problem }

// act does what the pressed button says, as the person, through the desk (A9).
func (s *server) act(ctx context.Context, v visit, form map[string]string) error {
	r := approval.DecisionInput{
		Tenant: v.link.Tenant, ID: v.link.Approval, Action: approval.Action(form["action"]), Note: form["note"], Tool: form["tool"], By: v.by, Via: v.via,
		Digest: v.a.Digest,
	}
	switch form["action"] {
	case "approve", "deny":
		if err := s.answer(v.a, form, &r); err != nil {
			return err
		}
	case "edit":
		if s.Show.Restore == nil {
			return &formError{"want one of the page's buttons"}
		}
		args, err := s.Show.Restore(ctx, v.a, form["args"])
		if err != nil {
			return err
		}
		r.Args = args
	case "remark":
		return s.remark(ctx, v, form["text"])
	case "happened", "failed", "rerun":
		return s.settle(ctx, v, form)
	default:
		return &formError{"want one of the page's buttons"}
	}
	_, err := s.Desk.Decide(ctx, r)
	return err
}

// answer adds what somebody gives a tool that asks; nothing typed is nothing but a yes.
func (s *server) answer(a approval.Approval, form map[string]string, r *approval.DecisionInput) error {
	text := strings.TrimSpace(form["result"])
	if a.Kind != approval.KindInput || form["action"] != "approve" || text == "" {
		return nil
	}
	if !json.Valid([]byte(text)) { // words are a text
		quoted, err := json.Marshal(text)
		if err != nil {
			return err
		}
		text = string(quoted)
	}
	r.Result = json.RawMessage(text)
	return nil
}

func (s *server) remark(ctx context.Context, v visit, text string) error {
	text = strings.TrimSpace(text)
	if s.Remark == nil || text == "" {
		return &formError{"want some words"}
	}
	return s.Remark(ctx, Remark{Tenant: v.link.Tenant, ID: v.link.Approval, Text: text, By: v.by, Via: v.via})
}

// settle says what became of a call whose outcome nobody knows.
func (s *server) settle(ctx context.Context, v visit, form map[string]string) error {
	o := approval.Outcome{
		Tenant: v.a.Tenant, Run: v.a.Run, Call: v.a.Call(), ID: v.a.ID, Content: form["result"], IsError: form["action"] == "failed", Rerun: form["action"] == "rerun", By: v.by,
		Via: v.via,
	}
	approve, _ := s.decides(v) // the API lets whoever acts for the tenant say it; a link is of one request's approvers
	switch {
	case !approve:
		return approval.ErrForbidden
	case o.Rerun:
		o.Content = ""
	case strings.TrimSpace(o.Content) == "":
		return &formError{"say what came of the call"}
	}
	_, err := s.Desk.SettleOutcome(ctx, o)
	return err
}

// refuse says why an answer was not taken, on the page as it is now.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, v visit, form map[string]string, err error) {
	now, readErr := s.Get(r.Context(), v.link.Tenant, v.link.Approval)
	status, text := explain(err)
	if status == 0 && readErr == nil && now.Status != approval.Pending {
		status, text = http.StatusConflict, "The request waits no more. This is how it stands."
	}
	if readErr != nil || status == 0 {
		s.fails(w, r, errors.Join(err, readErr))
		return
	}
	v.a = now
	s.page(w, r, v, status, said{Head: "Your answer was not taken", text: text, Bad: true, typed: form})
}

// explain is a desk's error for people; 0 = it is none of theirs.
func explain(err error) (status int, text string) {
	var decided *approval.DecidedError
	var edit *approval.EditError
	var wrong *formError
	switch {
	case errors.As(err, &decided):
		return http.StatusConflict, "It has been decided otherwise already. This is how the request stands."
	case errors.As(err, &edit):
		return http.StatusUnprocessableEntity, "The arguments: " + edit.Problem
	case errors.As(err, &wrong):
		return http.StatusBadRequest, fmt.Sprintf("The form: %s.", wrong.problem)
	case errors.Is(err, approval.ErrForbidden):
		return http.StatusForbidden, "You are not among those who may decide this, as things stand now."
	case errors.Is(err, approval.ErrExpired):
		return http.StatusConflict, "The request has expired."
	case errors.Is(err, approval.ErrFinished):
		return http.StatusConflict, "The run has ended: there is nothing left to decide."
	case errors.Is(err, approval.ErrStale):
		return http.StatusConflict, "Somebody changed the arguments meanwhile. Read them again and answer anew."
	case errors.Is(err, approval.ErrNothing), errors.Is(err, approval.ErrIgnored), errors.Is(err, approval.ErrNoCall):
		return http.StatusConflict, "The call no longer waits for an answer."
	case errors.Is(err, approval.ErrKind):
		return http.StatusUnprocessableEntity, "The request cannot be answered like that."
	}
	return 0, ""
}
