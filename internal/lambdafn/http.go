package lambdafn

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/slack"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/internal/web/api"
)

// The environment of functions/http beside that of every function. All of it is optional.
const (
	envTenantClaim = "COUNTERSIGN_TENANT_CLAIM" // tenant
	envUserClaim   = "COUNTERSIGN_USER_CLAIM"   // sub
	envGroupsClaim = "COUNTERSIGN_GROUPS_CLAIM" // groups
	envIAMTenant   = "COUNTERSIGN_IAM_TENANT"   // empty = callers signed by IAM are refused
)

// HTTP is the main of functions/http: the HTTP API, and the pages and Slack's clicks beside it. It serves until the
// process is ended.
func HTTP(r *registry.Registry) {
	listen(func(cfg aws.Config, getenv func(string) string) (Invoke, error) { return startHTTP(r, cfg, getenv) })
}

func startHTTP(r *registry.Registry, cfg aws.Config, getenv func(string) string) (Invoke, error) {
	who := Identity{
		TenantClaim: getenv(envTenantClaim), UserClaim: getenv(envUserClaim),
		GroupsClaim: getenv(envGroupsClaim), IAMTenant: getenv(envIAMTenant),
	}
	if who.IAMTenant != "" && !agent.ValidTenant(who.IAMTenant) {
		return nil, fmt.Errorf("%s: got %q, want a tenant: ^[a-z0-9][a-z0-9-]{0,39}$", envIAMTenant, who.IAMTenant)
	}
	if parts := strings.Split(getenv(envMachine), ":"); len(parts) > 4 { // connect says so where it is no ARN
		who.IAMAccount = parts[4]
	}
	callbackRing, err := keyRing(getenv, envKeyRing)
	if err != nil {
		return nil, err
	}
	linkRing, err := keyRing(getenv, envLinkKeyRing)
	if err != nil {
		return nil, err
	}
	f, err := start(r, cfg, getenv, addNotifier)
	if err != nil {
		return nil, err
	}
	f.People, f.Ring, f.Links = directory(getenv, f.watch), callbackRing, links(f.Ports, linkRing, getenv)
	f.Slack, err = SlackApp(getenv)
	f.watch.disablePart("clicks in Slack", err)
	serve := f.Serve(f.agents, who)
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		defer f.watch.flush(ctx)
		return serve(ctx, payload)
	}, nil
}

// Serve answers the events of a gateway by the HTTP API, and by the pages and Slack's clicks if there are Links. It
// takes services' answers from an event rule. It uses no model and no tool, and needs neither among its ports. A stream
// learns of what other functions write by looking at the journal's tail.
//
// Who calls the API is asked of every request but a callback's, whatever route of the gateway it came by. The pages
// never ask: a link says who opens it, and Slack signs what it sends.
func (d *Deployment) Serve(agents api.Agents, who Identity) Invoke {
	backend := d.Backend()
	backend.Agents, backend.Feed, backend.Caller = agents, api.NewPoll(d.Ports.Journal, d.Ports.Clock), who.Caller
	served, events := d.Trace.HTTP(api.Handler(backend)), answers{d.Inputs}
	if d.Links != nil {
		api, pages := served, d.PagesHandler()
		served = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if p := r.URL.Path; p == "/" || p == slack.Path || strings.HasPrefix(p, link.Path) { // or it is the API's
				pages.ServeHTTP(w, r)
				return
			}
			api.ServeHTTP(w, r)
		})
	}
	serve := Gateway(served, d.Log)
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		ctx, cancel := withAnswerTime(ctx, d.Ports.Clock)
		defer cancel()
		if sent, ok := readDelivery(payload); ok {
			return events.accept(ctx, sent)
		}
		return serve(ctx, payload)
	}
}

// PagesHandler serves the pages of requests, and what is clicked in Slack. Every other path is answered like a link
// that is none.
func (d *Deployment) PagesHandler() http.Handler {
	pages := d.Pages().Handler()
	if d.Slack == nil {
		return pages
	}
	clicks := *d.Slack
	clicks.Directory, clicks.Decide, clicks.UpdateMessages = d.People, d.Desk.Decide, d.Desk.OnChange
	clicks.Clock, clicks.Log = d.Ports.Clock, d.Log
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == slack.Path {
			clicks.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// Pages are the pages of requests over the desk.
func (d *Deployment) Pages() *web.Pages {
	pages := &web.Pages{
		Desk: d.Desk, People: d.People, Show: web.NewRenderer(d.Ports.Journal, d.Definitions),
		Clock: d.Ports.Clock, Log: d.Log, Remark: d.remark,
		Get: func(ctx context.Context, tenant, id string) (approval.Approval, error) {
			return approval.Get(ctx, d.Ports.Table, tenant, id)
		},
	}
	pages.Codes, _ = d.Ports.Notify.(web.Codes)
	if d.Links != nil { // a nil one is no nil interface
		pages.Links = d.Links
	}
	return pages
}

// remark takes what somebody says of a request: an answer of those for whom its run acts, a question of others.
func (d *Deployment) remark(ctx context.Context, r web.Remark) error {
	a, err := approval.Get(ctx, d.Ports.Table, r.Tenant, r.ID)
	if err != nil {
		return err
	}
	say := d.Desk.AskQuestion
	if slices.Contains(a.Requesters, r.By.ID) {
		say = d.Desk.ReplyToQuestion
	}
	_, err = say(ctx, approval.RemarkInput{Tenant: r.Tenant, ID: r.ID, Text: r.Text, By: r.By, Via: r.Via})
	return err
}

// answering is what is left of a function's time to answer in: who is cut off by it leaves the client without a problem
// to read, and whoever runs this without a line in the log.
const answering = time.Second

// withAnswerTime ends early enough before ctx's deadline to answer, if ctx has one.
func withAnswerTime(ctx context.Context, c clock.Clock) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return c.WithTimeout(ctx, deadline.Sub(c.Now())-answering)
}
