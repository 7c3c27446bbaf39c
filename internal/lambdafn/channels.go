package lambdafn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/tools"
)

// The environment of the functions that tell people: functions/sweep, and functions/http, which changes messages when
// somebody decides. All of it is optional. Variables of secrets hold the name or the ARN of one in Secrets Manager,
// which is read when it is needed.
const (
	// the sender of mails, of an identity that SES has verified; empty = there are none
	EnvMailFrom = "COUNTERSIGN_MAIL_FROM"
	// the secret of the app's bot, xoxb-…; empty = there are no messages in Slack
	EnvSlackToken = "COUNTERSIGN_SLACK_TOKEN"
	// functions/http: the secret of the signing secrets, with commas between several; empty = no click is taken
	EnvSlackSecret = "COUNTERSIGN_SLACK_SIGNING_SECRET"
	// a stand-in's scheme and host, for Slack's API and for answers; empty = Slack's own
	EnvSlackURL = "SLACK_URL"
	envWebURL   = "COUNTERSIGN_WEB_URL" // where the pages are reached from outside; empty = no link is handed out
)

// minSecret is how long a signing secret is at least; Slack's have 32 characters.
const minSecret = 16

// Channels returns the channels by which people are notified of requests, from a function's environment; none = nobody
// is. A misconfigured channel is left out, and the error, which names the variable and no secret, is returned beside
// the others.
func (f *function) Channels() ([]people.Channel, error) {
	var all []people.Channel
	var broken []error
	if read := f.secret(EnvSlackToken); read != nil {
		base, err := slackURL(f.getenv)
		if err != nil {
			broken = append(broken, err)
		} else {
			o := people.SlackOptions{Clock: f.Ports.Clock, Token: func(ctx context.Context) (string, error) {
				token, err := read(ctx)
				if err == nil && !people.ValidSlackToken(token) {
					err = fmt.Errorf("%s: want a secret that is the token of a bot, xoxb-…", EnvSlackToken)
					f.watch.disablePart("messages in Slack", err)
				}
				return token, err
			}}
			if base != "" {
				o.Base = base + "/api/"
			}
			all = append(all, people.NewSlackChannel(o))
		}
	}
	if from := f.getenv(EnvMailFrom); from != "" {
		c, err := people.NewSES(f.cfg, from)
		if err == nil {
			all = append(all, c)
		} else {
			broken = append(broken, fmt.Errorf("%s: %w", EnvMailFrom, err))
		}
	}
	return all, errors.Join(broken...)
}

// slackURL returns the address of a stand-in for Slack; "" = there is none.
func slackURL(getenv func(string) string) (string, error) {
	text := getenv(EnvSlackURL)
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%s: want a scheme and a host, as http://127.0.0.1:8080", EnvSlackURL)
	}
	return u.Scheme + "://" + u.Host, nil
}

// SlackApp returns the Slack app whose clicks are accepted, with its signing secrets, which are separated by commas.
// Errors contain no secret.
func SlackApp(getenv func(string) string, signing string) (*people.SlackInteractions, error) {
	secrets := people.ParseSlackSecrets(signing)
	if len(secrets) == 0 || slices.ContainsFunc(secrets, func(s string) bool { return len(s) < minSecret }) {
		return nil, fmt.Errorf("want signing secrets of at least %d characters, with commas between them", minSecret)
	}
	base, err := slackURL(getenv)
	if err != nil {
		return nil, err
	}
	return &people.SlackInteractions{Secrets: secrets, Hooks: base}, nil
}

// notifier returns what notifies people of requests, from a function's environment: functions/sweep notifies approvers
// and does what is due, and functions/http updates messages. Without channels nobody is notified, and functions/sweep
// still escalates in time. Misconfigured channels are left out and logged, so that no function that runs need fails
// because of them.
func notifier(f *function) *people.Notifier {
	p := f.Ports
	n := &people.Notifier{
		Table: p.Table, Journal: p.Journal, Clock: p.Clock,
		Warn: func(what string, _ error) { f.watch.Log("could not " + what) }, // what an error says may be content (R17)
	}
	var err error
	n.Channels, err = f.Channels()
	f.watch.disablePart("a channel", err)
	if len(n.Channels) == 0 {
		return n
	}
	if l := links(p, f.keyRing(EnvLinkKeyRing), f.getenv); l != nil { // a nil one is no nil interface
		n.Links = l
	}
	n.Directory = f.directory()
	n.Show = (&people.Viewer{Runs: p.Journal, Definitions: f.Shown}).Show
	return n
}

// addNotifier adds the notifier for those who are asked. Without a channel nobody is notified, and nothing is read or
// written for it.
func addNotifier(f *function) error {
	if n := notifier(f); len(n.Channels) > 0 {
		f.Ports.Notify = n
	}
	return nil
}

// envNotifier names the function that tells people of requests for functions/approve: functions/sweep. Empty = there
// are no channels.
const envNotifier = "COUNTERSIGN_NOTIFIER"

// asyncNotices has another function tell people. Channels can take longer than functions/approve has, which need not
// hold their secrets either.
type asyncNotices struct {
	functions runtime.Functions
	name      string
	clock     clock.Clock
}

func addAsyncNotices(f *function) error {
	if name := f.getenv(envNotifier); name != "" {
		f.Ports.Notify = asyncNotices{tools.NewFunctions(f.cfg), name, f.Ports.Clock}
	}
	return nil
}

// NotifyRun implements runtime.Notify. No error means that Lambda has the event.
func (n asyncNotices) NotifyRun(ctx context.Context, tenant, run string) error {
	payload, err := json.Marshal(trigger{Notify: &waitingRun{tenant, run}})
	if err != nil {
		return err
	}
	ctx, cancel := n.clock.WithTimeout(ctx, 10*time.Second) // Lambda only accepts the event
	defer cancel()
	_, err = n.functions.Invoke(ctx, runtime.Invoke{Function: n.name, Payload: payload, Async: true})
	return err
}

func (f *function) directory() people.Directory {
	return &people.Stored{Table: f.Ports.Table, Clock: f.Ports.Clock}
}

// links returns the links to requests, signed by a key ring; nil without one.
func links(p runtime.Ports, ring func() (*secrets.Ring, error), getenv func(string) string) *approval.Links {
	if ring == nil {
		return nil
	}
	base := getenv(envWebURL)
	return &approval.Links{
		Table: p.Table, Ring: ring, Clock: p.Clock, IDs: clock.NewIDs(p.Clock), Base: func() string { return base },
	}
}
