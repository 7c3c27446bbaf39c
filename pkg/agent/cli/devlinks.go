package cli

import (
	"cmp"
	"context"
	"net/http"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/slack"
)

// newLinks returns the links to approval pages. The keyring in HOME signs them. Their base is COUNTERSIGN_WEB_URL,
// else the address of dev.
func (e *engine) newLinks() *link.Links {
	return &link.Links{
		Table: e.backend.Table, Ring: e.ring.load, Sign: e.ring.loadOrCreate, Clock: e.p.clock, IDs: ids.System(e.p.clock),
		Base: func() string {
			var own string
			if url := e.url.Load(); url != nil {
				own = *url
			}
			return cmp.Or(e.p.getenv("COUNTERSIGN_WEB_URL"), own)
		},
	}
}

// engineLinks defers to the links of an engine that is still being opened.
type engineLinks struct{ e *engine }

func (o engineLinks) URL(ctx context.Context, a approval.Approval, to, channel string) (string, error) {
	return o.e.newLinks().URL(ctx, a, to, channel)
}

// newPagesHandler serves the approval pages and Slack interactions, as functions/http does. A POST first resumes the
// state machine, as in the API.
func (e *engine) newPagesHandler() (http.Handler, error) {
	signing, err := local.SlackSecrets(context.Background(), e.p.localSecrets().Secret)
	if err != nil {
		return nil, usageErrorf("%v", err)
	}
	d := e.newDeployment()
	d.Links = e.newLinks()
	if signing != "" {
		app, err := lambdafn.SlackApp(e.p.getenv, signing)
		if err != nil {
			return nil, usageErrorf("secret %s: %v", local.SlackSecret, err)
		}
		d.Slack = func(context.Context) (*slack.Interactions, error) { return app, nil }
	}
	pages := d.PagesHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if err := e.ready(r.Context()); err != nil {
				e.p.logFailure("page", err)
				http.Error(w, "the store could not be resumed", http.StatusServiceUnavailable)
				return
			}
		}
		pages.ServeHTTP(w, r)
	}), nil
}

// newDeployment returns the deployment behind the laptop's pages.
func (e *engine) newDeployment() *lambdafn.Deployment {
	d := *e.home.Deployment
	d.Log = e.backend.Log
	return &d
}
