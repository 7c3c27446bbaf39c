package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/mail"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/slack"
	"github.com/countersign/countersign/internal/tool"
)

// The secrets of a laptop that turn Slack on, by name. They are read once: Slack's are not replaced while an engine
// runs.
const (
	SlackToken  = "SLACK_BOT_TOKEN"      // xoxb-…; none = there are no messages in Slack
	SlackSecret = "SLACK_SIGNING_SECRET" // several with commas between them; none = no click is taken
)

// Secret finds a secret of a laptop; tool.ErrNoSecret where there is none of that name.
type Secret func(ctx context.Context, tenant, name string) (string, error)

// Channels are the ways by which people are told of requests on a laptop: mails, which are files in the store
// directory, and Slack where there is a token among the secrets. Errors name the secret and hold nothing of it.
func Channels(ctx context.Context, dir string, secret Secret, clk clock.Clock) ([]notify.Channel, error) {
	all := []notify.Channel{mail.Outbox{Path: filepath.Join(dir, mail.OutboxDir), Clock: clk}}
	token, err := optionalSecret(ctx, secret, SlackToken)
	switch {
	case err != nil:
		return nil, err
	case token == "":
		return all, nil
	case !slack.ValidToken(token):
		return nil, fmt.Errorf("secret %s: want the token of a bot, xoxb-…", SlackToken)
	}
	return append([]notify.Channel{slack.New(slack.Options{Token: token, Clock: clk})}, all...), nil
}

// SlackSecrets are the signing secrets of a laptop; none = no click is taken.
func SlackSecrets(ctx context.Context, secret Secret) ([]string, error) {
	text, err := optionalSecret(ctx, secret, SlackSecret)
	return slack.ParseSecrets(text), err
}

// optionalSecret is a secret; "" where there is none.
func optionalSecret(ctx context.Context, secret Secret, name string) (string, error) {
	text, err := secret(ctx, Tenant, name)
	if err != nil && !errors.Is(err, tool.ErrNoSecret) {
		return "", fmt.Errorf("secret %s: %w", name, err)
	}
	return text, nil
}
