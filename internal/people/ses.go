package people

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"github.com/countersign/countersign/internal/awssdk"
)

// sesTimeout is how long one attempt may take.
const sesTimeout = 8 * time.Second

// SES sends mails from one address, through Amazon SES and without tracking. Make one with NewSES. Safe for concurrent
// use.
type SES struct {
	mailChannel
	from string
	send awssdk.Operation[sesv2.SendEmailInput, sesv2.SendEmailOutput, sesv2.Options]
}

// NewSES makes a channel that sends from an address of an identity that SES has verified. A mail whose answer was lost
// is sent again: a person rather reads one twice than never.
func NewSES(cfg aws.Config, from string) (*SES, error) {
	if !ValidEmail(from) {
		return nil, fmt.Errorf("the sender of mails: want an address such as approvals@example.com, got %q", from)
	}
	client := sesv2.NewFromConfig(cfg, func(o *sesv2.Options) {
		o.HTTPClient = awssdk.WithTimeout(o.HTTPClient, sesTimeout)
		o.Retryer = awssdk.Retryer()
	})
	return &SES{from: from, send: client.SendEmail}, nil
}

// Send implements Channel. There is no ref: no mail is changed. What is decided is not mailed. An error repeats
// nothing of what SES says but its name for the reason.
func (c *SES) Send(ctx context.Context, m Message) (string, error) {
	mail, ok, err := c.newMail(m)
	if !ok {
		return "", err
	}
	// Tracking is off for this mail, whatever the account's or the identity's settings are: its links lead where they say,
	// and no picture in it tells who reads it.
	off := &types.TrackingConfigurationOverrides{
		ClickTrackingEnabled: types.FeatureStatusDisabled, OpenTrackingEnabled: types.FeatureStatusDisabled,
	}
	utf8 := func(text string) *types.Content { return &types.Content{Data: &text, Charset: aws.String("UTF-8")} }
	content := &types.Message{
		Subject: utf8(mail.Subject), Body: &types.Body{Text: utf8(mail.Text), Html: utf8(mail.HTML)},
	}
	for _, h := range mailHeaders {
		content.Headers = append(content.Headers, types.MessageHeader{Name: &h[0], Value: &h[1]})
	}
	out, err := c.send(ctx, &sesv2.SendEmailInput{
		FromEmailAddress: &c.from, Destination: &types.Destination{ToAddresses: []string{m.To.Email}},
		Content:                &types.EmailContent{Simple: content},
		ConfigurationOverrides: &types.ConfigurationOverrides{Tracking: off},
	})
	if err == nil && aws.ToString(out.MessageId) == "" {
		err = errors.New("SES does not say that it took the mail")
	}
	if err != nil {
		return "", fmt.Errorf("mail request %s: %w", m.Approval.ID, awssdk.Bare(err))
	}
	return "", nil
}
