package lambdafn

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/runtime"
)

// notifier is what tells people of requests, from a function's environment: functions/approve tells those who are asked, functions/sweep does
// what is due, and whatever takes decisions has messages updated. Without channels nobody is told, and functions/sweep lets others decide in
// time all the same.
//
// What is misconfigured is left out, and watch is told: no function that runs need ends because somebody cannot be told by Slack.
//
// It is called by the mains that tell people, and by nothing that functions/step and functions/tool reach: they link none of it.
func notifier(p runtime.Ports, cfg aws.Config, getenv func(string) string, watch *Observer) *notify.Notifier {
	n := &notify.Notifier{
		Table: p.Table, Journal: p.Journal, Clock: p.Clock, Recorder: auditor(p).Log,
		Warn: func(what string, _ error) { watch.Log("could not " + what) }, // what an error says may be content (R17)
	}
	var err error
	n.Channels, err = Channels(cfg, getenv, p.Clock)
	watch.without("a channel", err)
	if len(n.Channels) == 0 {
		return n
	}
	links, err := Links(p, getenv)
	watch.without("links", err)
	if links != nil { // a nil one is no nil interface
		n.Links = links
	}
	n.Directory = directory(getenv, watch)
	n.Show = notify.Viewer{Runs: p.Journal, Definitions: runtime.PinnedDefinitions(p.Blobs)}.Show
	return n
}

// telling adds what tells people who are asked. Where there is no channel there is nobody to tell, and nothing is read or written for it.
func telling(cfg aws.Config, getenv func(string) string, watch *Observer, p *runtime.Ports) {
	if n := notifier(*p, cfg, getenv, watch); len(n.Channels) > 0 {
		p.Notify = n
	}
}

// notifies is what tells people of decisions and remarks, among what tells them that they are asked.
type notifies interface {
	Noted(ctx context.Context, a approval.Approval)
	Decided(ctx context.Context, a approval.Approval)
	Thread(ctx context.Context, a approval.Approval)
}
