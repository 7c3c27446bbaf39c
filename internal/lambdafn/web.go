package lambdafn

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/slack"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tools/schema"
	"github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/internal/web/api"
)

// Web is the main of functions/web: the pages that people decide on, and whatever else says by itself who asks. It serves until the process
// is ended.
func Web(r *registry.Registry) {
	listen(func(cfg aws.Config, getenv func(string) string) (Invoke, error) { return startWeb(r, cfg, getenv) })
}

func startWeb(agents api.Agents, cfg aws.Config, getenv func(string) string) (Invoke, error) {
	watch, err := observe(getenv, os.Stdout, os.Stderr)
	if err != nil {
		return nil, err
	}
	d, err := pagesOf(agents, cfg, getenv, watch)
	if err != nil {
		return nil, err
	}
	h, err := d.Handler()
	if err != nil {
		return nil, err
	}
	serve := Gateway(h, d.Log)
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		defer watch.flush(ctx)
		ctx, cancel := inTime(ctx, d.Ports.Clock)
		defer cancel()
		return serve(ctx, payload)
	}, nil
}

// pagesOf composes what is behind the pages of functions/web. Agents are the definitions of now, whose policy holds beside a run's own.
func pagesOf(agents api.Agents, cfg aws.Config, getenv func(string) string, watch *Observer) (*Deployment, error) {
	p, err := connect(cfg, getenv)
	if err != nil {
		return nil, err
	}
	p.Valid = schema.Validate
	telling(cfg, getenv, watch, &p)
	links, err := Links(p, getenv)
	switch {
	case err != nil:
		return nil, err
	case links == nil:
		return nil, fmt.Errorf("%s: want a ring of keys, got none", envKeyRing)
	}
	people, err := readDirectory(getenv)
	if err != nil {
		return nil, err
	}
	p = watch.Ports(p)
	d := &Deployment{
		Ports: p, Definitions: runtime.Tightened(runtime.PinnedDefinitions(p.Blobs), agents.Agent), People: people,
		Links: links, Log: newLog(), Getenv: getenv,
	}
	d.Compose(watch.Trace)
	return d, nil
}

// Handler serves the pages of requests, and what is clicked in Slack where the environment turns that on. Every other path is answered like a
// link that is none.
func (d *Deployment) Handler() (http.Handler, error) {
	clicks := Clicks{Decide: d.Decides.Decide, Directory: d.People, Clock: d.Ports.Clock, Log: d.Log, Updated: d.Desk.Woken}
	interactions, err := SlackInteractions(d.Getenv, clicks)
	if err != nil {
		return nil, err
	}
	pages := d.Pages().Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if interactions != nil && r.URL.Path == slack.Path {
			interactions.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	}), nil
}

// Pages are the pages of requests over a desk.
func (d *Deployment) Pages() *web.Pages {
	pages := &web.Pages{
		Desk: d.Decides, Audit: d.Recorder, People: d.People, Show: web.Shown(d.Ports.Journal, d.Definitions), Clock: d.Ports.Clock, Log: d.Log,
		Get: func(ctx context.Context, tenant, id string) (approval.Approval, error) {
			return approval.Get(ctx, d.Ports.Table, tenant, id)
		},
		May: d.mayDecide, Remark: d.remark,
	}
	if d.Links != nil { // a nil one is no nil interface
		pages.Links = d.Links
	}
	return pages
}

// mayDecide says what a page offers somebody. The desk decides.
func (d *Deployment) mayDecide(_ context.Context, a approval.Approval, by agent.Principal) (approve, deny bool, err error) {
	deny = a.MayDecide(by, d.Desk.Clock.Now())
	return deny && (!a.FourEyes || !slices.Contains(a.Requesters, by.ID)), deny, nil
}

// remark takes what somebody says of a request: an answer of those for whom its run acts, a question of others.
func (d *Deployment) remark(ctx context.Context, r web.Remark) error {
	a, err := approval.Get(ctx, d.Ports.Table, r.Tenant, r.ID)
	if err != nil {
		return err
	}
	say := d.Decides.Ask
	if slices.Contains(a.Requesters, r.By.ID) {
		say = d.Decides.Reply
	}
	_, err = say(ctx, approval.Word{Tenant: r.Tenant, ID: r.ID, Text: r.Text, By: r.By, Via: r.Via})
	return err
}
