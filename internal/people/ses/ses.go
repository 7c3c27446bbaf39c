// Package ses tells people of requests by mail, through Amazon SES: text and HTML with the same facts, one link and
// nothing that acts when it is opened, no word of a model's in the subject, and no tracking (approvals.md, C2).
package ses

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"github.com/countersign/countersign/internal/awssdk"

	"github.com/countersign/countersign/internal/people/letter"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
)

// attemptTimeout is how long one attempt may take.
const attemptTimeout = 8 * time.Second

// Channel sends mails from one address. Make one with New. Safe for concurrent use.
type Channel struct {
	from string
	send awssdk.Operation[sesv2.SendEmailInput, sesv2.SendEmailOutput, sesv2.Options]
}

// New makes a channel that sends from an address of an identity that SES has verified. A mail whose answer was lost
// is sent again: a person rather reads one twice than never.
func New(cfg aws.Config, from string) (*Channel, error) {
	if !letter.ValidAddress(from) {
		return nil, fmt.Errorf("the sender of mails: want an address such as approvals@example.com, got %q", from)
	}
	client := sesv2.NewFromConfig(cfg, func(o *sesv2.Options) {
		o.HTTPClient = awssdk.WithTimeout(o.HTTPClient, attemptTimeout)
		o.Retryer = awssdk.Retryer()
	})
	return &Channel{from: from, send: client.SendEmail}, nil
}

// Name implements notify.Channel.
func (*Channel) Name() string { return letter.MailChannel }

// Reaches implements notify.Channel: p has an address that is one and nothing else.
func (*Channel) Reaches(p person.Person) bool { return letter.ValidAddress(p.Email) }

// Update implements notify.Channel. A mail that was sent stays as it is; its page says what became of the request.
func (*Channel) Update(context.Context, string, notify.Message) error { return nil }

// Send implements notify.Channel. There is no ref: no mail is changed. What is decided is not mailed. An error repeats
// nothing of what SES says but its name for the reason.
func (c *Channel) Send(ctx context.Context, m notify.Message) (string, error) {
	if m.Occasion == notify.Decided {
		return "", nil
	}
	if !c.Reaches(m.To) {
		return "", fmt.Errorf("mail request %s: the person has no address", m.Approval.ID)
	}
	out, err := c.send(ctx, c.mail(m.To.Email, letter.Of(m).AsMail()))
	if err == nil && aws.ToString(out.MessageId) == "" {
		err = errors.New("SES does not say that it took the mail")
	}
	if err != nil {
		return "", fmt.Errorf("mail request %s: %w", m.Approval.ID, awssdk.Bare(err))
	}
	return "", nil
}

// mail is what SendEmail takes. Tracking is off for this mail, whatever the account's or the identity's settings are:
// its links lead where they say, and no picture in it tells who reads it.
func (c *Channel) mail(to string, m letter.Mail) *sesv2.SendEmailInput {
	utf8 := func(text string) *types.Content { return &types.Content{Data: &text, Charset: aws.String("UTF-8")} }
	content := &types.Message{Subject: utf8(m.Subject), Body: &types.Body{Text: utf8(m.Text), Html: utf8(m.HTML)}}
	for _, h := range letter.Headers() {
		content.Headers = append(content.Headers, types.MessageHeader{Name: &h.Name, Value: &h.Value})
	}
	return &sesv2.SendEmailInput{
		FromEmailAddress: &c.from, Destination: &types.Destination{ToAddresses: []string{to}},
		Content: &types.EmailContent{Simple: content},
		ConfigurationOverrides: &types.ConfigurationOverrides{Tracking: &types.TrackingConfigurationOverrides{
			ClickTrackingEnabled: types.FeatureStatusDisabled, OpenTrackingEnabled: types.FeatureStatusDisabled,
		}},
	}
}
