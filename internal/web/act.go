package web

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// formResult is what a page says about the form that was just sent, and the fields as they were typed.
type formResult struct {
	Head, Text string
	Bad        bool
	typed      map[string]string
	// changes are what an edit would change; nil = no edit is under review
	changes []change
}

// serveVisit shows a request, or applies a form. If the form is accepted, it redirects to the page. If not, it shows
// the page with the typed fields and the reason.
func (s *pageServer) serveVisit(w http.ResponseWriter, r *http.Request, v visit) {
	if r.Method != http.MethodPost {
		s.writeRequestPage(w, r, v, http.StatusOK, formResult{})
		return
	}
	form, err := readForm(r, v.checkProof != nil)
	refuse := func(status int, head, text string) {
		s.writeRequestPage(w, r, v, status, formResult{Head: head, Text: text, Bad: true, typed: form})
	}
	if err != nil {
		refuse(http.StatusBadRequest, notTaken, "The form: "+err.Error()+".")
		return
	}
	if v.checkProof != nil {
		if problem := v.checkProof(form); problem != "" {
			refuse(http.StatusForbidden, notTaken, problem)
			return
		}
	}
	before, ours := verifyForm(v.link, form["form"])
	if !ours {
		refuse(http.StatusForbidden, notTaken, "The form was not one of this page. Answer anew.")
		return
	}
	if what := before.describeChanges(newFormState(v.a, v.by.ID)); what != "" {
		refuse(http.StatusConflict, "The request is not as you saw it", what)
		return
	}
	var shown formResult // what the page says if the form decides nothing
	switch action := form["action"]; {
	case v.isSomebodyElse():
		err = errSomebodyElse
	case action == "uncover":
		s.showUncovered(w, r, v, form)
		return
	case action == "code":
		shown, err = s.sendCode(r.Context(), v)
	case action == "review":
		shown, err = s.reviewEdit(r.Context(), v, form)
	default:
		err = s.applyForm(r.Context(), v, form)
	}
	switch {
	case err != nil:
		s.refuseForm(w, r, v, form, err)
		return
	case shown.Head != "":
		shown.typed = form
		s.writeRequestPage(w, r, v, http.StatusOK, shown)
		return
	}
	to := r.URL.EscapedPath()
	if back, err := url.Parse(form["back"]); err == nil && v.checkProof != nil && back.Host == "" &&
		leadsBack.MatchString(back.Path) {
		if back.Path == "/" && form["action"] != "remark" { // from where the card goes
			http.SetCookie(w, &http.Cookie{Name: decidedCookie, Value: v.a.ID, Path: "/", MaxAge: 10, HttpOnly: true,
				SameSite: http.SameSiteStrictMode})
		}
		to = back.RequestURI()
	}
	redirect(w, s.policy, to)
}

const notTaken = "Your answer was not taken"

// decidedCookie has the queue say what became of the request that was just decided on it.
const decidedCookie = "countersign-decided"

// leadsBack are the paths of the pages with cards that a decision leads back to.
var leadsBack = regexp.MustCompile(`^/((runs|chat)/r[a-z2-7]{25})?$`)

// showUncovered shows the page with nothing masked to a person who may decide. It records that first; without the
// record it shows nothing.
func (s *pageServer) showUncovered(w http.ResponseWriter, r *http.Request, v visit, form map[string]string) {
	var err error
	switch {
	case !v.a.IsOpen(s.Clock.Now()):
		err = approval.ErrExpired
	case !v.a.CanUnmask(v.by, s.Clock.Now()):
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
		Text: "It is recorded that you looked. Open the page again to have it masked."})
}

// reviewEdit says what the edited arguments change, for the form that approves them. It refuses what the desk would
// refuse, and decides and records nothing.
func (s *pageServer) reviewEdit(ctx context.Context, v visit, form map[string]string) (shown formResult, err error) {
	if !s.findAllowedActions(v).Edit {
		return shown, approval.ErrForbidden
	}
	known, err := s.View(ctx, v.a)
	if err != nil {
		return shown, err
	}
	stored, fields, err := newEditFields(v.a, known, nil)
	if err != nil {
		return shown, err
	}
	args := json.RawMessage(form["args"]) // with secrets masked
	if len(args) == 0 {
		if args, err = readFields(fields, form); err != nil {
			return shown, err
		}
	}
	edited, err := restoreArgs(v.a, known, string(args))
	if err == nil {
		_, err = s.Desk.Decide(ctx, approval.DecisionInput{
			Tenant: v.link.Tenant, ID: v.a.ID, Action: approval.Edit, Args: edited, Digest: v.a.Digest, By: v.by, Via: v.via,
			Check: approval.Checked{},
		})
	}
	if err != nil {
		return shown, err
	}
	changes, err := findChanges(json.RawMessage(stored), args)
	if err == nil && len(changes) == 0 {
		err = &formError{"nothing is different: approve the call as it is"}
	}
	if err != nil {
		return shown, err
	}
	form["args"] = string(args)
	return formResult{Head: "Look at what you change", Text: "Nothing is approved yet.", changes: changes}, nil
}

// newEditFields returns the arguments as JSON with secrets masked, and as fields; nil = they are edited as JSON alone.
func newEditFields(
	a approval.Approval, known people.DocumentView, typed map[string]string,
) (stored string, all []field, err error) {
	args, err := people.EditableArguments(a.Args, known.Schema(a))
	if err != nil {
		return "", nil, err
	}
	var out bytes.Buffer
	if err = json.Indent(&out, args, "", "  "); err == nil && out.Len() > maxForm/2 { // a form could not bring it back
		out = *bytes.NewBuffer(args)
	}
	return out.String(), newFields(known.Schema(a), out.Bytes(), typed), err
}

// newAnswerFields returns the fields of the answer to a tool that asks; nil = its schema describes no object.
func newAnswerFields(a approval.Approval, typed map[string]string) []field {
	if a.Ticket == nil {
		return nil
	}
	return newFields(a.Ticket.ResponseSchema, nil, typed)
}

// readAnswer returns the answer to a tool that asks: its fields, or words, or JSON. Nil is a plain yes.
func readAnswer(a approval.Approval, form map[string]string) (json.RawMessage, error) {
	all, text := newAnswerFields(a, nil), strings.TrimSpace(form["result"])
	switch {
	case text == "" && all != nil:
		return readFields(all, form)
	case text == "":
		return nil, nil
	case isFilledIn(all, form):
		return nil, &formError{"want the fields or an answer as JSON, not both"}
	case json.Valid([]byte(text)):
		return json.RawMessage(text), nil
	}
	return json.Marshal(text) // a text without quotes
}

// restoreArgs unmasks edited arguments. Its *policy.EditError says what is wrong with them.
func restoreArgs(a approval.Approval, known people.DocumentView, edited string) (json.RawMessage, error) {
	args, err := people.RestoreArguments(json.RawMessage(edited), a.Args, known.Schema(a))
	if err != nil {
		return nil, &policy.EditError{Problem: err.Error()}
	}
	return args, nil
}

// sendCode sends the visitor a code by another channel than the link's. Its MAC is stored first.
func (s *pageServer) sendCode(ctx context.Context, v visit) (shown formResult, err error) {
	channel := s.codeChannel(v)
	switch {
	case !v.a.IsOpen(s.Clock.Now()):
		return shown, approval.ErrExpired
	case !v.a.CanApprove(v.by, s.Clock.Now()):
		return shown, approval.ErrForbidden
	case channel == "":
		return shown, &formError{"want one of the page's buttons"}
	}
	code, err := s.Links.NewCode(ctx, v.link, v.a.Digest)
	if err == nil {
		err = s.Codes.SendCode(ctx, v.a, v.who, channel, code)
	}
	if err != nil {
		return shown, err
	}
	return formResult{Head: "A code was sent to you by " + agent.ViaText(channel),
		Text: "Type it below. It works once, for ten minutes, and for the request as it is now."}, nil
}

// codeChannel returns the channel by which the visitor is sent a code; "" = none is, or neither the request nor one of
// its open tools takes one.
func (s *pageServer) codeChannel(v visit) string {
	takes := func(p approval.Permission) bool { return p.Verdict == "" && v.takesCode(p.Tool) }
	if s.Codes == nil || !v.takesCode("") && !slices.ContainsFunc(v.a.Permissions, takes) {
		return ""
	}
	return s.Codes.SecondChannel(v.who, v.link.Channel)
}

// takesCode reports whether an approval takes a code; see confirmation.
func (v visit) takesCode(tool string) bool {
	return v.confirmation(tool) == agent.ConfirmCode
}

// confirmation returns what an approval of the tool, or with "" of all that is open, by the visitor takes besides.
func (v visit) confirmation(tool string) run.Confirm {
	return v.a.ChannelsOf(tool).ConfirmationBy(v.via)
}

// isSignedIn reports whether the visitor has signed in as the person whom the link was sent to.
func (v visit) isSignedIn() bool {
	return v.session != nil && v.session.Tenant == v.link.Tenant && v.session.Principal.ID == v.who.ID
}

// isSomebodyElse reports whether the visitor has signed in as another person, where that matters.
func (v visit) isSomebodyElse() bool {
	return v.confirmation("") == agent.ConfirmOIDC && v.session != nil && !v.isSignedIn()
}

// The errors of an approval that takes a sign-in.
var (
	errNotSignedIn  = errors.New("the visitor has not signed in")
	errSomebodyElse = errors.New("somebody else has signed in")
)

// formError is a problem of a form that people may see.
type formError struct{ problem string }

func (e *formError) Error() string { return e.problem }

// outcomeActions are the actions of the buttons of a request that asks what became of a call.
var outcomeActions = map[string]approval.Action{
	"happened": approval.ReportResult, "failed": approval.ReportError, "rerun": approval.Rerun,
}

// applyForm applies the pressed button as the person, through the desk (A9).
func (s *pageServer) applyForm(ctx context.Context, v visit, form map[string]string) error {
	r := approval.DecisionInput{
		Tenant: v.link.Tenant, ID: v.link.Approval, Action: approval.Action(form["action"]), Note: form["note"],
		Tool: form["tool"], By: v.by, Via: v.via, Digest: v.a.Digest,
	}
	if v.confirmation("") != "" {
		r.Confirm = func(ctx context.Context, by run.Confirm) error {
			switch {
			case by == agent.ConfirmCode:
				return s.Links.UseCode(ctx, v.link, v.a.Digest, form["code"])
			case !v.isSignedIn():
				return errNotSignedIn
			}
			return nil
		}
	}
	switch form["action"] {
	case "deny":
	case "approve":
		if v.a.Kind == approval.KindInput {
			var err error
			if r.Result, err = readAnswer(v.a, form); err != nil {
				return err
			}
		}
	case "edit":
		known, err := s.View(ctx, v.a)
		if err == nil {
			r.Args, err = restoreArgs(v.a, known, form["args"])
		}
		if err != nil {
			return err
		}
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
func (s *pageServer) refuseForm(w http.ResponseWriter, r *http.Request, v visit, form map[string]string, err error) {
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
	s.writeRequestPage(w, r, v, status, formResult{Head: notTaken, Text: text, Bad: true, typed: form})
}

// explainError returns the status and text of an error that people may see; 0 = an internal error.
func explainError(err error) (status int, text string) {
	if wrong, ok := errors.AsType[*formError](err); ok {
		return http.StatusBadRequest, fmt.Sprintf("The form: %s.", wrong.problem)
	}
	if code, ok := errors.AsType[*approval.CodeError](err); ok {
		return http.StatusUnprocessableEntity, "The code: " + code.Problem + "."
	}
	_, isEdit := errors.AsType[*policy.EditError](err)
	_, isAnswer := errors.AsType[*policy.AnswerError](err)
	switch text = people.RefusalText(err); {
	case errors.Is(err, errNotSignedIn):
		return http.StatusForbidden, "To approve it here, sign in as the person whom this link was sent to."
	case errors.Is(err, errSomebodyElse):
		return http.StatusForbidden, "You have signed in as another person than the one whom this link was sent to. " +
			"Nothing was decided."
	case text == "":
		return 0, ""
	case errors.Is(err, approval.ErrForbidden):
		return http.StatusForbidden, text
	case errors.Is(err, store.ErrTooLarge):
		return http.StatusRequestEntityTooLarge, text
	case isEdit, isAnswer, errors.Is(err, approval.ErrKind), errors.Is(err, approval.ErrRemark):
		return http.StatusUnprocessableEntity, text
	}
	return http.StatusConflict, text
}

// formState is the state of a request that a form was made for. A form is refused if the request has changed since.
// The person's own decisions change it, so a form works once.
type formState struct {
	Status string `json:"s"`
	Digest string `json:"d"` // of the action and the shown arguments
	Mine   int    `json:"m"` // decisions of the person
	Edits  int    `json:"e"` // edits by anybody
	Tools  int    `json:"t"` // decided tools
	Thread int    `json:"r"` // remarks
}

// newFormState returns the current state of a request for one person. Approvals of others leave it unchanged, since
// they change nothing about the decision.
func newFormState(a approval.Approval, by string) formState {
	sum := sha256.Sum256(append([]byte(a.Digest+"\n"), a.Args...))
	s := formState{Status: string(a.Status), Digest: base64.RawURLEncoding.EncodeToString(sum[:12]),
		Thread: len(a.Thread)}
	for _, d := range a.Decisions {
		if d.By == by {
			s.Mine++
		}
		if d.Action == approval.Edit {
			s.Edits++
		}
	}
	for _, p := range a.Permissions {
		if p.Verdict != "" {
			s.Tools++
		}
	}
	return s
}

// signForm returns the hidden field of a form: its state, and a MAC with the link's nonce, which is in no page.
func signForm(l approval.Link, s formState) string {
	text, _ := json.Marshal(s) // texts and numbers always can be
	return base64.RawURLEncoding.EncodeToString(append(formMAC(l, text), text...))
}

// verifyForm returns the state in a form's hidden field. It returns false if no page of this link has made the field.
func verifyForm(l approval.Link, field string) (s formState, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(field)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], formMAC(l, raw[sha256.Size:])) {
		return formState{}, false
	}
	return s, json.Unmarshal(raw[sha256.Size:], &s) == nil
}

func formMAC(l approval.Link, text []byte) []byte {
	mac := hmac.New(sha256.New, []byte(l.Nonce))
	for _, field := range []string{"countersign form 1", l.ID, l.Tenant, l.Approval, l.To, string(text)} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		mac.Write([]byte(field))
	}
	return mac.Sum(nil)
}

// describeChanges tells the person what has changed since the form was made; "" = nothing.
func (s formState) describeChanges(now formState) string {
	switch {
	case s == now:
		return ""
	case s.Mine != now.Mine: // perhaps by the first of two presses of the button, which has decided the request
		return "You have answered already. This is how the request stands now."
	case now.Status == string(approval.Expired):
		return "Its time was over before your answer came. Your answer was not taken."
	case s.Status != now.Status:
		return "The request was decided or called off meanwhile. Your answer was not taken."
	case s.Digest != now.Digest || s.Edits != now.Edits:
		return "Somebody changed the arguments meanwhile. Your answer was not taken: read them again and answer anew."
	case s.Tools != now.Tools:
		return "Somebody decided about some of the tools meanwhile. Your answer was not taken: look again and answer anew."
	default:
		return "Somebody wrote about the request meanwhile. Your answer was not taken: read it and answer anew."
	}
}

// Bounds of a form, in bytes and in characters.
const (
	maxForm = 1 << 20
	MaxNote = 1000 // so many characters of a note reach the model (C4)
)

// fields are the allowed form fields, each at most once.
var fields = []string{"form", "action", "note", "args", "result", "tool", "text", "code", "back"}

// proofField is the field with the proof in the console's forms.
const proofField = "key"

// readForm reads a form of a request's page, with or without the proof field. People may see its error.
func readForm(r *http.Request, proof bool) (map[string]string, error) {
	known := fields
	if proof {
		known = append(slices.Clip(fields), proofField)
	}
	got, _, err := parseForm(r, known, false)
	for _, name := range []string{"note", "text"} {
		if n := len([]rune(got[name])); n > MaxNote {
			return nil, fmt.Errorf("want at most %d characters, got %d", MaxNote, n)
		}
	}
	return got, err
}
