package lambdafn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/ses"
	"github.com/countersign/countersign/internal/people/slack"
)

// The environment of the functions that tell people: functions/approve, functions/sweep, functions/api and
// functions/web, which change messages when somebody decides. All of it is optional.
const (
	envMailFrom    = "COUNTERSIGN_MAIL_FROM"   // the sender of mails, of an identity that SES has verified; empty = there are none
	envSlackToken  = "COUNTERSIGN_SLACK_TOKEN" // of the app's bot, xoxb-…; empty = there are no messages in Slack
	envSlackSecret = slack.EnvSigningSecret    // functions/web; empty = no click is taken
	envSlackURL    = "SLACK_URL"               // scheme and host in place of Slack's own, for its API and for answers: a stand-in's; empty = Slack's
)

// minSecret is how long a signing secret is at least; Slack's have 32 characters.
const minSecret = 16

// Channels are the ways by which a function's environment has people told of requests; none = nobody is. One that is misconfigured is left out, and
// an error says so beside those that are not: it names the variable and no secret.
func Channels(cfg aws.Config, getenv func(string) string, clk clock.Clock) ([]notify.Channel, error) {
	var all []notify.Channel
	var broken []error
	if token := getenv(envSlackToken); token != "" {
		c, err := inSlack(getenv, token, clk)
		if err == nil {
			all = append(all, c)
		}
		broken = append(broken, err)
	}
	if from := getenv(envMailFrom); from != "" {
		c, err := ses.New(cfg, from)
		if err == nil {
			all = append(all, c)
		} else {
			broken = append(broken, fmt.Errorf("%s: %w", envMailFrom, err))
		}
	}
	return all, errors.Join(broken...)
}

func inSlack(getenv func(string) string, token string, clk clock.Clock) (notify.Channel, error) {
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
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%s: want a scheme and a host, as http://127.0.0.1:8080", envSlackURL)
	}
	return u.Scheme + "://" + u.Host, nil
}

// Clicks are what clicks in Slack meet.
type Clicks struct {
	Decide    func(ctx context.Context, r approval.Request) (approval.Approval, error) // the desk's, within the time that Slack waits
	Directory person.Directory
	Updated   func(ctx context.Context, a approval.Approval) // has messages updated, as (*notify.Notifier).Decided does; nil = nobody does
	Clock     clock.Clock
	Log       *slog.Logger
}

// SlackInteractions takes what is clicked in Slack, at slack.Path; nil = the environment has no signing secret. An error names the variable
// and no secret.
func SlackInteractions(getenv func(string) string, c Clicks) (http.Handler, error) {
	secrets := slack.Secrets(getenv(envSlackSecret))
	if len(secrets) == 0 {
		return nil, nil
	}
	for _, s := range secrets {
		if len(s) < minSecret {
			return nil, fmt.Errorf("%s: want signing secrets of at least %d characters, with commas between them", envSlackSecret, minSecret)
		}
	}
	base, err := slackURL(getenv)
	if err != nil {
		return nil, err
	}
	return &slack.Interactions{
		Secrets: secrets, Directory: c.Directory, Decide: c.Decide, Updated: c.Updated, Clock: c.Clock, Hooks: base, Log: c.Log,
	}, nil
}
