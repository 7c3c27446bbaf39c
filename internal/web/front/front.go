// Package front is what functions/web serves, and a laptop the same: the pages that people decide on, over a desk.
package front

import (
	"context"
	"net/http"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/people/slack"
	"github.com/countersign/countersign/internal/web"
)

// Pages is a lambdafn.Front: the pages of requests, and what is clicked in Slack where the environment turns that on.
func Pages(b lambdafn.Behind) (http.Handler, error) {
	clicks := lambdafn.Clicks{Decide: b.Decides.Decide, Directory: b.People, Clock: b.Ports.Clock, Log: b.Log}
	if updates, ok := b.Ports.Notify.(interface {
		Decided(ctx context.Context, a approval.Approval)
	}); ok {
		clicks.Updated = updates.Decided
	}
	interactions, err := lambdafn.SlackInteractions(b.Getenv, clicks)
	if err != nil {
		return nil, err
	}
	return With(Requests(b), interactions), nil
}

// With are the pages, and what takes clicks in Slack; nil = nothing does.
func With(pages, interactions http.Handler) http.Handler {
	if interactions == nil {
		return pages
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == slack.Path {
			interactions.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// Requests are the pages of requests alone. Every other path is answered like a link that is none.
func Requests(b lambdafn.Behind) http.Handler { return Of(b).Handler() }

// Of are the pages of requests over a desk. Without b.Links they are behind no link: a console serves them.
func Of(b lambdafn.Behind) *web.Pages {
	pages := &web.Pages{
		Desk: b.Decides, Audit: b.Recorder, People: b.People, Show: web.Shown(b.Ports.Journal, b.Definitions), Clock: b.Ports.Clock, Log: b.Log,
		Get: func(ctx context.Context, tenant, id string) (approval.Approval, error) {
			return approval.Get(ctx, b.Ports.Table, tenant, id)
		},
		May: mayDecide(b.Desk), Remark: remark(b),
	}
	if b.Links != nil { // a nil one is no nil interface
		pages.Links = b.Links
	}
	return pages
}

// mayDecide says what a page offers: what somebody may do themself, or for those who have let them decide meanwhile. The desk decides.
func mayDecide(desk *approval.Desk) func(ctx context.Context, a approval.Approval, by agent.Principal) (approve, deny bool, err error) {
	return func(ctx context.Context, a approval.Approval, by agent.Principal) (approve, deny bool, err error) {
		now := desk.Clock.Now()
		as := []agent.Principal{by}
		if desk.Duties != nil {
			others, err := desk.Duties(ctx, a.Tenant, by, now)
			if err != nil {
				return false, false, err
			}
			as = append(as, others...)
		}
		deny = slices.ContainsFunc(as, func(p agent.Principal) bool { return a.MayDecide(p, now) })
		return deny && (!a.FourEyes || !slices.Contains(a.Requesters, by.ID)), deny, nil
	}
}

// remark takes what somebody says of a request: an answer of those for whom its run acts, a question of others.
func remark(b lambdafn.Behind) func(ctx context.Context, r web.Remark) error {
	return func(ctx context.Context, r web.Remark) error {
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
}
