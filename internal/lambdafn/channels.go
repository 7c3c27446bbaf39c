package lambdafn

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/mail"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/slack"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
)

// The environment of the functions that tell people: functions/approve, functions/sweep, and functions/http, which
// changes messages when somebody decides. All of it is optional.
const (
	// the sender of mails, of an identity that SES has verified; empty = there are none
	envMailFrom    = "COUNTERSIGN_MAIL_FROM"
	envSlackToken  = "COUNTERSIGN_SLACK_TOKEN" // of the app's bot, xoxb-…; empty = there are no messages in Slack
	envSlackSecret = slack.EnvSigningSecret    // functions/http; empty = no click is taken
	// a stand-in's scheme and host, for Slack's API and for answers; empty = Slack's own
	envSlackURL  = "SLACK_URL"
	envDirectory = "COUNTERSIGN_DIRECTORY" // the document of people, which person.Read reads; empty = nobody is known
	envWebURL    = "COUNTERSIGN_WEB_URL"   // where the pages are reached from outside; empty = no link is handed out
)

// minSecret is how long a signing secret is at least; Slack's have 32 characters.
const minSecret = 16

// Channels are the ways by which a function's environment has people told of requests; none = nobody is. One that is
// misconfigured is left out, and an error says so beside those that are not: it names the variable and no secret.
func Channels(cfg aws.Config, getenv func(string) string, clk clock.Clock) ([]notify.Channel, error) {
	var all []notify.Channel
	var broken []error
	if token := getenv(envSlackToken); token != "" {
		c, err := slackChannel(getenv, token, clk)
		if err == nil {
			all = append(all, c)
		}
		broken = append(broken, err)
	}
	if from := getenv(envMailFrom); from != "" {
		c, err := mail.NewSES(cfg, from)
		if err == nil {
			all = append(all, c)
		} else {
			broken = append(broken, fmt.Errorf("%s: %w", envMailFrom, err))
		}
	}
	return all, errors.Join(broken...)
}

func slackChannel(getenv func(string) string, token string, clk clock.Clock) (notify.Channel, error) {
	base, err := slackURL(getenv)
	if err != nil {
		return nil, err
	}
	if !slack.ValidToken(token) {
		return nil, fmt.Errorf("%s: want the token of a bot, xoxb-…", envSlackToken)
	}
	o := slack.Options{Token: token, Clock: clk}
	if base != "" {
		o.Base = base + "/api/"
	}
	return slack.New(o), nil
}

// slackURL is what stands in for Slack; "" = nothing does.
func slackURL(getenv func(string) string) (string, error) {
	text := getenv(envSlackURL)
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%s: want a scheme and a host, as http://127.0.0.1:8080", envSlackURL)
	}
	return u.Scheme + "://" + u.Host, nil
}

// SlackApp is the app whose clicks are taken; nil = the environment has no signing secret. An error names the variable
// and no secret.
func SlackApp(getenv func(string) string) (*slack.Interactions, error) {
	secrets := slack.ParseSecrets(getenv(envSlackSecret))
	if len(secrets) == 0 {
		return nil, nil
	}
	for _, s := range secrets {
		if len(s) < minSecret {
			return nil, fmt.Errorf("%s: want signing secrets of at least %d characters, with commas between them",
				envSlackSecret, minSecret)
		}
	}
	base, err := slackURL(getenv)
	if err != nil {
		return nil, err
	}
	return &slack.Interactions{Secrets: secrets, Hooks: base}, nil
}

// notifier is what tells people of requests, from a function's environment: functions/approve tells those who are
// asked, functions/sweep does what is due, and functions/http has messages updated. Without channels nobody is told,
// and functions/sweep lets others decide in time all the same. What is misconfigured is left out and logged: no
// function that runs need ends because somebody cannot be told.
func notifier(f *function) *notify.Notifier {
	p := f.Ports
	n := &notify.Notifier{
		Table: p.Table, Journal: p.Journal, Clock: p.Clock,
		Warn: func(what string, _ error) { f.watch.Log("could not " + what) }, // what an error says may be content (R17)
	}
	var err error
	n.Channels, err = Channels(f.cfg, f.getenv, p.Clock)
	f.watch.disablePart("a channel", err)
	if len(n.Channels) == 0 {
		return n
	}
	ring, err := keyRing(f.getenv, envLinkKeyRing)
	f.watch.disablePart("links", err)
	if l := links(p, ring, f.getenv); l != nil { // a nil one is no nil interface
		n.Links = l
	}
	n.Directory = directory(f.getenv, f.watch)
	n.Show = notify.Viewer{Runs: p.Journal, Definitions: f.Definitions}.Show
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

// directory is a function's directory of people. Where it cannot be read, nobody is known, which lets nobody do
// anything.
func directory(getenv func(string) string, watch *Observer) *person.Book {
	text := getenv(envDirectory)
	if text == "" {
		return &person.Book{}
	}
	book, err := person.Read([]byte(text))
	if err != nil { // it says where the document is wrong, and has no address in it
		watch.disablePart("the directory of people", fmt.Errorf("%s: %w", envDirectory, err))
		return &person.Book{}
	}
	return book
}

// links are the links to requests, signed by a key ring; nil without one.
func links(p runtime.Ports, ring func() (*secrets.Ring, error), getenv func(string) string) *link.Links {
	if ring == nil {
		return nil
	}
	base := getenv(envWebURL)
	return &link.Links{
		Table: p.Table, Ring: ring, Clock: p.Clock, IDs: ids.System(p.Clock), Base: func() string { return base },
	}
}
