package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
)

// formResult is what a page says about the form that was just sent, and the fields as they were typed.
type formResult struct {
	Head  string
	Bad   bool
	text  string
	typed map[string]string
	// changes are what an edit would change; nil = no edit is under review
	changes []change
}

// handlePost applies a form. If the form is accepted, it redirects to the page. If not, it shows the page with the
// typed fields and the reason.
func (s *server) handlePost(w http.ResponseWriter, r *http.Request, v visit) {
	form, err := readForm(r, v.checkProof != nil)
	if err != nil {
		s.writeRequestPage(w, r, v, http.StatusBadRequest, formResult{Head: "Your answer was not taken",
			text: "The form: " + err.Error() + ".", Bad: true})
		return
	}
	if v.checkProof != nil {
		if problem := v.checkProof(form); problem != "" {
			s.writeRequestPage(w, r, v, http.StatusForbidden, formResult{Head: "Your answer was not taken",
				text: problem, Bad: true, typed: form})
			return
		}
	}
	before, ours := verifyForm(v.link, form["form"])
	if !ours {
		s.writeRequestPage(w, r, v, http.StatusForbidden, formResult{Head: "Your answer was not taken",
			text: "The form was not one of this page. Answer anew.", Bad: true, typed: form})
		return
	}
	if what := before.describeChanges(newFormState(v.a, v.by.ID)); what != "" {
		s.writeRequestPage(w, r, v, http.StatusConflict, formResult{Head: "The request is not as you saw it",
			text: what, Bad: true, typed: form})
		return
	}
	if v.isSomebodyElse() {
		s.refuseForm(w, r, v, form, errSomebodyElse)
		return
	}
	if form["action"] == "uncover" {
		s.showUncovered(w, r, v, form)
		return
	}
	if form["action"] == "code" {
		s.sendCode(w, r, v, form)
		return
	}
	if form["action"] == "review" {
		s.reviewEdit(w, r, v, form)
		return
	}
	if err := s.applyForm(r.Context(), v, form); err != nil {
		s.refuseForm(w, r, v, form, err)
		return
	}
	to := r.URL.EscapedPath()
	if back, err := url.Parse(form["back"]); err == nil && v.checkProof != nil && back.Host == "" &&
		leadsBack.MatchString(back.Path) {
		to = back.RequestURI()
	}
	s.setSecurityHeaders(w.Header())
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// leadsBack are the paths of the pages with cards that a decision leads back to.
var leadsBack = regexp.MustCompile(`^/((runs|chat)/r[a-z2-7]{25})?$`)

// showUncovered shows the page with nothing masked to a person who may decide. It records that first; without the
// record it shows nothing.
func (s *server) showUncovered(w http.ResponseWriter, r *http.Request, v visit, form map[string]string) {
	var err error
	switch {
	case s.Show.Uncovered == nil:
		err = &formError{"nothing is uncovered here"}
	case !v.a.IsOpen(s.Clock.Now()):
		err = approval.ErrExpired
	case !v.a.CanDecide(v.by, s.Clock.Now()):
		err = approval.ErrForbidden
	}
	if err != nil {
		s.refuseForm(w, r, v, form, err)
		return
	}
	if err := s.Desk.RecordUnmasking(r.Context(), v.link.Tenant, v.a.ID, v.by, v.via); err != nil {
		s.writeFailure(w, r, fmt.Errorf("record that masked values were uncovered: %w", err))
		return
	}
	v.uncovered = true
	s.writeRequestPage(w, r, v, http.StatusOK, formResult{Head: "Nothing is masked on this page",
		text: "It is recorded that you looked. Open the page again to have it masked."})
}

// reviewEdit shows what the edited arguments change, with the form that approves them. It decides and records nothing.
func (s *server) reviewEdit(w http.ResponseWriter, r *http.Request, v visit, form map[string]string) {
	var changes []change
	err := approval.ErrForbidden
	if s.findAllowedActions(v).Edit {
		var args json.RawMessage
		if args, changes, err = s.readEdit(r.Context(), v.a, form); err == nil {
			form["args"] = string(args)
		}
	}
	if err != nil {
		s.refuseForm(w, r, v, form, err)
		return
	}
	s.writeRequestPage(w, r, v, http.StatusOK, formResult{Head: "Look at what you change",
		text: "Nothing is approved yet.", typed: form, changes: changes})
}

// readEdit returns the arguments that a form describes, with secrets masked, and what they change.
func (s *server) readEdit(
	ctx context.Context, a approval.Approval, form map[string]string,
) (json.RawMessage, []change, error) {
	stored, fields, err := s.newEditFields(ctx, a, nil)
	if err != nil {
		return nil, nil, err
	}
	args := json.RawMessage(form["args"])
	if len(args) == 0 {
		if args, err = readFields(fields, form); err != nil {
			return nil, nil, err
		}
	}
	if _, err := s.Show.Restore(ctx, a, string(args)); err != nil {
		return nil, nil, err
	}
	changes, err := findChanges(json.RawMessage(stored), args, s.Show.Text)
	if err == nil && len(changes) == 0 {
		err = &formError{"nothing is different: approve the call as it is"}
	}
	return args, changes, err
}

// newEditFields returns the arguments as JSON with secrets masked, and as fields; nil = they are edited as JSON alone.
func (s *server) newEditFields(
	ctx context.Context, a approval.Approval, typed map[string]string,
) (stored string, all []field, err error) {
	if stored, err = s.Show.Editable(ctx, a); err != nil || s.Show.Schema == nil {
		return stored, nil, err
	}
	schema, err := s.Show.Schema(ctx, a)
	if err != nil {
		return stored, nil, err
	}
	return stored, newFields(schema, json.RawMessage(stored), typed, s.Show.Text), nil
}

// sendCode sends the visitor a code by another channel than the link's. Its MAC is stored first.
func (s *server) sendCode(w http.ResponseWriter, r *http.Request, v visit, form map[string]string) {
	channel := s.codeChannel(v)
	err := error(&formError{"want one of the page's buttons"})
	switch {
	case !v.a.IsOpen(s.Clock.Now()):
		err = approval.ErrExpired
	case !v.a.CanApprove(v.by, s.Clock.Now()):
		err = approval.ErrForbidden
	case channel != "":
		var code string
		if code, err = s.Links.NewCode(r.Context(), v.link, v.a.Digest); err == nil {
			err = s.Codes.SendCode(r.Context(), v.a, v.who, channel, code)
		}
	}
	if err != nil {
		s.refuseForm(w, r, v, form, err)
		return
	}
	s.writeRequestPage(w, r, v, http.StatusOK, formResult{Head: "A code was sent to you by " + channel,
		text: "Type it below. It works once, for ten minutes, and for the request as it is now.", typed: form})
}

// codeChannel returns the channel by which the visitor is sent a code; "" = none is, or the request takes none.
func (s *server) codeChannel(v visit) string {
	if s.Codes == nil || v.confirmation() != agent.ConfirmCode {
		return ""
	}
	return s.Codes.SecondChannel(v.who, v.link.Channel)
}

// confirmation returns what an approval by the visitor takes besides.
func (v visit) confirmation() run.Confirm { return v.a.ChannelsOf("").ConfirmationBy(v.via) }

// isSignedIn reports whether the visitor has signed in as the person whom the link was sent to.
func (v visit) isSignedIn() bool {
	return v.session != nil && v.session.Tenant == v.link.Tenant && v.session.Principal.ID == v.who.ID
}

// isSomebodyElse reports whether the visitor has signed in as another person, where that matters.
func (v visit) isSomebodyElse() bool {
	return v.confirmation() == agent.ConfirmOIDC && v.session != nil && !v.isSignedIn()
}

// The errors of an approval that takes a sign-in.
var (
	errNotSignedIn  = errors.New("the visitor has not signed in")
	errSomebodyElse = errors.New("somebody else has signed in")
)

// confirm returns the check of what a decision is confirmed by; nil = the request takes nothing.
func (s *server) confirm(v visit, form map[string]string) func(context.Context, run.Confirm) error {
	if v.confirmation() == "" {
		return nil
	}
	return func(ctx context.Context, by run.Confirm) error {
		switch {
		case by == agent.ConfirmCode:
			return s.Links.UseCode(ctx, v.link, v.a.Digest, form["code"])
		case !v.isSignedIn():
			return errNotSignedIn
		}
		return nil
	}
}

// formError is a problem of a form that people may see.
type formError struct{ problem string }

func (e *formError) Error() string { return e.problem }

// outcomeActions are the actions of the buttons of a request that asks what became of a call.
var outcomeActions = map[string]approval.Action{
	"happened": approval.ReportResult, "failed": approval.ReportError, "rerun": approval.Rerun,
}

// applyForm applies the pressed button as the person, through the desk (A9).
func (s *server) applyForm(ctx context.Context, v visit, form map[string]string) error {
	r := approval.DecisionInput{
		Tenant: v.link.Tenant, ID: v.link.Approval, Action: approval.Action(form["action"]), Note: form["note"],
		Tool: form["tool"], By: v.by, Via: v.via,
		Digest: v.a.Digest, Confirm: s.confirm(v, form),
	}
	switch form["action"] {
	case "approve", "deny":
		text := strings.TrimSpace(form["result"]) // the input for a tool that asks; no text is a plain yes
		if v.a.Kind != approval.KindInput || form["action"] != "approve" || text == "" {
			break
		}
		if r.Result = json.RawMessage(text); !json.Valid(r.Result) { // a text without quotes
			quoted, err := json.Marshal(text)
			if err != nil {
				return err
			}
			r.Result = quoted
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
		text := strings.TrimSpace(form["text"])
		if s.Remark == nil || text == "" {
			return &formError{"want some words"}
		}
		return s.Remark(ctx, Remark{Tenant: v.link.Tenant, ID: v.link.Approval, Text: text, By: v.by, Via: v.via})
	case "happened", "failed", "rerun":
		switch r.Action = outcomeActions[form["action"]]; {
		case !v.a.CanApprove(v.by, s.Clock.Now()): // a link only lets the request's approvers settle
			return approval.ErrForbidden
		case r.Action == approval.Rerun:
		case strings.TrimSpace(form["result"]) == "":
			return &formError{"say what came of the call"}
		default:
			r.Content = form["result"]
		}
	default:
		return &formError{"want one of the page's buttons"}
	}
	_, err := s.Desk.Decide(ctx, r)
	return err
}

// refuseForm shows why a form was not accepted, on the page as it is now.
func (s *server) refuseForm(w http.ResponseWriter, r *http.Request, v visit, form map[string]string, err error) {
	now, readErr := s.Get(r.Context(), v.link.Tenant, v.link.Approval)
	status, text := explainError(err)
	if status == 0 && readErr == nil && now.Status != approval.Pending {
		status, text = http.StatusConflict, "The request waits no more. This is how it stands."
	}
	if readErr != nil || status == 0 {
		s.writeFailure(w, r, errors.Join(err, readErr))
		return
	}
	v.a = now
	s.writeRequestPage(w, r, v, status, formResult{Head: "Your answer was not taken", text: text, Bad: true,
		typed: form})
}

// explainError returns the status and text of an error that people may see; 0 = an internal error.
func explainError(err error) (status int, text string) {
	if wrong, ok := errors.AsType[*formError](err); ok {
		return http.StatusBadRequest, fmt.Sprintf("The form: %s.", wrong.problem)
	}
	if code, ok := errors.AsType[*link.CodeError](err); ok {
		return http.StatusUnprocessableEntity, "The code: " + code.Problem + "."
	}
	_, isEdit := errors.AsType[*approval.EditError](err)
	switch text = show.RefusalText(err); {
	case errors.Is(err, errNotSignedIn):
		return http.StatusForbidden, "To approve it here, sign in as the person whom this link was sent to."
	case errors.Is(err, errSomebodyElse):
		return http.StatusForbidden, "You have signed in as another person than the one whom this link was sent to. " +
			"Nothing was decided."
	case text == "":
		return 0, ""
	case errors.Is(err, approval.ErrForbidden):
		return http.StatusForbidden, text
	case isEdit, errors.Is(err, approval.ErrKind), errors.Is(err, approval.ErrRemark):
		return http.StatusUnprocessableEntity, text
	}
	return http.StatusConflict, text
}
