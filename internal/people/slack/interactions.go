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
	"github.com/countersign/countersign/internal/policy"
)

// Path is where Slack sends what is clicked.
const Path = "/slack/interactions"

// Slack wants an answer within three seconds, and nothing runs after it in a function: so long may a decision take, and so long all of it.
const (
	decideTimeout = 2 * time.Second
	answerTimeout = 2600 * time.Millisecond
)

// Interactions takes decisions from the buttons of messages: POST of Path, behind nothing that authenticates. A request that no signing secret
// has signed within five minutes is refused before anything of it is read. Who clicked is who Slack says, mapped by the directory to a tenant
// and a person; what they may decide, the desk says. They are told what became of it in a message that they alone see; the messages about the
// request are updated by whoever sent them. Logs hold no content. Safe for concurrent use.
type Interactions struct {
	Secrets   []string // the app's signing secrets: any of them signs; none = every request is refused
	Directory person.Directory
	// Decide is the desk's. It is given what the message showed, and refuses a decision about anything else.
	Decide func(ctx context.Context, r approval.DecisionInput) (approval.Approval, error)
	// Updated has the messages about a request say what is so now. It runs while who clicked is told, is waited for while there is time, and goes on
	// after that if the process does: what it does has to be due already. Nil = nobody updates them.
	UpdateMessages func(ctx context.Context, a approval.Approval)
	Clock          clock.Clock
	HTTP           *http.Client // for answers; nil = Go's own
	Hooks          string       // scheme and host that answers are posted to; "" = https://hooks.slack.com
	Log            *slog.Logger
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
	w.WriteHeader(http.StatusOK) // what came of a click is told in an answer of its own
}

// handleClick carries out a click and posts the result to the person who clicked.
func (in *Interactions) handleClick(ctx context.Context, c click) {
	ctx, cancel := in.Clock.WithTimeout(ctx, answerTimeout)
	defer cancel()
	now, told := in.decideClick(ctx, c)
	updated := in.Clock.NewSignal()
	if now.ID == "" || in.UpdateMessages == nil {
		updated.Notify()
	} else {
		in.Clock.Go(func() {
			in.UpdateMessages(context.WithoutCancel(ctx), now)
			updated.Notify()
		})
	}
	if err := in.postAnswer(ctx, c.answer, told); err != nil {
		in.Log.Warn("could not tell who clicked in Slack", "approval", c.shown.Approval, "kind", err)
	}
	_ = updated.Wait(ctx, 0) // what is not updated in time is due
}

// decideClick is what becomes of a click, in words for who clicked, and the request where it is known that its messages are out of date.
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
		return decided.Approval, alreadyDecidedText(decided.Approval)
	}
	var changed *approval.PolicyError
	if errors.As(err, &changed) {
		return changed.Approval, textPolicyChanged
	}
	for _, f := range []struct {
		err  error
		told string
	}{
		{approval.ErrForbidden, textForbidden}, {approval.ErrStale, textChanged}, {approval.ErrExpired, textExpired}, {approval.ErrFinished, textFinished},
		{approval.ErrNothing, textFinished}, {approval.ErrKind, textWrongKind}, {approval.ErrNotFound, textUnknown},
	} {
		if errors.Is(err, f.err) {
			return approval.Approval{}, f.told
		}
	}
	in.Log.Error("could not decide from Slack", "approval", c.shown.Approval, "kind", err)
	return approval.Approval{}, textUncertain
}
