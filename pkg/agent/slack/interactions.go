package slack

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/person"
)

// Path is where Slack sends what is clicked.
const Path = "/slack/interactions"

// Slack wants an answer within three seconds, and nothing runs after it in a function: so long may a decision take, and so long all of it.
const (
	decideIn = 2 * time.Second
	answerIn = 2600 * time.Millisecond
)

// Interactions takes decisions from the buttons of messages: POST of Path, behind nothing that authenticates. A request that no signing secret
// has signed within five minutes is refused before anything of it is read. Who clicked is who Slack says, mapped by the directory to a tenant
// and a person; what they may decide, the desk says. They are told what became of it in a message that they alone see; the messages about the
// request are updated by whoever sent them. Logs hold no content. Safe for concurrent use.
type Interactions struct {
	Secrets   []string // the app's signing secrets: any of them signs; none = every request is refused
	Directory person.Directory
	// Look is the request as it stands; approval.ErrNotFound where there is none.
	Look func(ctx context.Context, tenant, id string) (approval.Approval, error)
	// Decide is the desk's.
	Decide func(ctx context.Context, r approval.Request) (approval.Approval, error)
	Clock  clock.Clock
	HTTP   *http.Client // for answers; nil = Go's own
	Hooks  string       // scheme and host that answers are posted to; "" = https://hooks.slack.com
	Log    *slog.Logger
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
	case !verified(in.Secrets, r.Header, body, in.Clock.Now()):
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	p, err := read(r.Header, body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if c, ok := p.clicked(); ok {
		in.take(r.Context(), c)
	}
	w.WriteHeader(http.StatusOK) // what came of a click is told in an answer of its own
}

// take carries a click out and tells who clicked.
func (in *Interactions) take(ctx context.Context, c click) {
	ctx, cancel := in.Clock.WithTimeout(ctx, answerIn)
	defer cancel()
	told := in.decide(ctx, c)
	if err := in.answer(ctx, c.answer, told); err != nil {
		in.Log.Warn("could not tell who clicked in Slack", "approval", c.shown.Approval, "kind", err)
	}
}

// decide is what becomes of a click, in words for who clicked.
func (in *Interactions) decide(ctx context.Context, c click) string {
	ctx, cancel := in.Clock.WithTimeout(ctx, decideIn)
	defer cancel()
	tenant, p, found, err := in.Directory.Slack(ctx, c.team, c.member)
	switch {
	case err != nil:
		in.Log.Error("could not find who clicked in Slack", "approval", c.shown.Approval, "kind", err)
		return saidUncertain
	case !found:
		return saidStranger
	}
	now, err := in.Look(ctx, tenant, c.shown.Approval)
	if err != nil {
		return in.failed(c, err)
	}
	if now.Status == approval.Pending && now.Digest != c.shown.Digest {
		return saidChanged
	}
	a, err := in.Decide(ctx, approval.Request{
		Tenant: tenant, ID: c.shown.Approval, Action: c.action, Note: c.note,
		By: agent.Principal{ID: p.ID, Groups: p.Groups}, Via: approval.ViaSlack,
	})
	if err != nil {
		return in.failed(c, err)
	}
	return saidRecorded(a, c.action)
}

// failed says why nothing was decided, or that nobody knows.
func (in *Interactions) failed(c click, err error) string {
	var decided *approval.DecidedError
	switch {
	case errors.As(err, &decided):
		return saidDecided(decided.Approval)
	case errors.Is(err, approval.ErrForbidden):
		return saidForbidden
	case errors.Is(err, approval.ErrExpired):
		return saidExpired
	case errors.Is(err, approval.ErrFinished), errors.Is(err, approval.ErrNothing):
		return saidFinished
	case errors.Is(err, approval.ErrKind):
		return saidKind
	case errors.Is(err, approval.ErrNotFound):
		return saidUnknown
	}
	in.Log.Error("could not decide from Slack", "approval", c.shown.Approval, "kind", err)
	return saidUncertain
}
