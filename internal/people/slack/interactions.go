package slack

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/policy"
)

// Path is where Slack sends what is clicked.
const Path = "/slack/interactions"

// Slack wants a response within three seconds, and a function stops after it. These bound the decision, and all of it.
const (
	decideTimeout = 2 * time.Second
	answerTimeout = 2600 * time.Millisecond
)

// Interactions takes decisions from the buttons of messages: POST of Path, without other authentication. A request
// without a valid signature of the last five minutes is refused before it is parsed. The directory maps the Slack user
// of the signed payload to a tenant and a person; the desk authorizes the decision. The person sees the result in an
// ephemeral message; UpdateMessages updates the messages about the request. Logs hold no content. Safe for concurrent
// use.
type Interactions struct {
	Secrets   []string // the app's signing secrets, any of which may sign; none = every request is refused
	Directory person.Directory
	// Decide is the desk's. It gets the digest that the message showed, and refuses a decision about another one.
	Decide func(ctx context.Context, r approval.DecisionInput) (approval.Approval, error)
	// UpdateMessages updates the messages about a request. It runs while the person who clicked is answered. The handler
	// waits for it until answerTimeout, so its work must be due already. Nil = the messages are not updated here.
	UpdateMessages func(ctx context.Context, a approval.Approval)
	Clock          clock.Clock
	HTTP           *http.Client // for answers; nil = Go's own
	Hooks          string       // scheme and host that answers are posted to; "" = https://hooks.slack.com
	Log            *slog.Logger // required; without content
}

// ServeHTTP implements http.Handler.
func (in *Interactions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	case len(body) > maxBody:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	case !isVerified(in.Secrets, r.Header, body, in.Clock.Now()):
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	p, err := readPayload(r.Header, body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if c, ok := p.parseClick(); ok {
		in.handleClick(r.Context(), c)
	}
	w.WriteHeader(http.StatusOK) // the result of a click is posted separately
}

// handleClick carries out a click and posts the result to the person who clicked.
func (in *Interactions) handleClick(ctx context.Context, c click) {
	ctx, cancel := in.Clock.WithTimeout(ctx, answerTimeout)
	defer cancel()
	decided, answer := in.decideClick(ctx, c)
	updated := in.Clock.NewSignal()
	if decided.ID == "" || in.UpdateMessages == nil {
		updated.Notify()
	} else {
		in.Clock.Go(func() {
			in.UpdateMessages(context.WithoutCancel(ctx), decided)
			updated.Notify()
		})
	}
	if err := in.postAnswer(ctx, c.answer, answer); err != nil {
		in.Log.Warn("could not tell who clicked in Slack", "approval", c.shown.Approval, "kind", err)
	}
	_ = updated.Wait(ctx, 0) // the rest is due
}

// decideClick carries out the decision of a click. It returns the answer for the person, and the request if its
// messages are out of date.
func (in *Interactions) decideClick(ctx context.Context, c click) (approval.Approval, string) {
	ctx, cancel := in.Clock.WithTimeout(ctx, decideTimeout)
	defer cancel()
	tenant, p, found, err := in.Directory.Slack(ctx, c.team, c.member)
	switch {
	case err != nil:
		in.Log.Error("could not find who clicked in Slack", "approval", c.shown.Approval, "kind", err)
		return approval.Approval{}, textUncertain
	case !found:
		return approval.Approval{}, textStranger
	}
	a, err := in.Decide(ctx, approval.DecisionInput{
		Tenant: tenant, ID: c.shown.Approval, Action: c.action, Note: c.note, Digest: c.shown.Digest,
		By: policy.Principal{ID: p.ID, Groups: p.Groups}, Via: approval.ViaSlack,
	})
	if err != nil {
		return in.failureText(c, err)
	}
	return a, recordedText(a, c.action)
}

// failureText says why nothing was decided, or that the outcome is unknown.
func (in *Interactions) failureText(c click, err error) (approval.Approval, string) {
	var decided *approval.DecidedError
	if errors.As(err, &decided) {
		return decided.Approval, "Nothing was decided: this request is decided already. " + show.OutcomeText(decided.Approval)
	}
	var changed *approval.PolicyError
	if errors.As(err, &changed) {
		return changed.Approval, textPolicyChanged
	}
	var channel *approval.ChannelError
	if errors.As(err, &channel) {
		return approval.Approval{}, "Nothing was decided: the policy lets people approve this by " +
			channel.Allowed.Words() + ", and not in Slack."
	}
	for _, f := range []struct {
		err  error
		text string
	}{
		{approval.ErrForbidden, textForbidden}, {approval.ErrStale, textChanged}, {approval.ErrExpired, textExpired}, {approval.ErrFinished, textFinished},
		{approval.ErrNothing, textFinished}, {approval.ErrKind, textWrongKind}, {approval.ErrNotFound, textUnknown},
	} {
		if errors.Is(err, f.err) {
			return approval.Approval{}, f.text
		}
	}
	in.Log.Error("could not decide from Slack", "approval", c.shown.Approval, "kind", err)
	return approval.Approval{}, textUncertain
}
