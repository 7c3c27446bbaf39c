package lambdafn

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/person"
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
	b, err := connectBehind(agents, cfg, getenv, watch)
	if err != nil {
		return nil, err
	}
	h, err := b.Handler()
	if err != nil {
		return nil, err
	}
	serve := Gateway(h, b.Log)
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		defer watch.flush(ctx)
		ctx, cancel := inTime(ctx, b.Ports.Clock)
		defer cancel()
		return serve(ctx, payload)
	}, nil
}

// Behind is what stands behind the pages that people decide on, in a function and on a laptop.
type Behind struct {
	Ports       runtime.Ports
	Desk        *approval.Desk // for what it knows; decisions go through Decides
	Decides     api.Desk       // Desk, and what keeps an audit of it
	Recorder    audit.Recorder // of what is looked at; nil = nobody keeps it
	Definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)
	Links       *link.Links // nil = the pages are behind no link: a console serves them
	People      person.Directory
	Log         *slog.Logger        // nil = nothing is logged
	Getenv      func(string) string // for what else the environment turns on
}

// connectBehind wires what is behind the pages of functions/web. Agents are the definitions of now, whose policy holds beside a run's own.
func connectBehind(
	agents api.Agents, cfg aws.Config, getenv func(string) string, watch *Observer,
) (Behind, error) {
	p, err := connect(cfg, getenv)
	if err != nil {
		return Behind{}, err
	}
	p.Valid = schema.Validate
	telling(cfg, getenv, watch, &p)
	links, err := Links(p, getenv)
	switch {
	case err != nil:
		return Behind{}, err
	case links == nil:
		return Behind{}, fmt.Errorf("%s: want a ring of keys, got none", envKeyRing)
	}
	people, err := readDirectory(getenv)
	if err != nil {
		return Behind{}, err
	}
	p = watch.Ports(p)
	definitions := runtime.Tightened(runtime.PinnedDefinitions(p.Blobs), agents.Agent)
	waits := &runtime.Waits{Ports: p}
	desk := &approval.Desk{
		Table: p.Table, Journal: p.Journal, Clock: p.Clock, Definitions: definitions, Valid: p.Valid, Wake: waits.Wake,
		Decided: watch.Trace.Decided(p.Journal), Noted: noted(p.Notify), Woken: decided(p.Notify), Said: said(p.Notify),
	}
	return Behind{
		Ports: p, Definitions: definitions, Desk: desk, Decides: audited(p, desk), Recorder: auditor(p).Log,
		Links: links, People: people, Log: newLog(), Getenv: getenv,
	}, nil
}

// Handler serves the pages of requests, and what is clicked in Slack where the environment turns that on. Every other path is answered like a
// link that is none.
func (b Behind) Handler() (http.Handler, error) {
	clicks := Clicks{Decide: b.Decides.Decide, Directory: b.People, Clock: b.Ports.Clock, Log: b.Log, Updated: decided(b.Ports.Notify)}
	interactions, err := SlackInteractions(b.Getenv, clicks)
	if err != nil {
		return nil, err
	}
	pages := b.Pages().Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if interactions != nil && r.URL.Path == slack.Path {
			interactions.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	}), nil
}

// Pages are the pages of requests over a desk.
func (b Behind) Pages() *web.Pages {
	pages := &web.Pages{
		Desk: b.Decides, Audit: b.Recorder, People: b.People, Show: web.Shown(b.Ports.Journal, b.Definitions), Clock: b.Ports.Clock, Log: b.Log,
		Get: func(ctx context.Context, tenant, id string) (approval.Approval, error) {
			return approval.Get(ctx, b.Ports.Table, tenant, id)
		},
		May: b.mayDecide, Remark: b.remark,
	}
	if b.Links != nil { // a nil one is no nil interface
		pages.Links = b.Links
	}
	return pages
}

// mayDecide says what a page offers somebody. The desk decides.
func (b Behind) mayDecide(_ context.Context, a approval.Approval, by agent.Principal) (approve, deny bool, err error) {
	deny = a.MayDecide(by, b.Desk.Clock.Now())
	return deny && (!a.FourEyes || !slices.Contains(a.Requesters, by.ID)), deny, nil
}

// remark takes what somebody says of a request: an answer of those for whom its run acts, a question of others.
func (b Behind) remark(ctx context.Context, r web.Remark) error {
	a, err := approval.Get(ctx, b.Ports.Table, r.Tenant, r.ID)
	if err != nil {
		return err
	}
	say := b.Decides.Ask
	if slices.Contains(a.Requesters, r.By.ID) {
		say = b.Decides.Reply
	}
	_, err = say(ctx, approval.Word{Tenant: r.Tenant, ID: r.ID, Text: r.Text, By: r.By, Via: r.Via})
	return err
}
