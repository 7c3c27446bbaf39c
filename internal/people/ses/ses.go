// Package ses tells people of requests by mail, through Amazon SES: text and HTML with the same facts, one link and nothing that acts when it
// is opened, no word of a model's in the subject, and no tracking (approvals.md, C2).
package ses

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/letter"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
)

// Times of one attempt, how often and with what pause at most a mail is sent, and what is read of an answer, in bytes.
const (
	attemptTimeout = 8 * time.Second
	connectTimeout = time.Second
	attempts       = 4
	backoff        = time.Second
	maxAnswer      = 64 << 10
)

// service is SES' name in signatures, path where mails are sent.
const (
	service = "ses"
	path    = "/v2/email/outbound-emails"
)

// Channel sends mails from one address. It makes the one request it needs itself, with the SDK's signatures and transport (ADR 15). Make one
// with New. Safe for concurrent use.
type Channel struct {
	from, url, region string
	http              aws.HTTPClient
	credentials       aws.CredentialsProvider
	signer            *v4.Signer
	retryer           aws.RetryerV2
	clock             clock.Clock
}

// New makes a channel that sends from an address of an identity that SES has verified, through SES at endpoint: Endpoint gives AWS' own. An
// HTTP client in cfg that is not the SDK's own is kept as it is. A configuration without a region or credentials makes every Send fail.
func New(cfg aws.Config, endpoint, from string, clk clock.Clock) (*Channel, error) {
	if !letter.ValidAddress(from) {
		return nil, fmt.Errorf("the sender of mails: want an address such as approvals@example.com, got %q", from)
	}
	return &Channel{
		from: from, url: strings.TrimSuffix(endpoint, "/") + path, region: cfg.Region, http: timed(cfg.HTTPClient), credentials: cfg.Credentials,
		signer: v4.NewSigner(), clock: clk,
		retryer: retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = attempts, backoff }),
	}, nil
}

// Endpoint is where SES is in a region.
func Endpoint(region string, fips, dualStack bool) string {
	host := "email"
	if fips {
		host += "-fips"
	}
	suffix := "amazonaws.com"
	switch china := strings.HasPrefix(region, "cn-"); {
	case china && dualStack:
		suffix = "api.amazonwebservices.com.cn"
	case china:
		suffix = "amazonaws.com.cn"
	case dualStack:
		suffix = "api.aws"
	}
	return "https://" + host + "." + region + "." + suffix
}

// timed is the SDK's client with our timeouts and without redirects: what is signed for one host is no other's.
func timed(c aws.HTTPClient) aws.HTTPClient {
	if c == nil {
		c = awshttp.NewBuildableClient()
	}
	b, ok := c.(*awshttp.BuildableClient)
	if !ok {
		return c
	}
	b = b.WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectTimeout })
	return &http.Client{
		Transport: b.GetTransport(), Timeout: attemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Name implements notify.Channel.
func (*Channel) Name() string { return letter.MailChannel }

// Reaches implements notify.Channel: p has an address that is one and nothing else.
func (*Channel) Reaches(p person.Person) bool { return letter.ValidAddress(p.Email) }

// Update implements notify.Channel. A mail that was sent stays as it is; its page says what became of the request.
func (*Channel) Update(context.Context, string, notify.Message) error { return nil }

// Send implements notify.Channel. There is no ref: no mail is changed. What is decided is not mailed.
func (c *Channel) Send(ctx context.Context, m notify.Message) (string, error) {
	if m.Occasion == notify.Decided {
		return "", nil
	}
	if !c.Reaches(m.To) {
		return "", fmt.Errorf("mail request %s: the person has no address", m.Approval.ID)
	}
	body, err := agent.MarshalVerbatim(c.request(m.To.Email, letter.Of(m).AsMail()))
	if err != nil {
		return "", fmt.Errorf("mail request %s: %w", m.Approval.ID, err)
	}
	if err := c.post(ctx, body); err != nil {
		return "", fmt.Errorf("mail request %s: %w", m.Approval.ID, err)
	}
	return "", nil
}

// request is what SendEmail takes.
type request struct {
	FromEmailAddress       string
	Destination            destination
	Content                struct{ Simple simple }
	ConfigurationOverrides overrides
}

type destination struct{ ToAddresses []string }

type simple struct {
	Subject content
	Body    struct{ Text, HTML content }
	Headers []header
}

type content struct{ Data, Charset string }

type header struct{ Name, Value string }

// overrides are settings of this mail alone, whatever the account's or the identity's own are: its links lead where they say, and no picture in
// it tells who reads it.
type overrides struct {
	Tracking struct{ ClickTrackingEnabled, OpenTrackingEnabled string }
}

// MarshalJSON names the body's parts as SES does.
func (s simple) MarshalJSON() ([]byte, error) {
	return agent.MarshalVerbatim(map[string]any{
		"Subject": s.Subject, "Body": map[string]content{"Text": s.Body.Text, "Html": s.Body.HTML}, "Headers": s.Headers,
	})
}

func (c *Channel) request(to string, m letter.Mail) request {
	var s simple
	s.Subject, s.Body.Text, s.Body.HTML = utf8(m.Subject), utf8(m.Text), utf8(m.HTML)
	for _, h := range letter.Headers() {
		s.Headers = append(s.Headers, header(h))
	}
	r := request{FromEmailAddress: c.from, Destination: destination{[]string{to}}}
	r.Content.Simple = s
	r.ConfigurationOverrides.Tracking.ClickTrackingEnabled, r.ConfigurationOverrides.Tracking.OpenTrackingEnabled = "DISABLED", "DISABLED"
	return r
}

func utf8(text string) content { return content{text, "UTF-8"} }

// post sends the request until it succeeds, cannot, or has been sent often enough.
func (c *Channel) post(ctx context.Context, body []byte) error {
	for attempt := 1; ; attempt++ {
		err := c.attempt(ctx, body)
		var said *RefusedError
		if err == nil || attempt == c.retryer.MaxAttempts() || ctx.Err() != nil || asRefused(err, &said) && said.Permanent() {
			return err
		}
		delay, tooMany := c.retryer.RetryDelay(attempt, err)
		if tooMany != nil || c.clock.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// attempt makes one request.
func (c *Channel) attempt(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "countersign")
	if c.credentials == nil {
		return fmt.Errorf("sign the request: want credentials, got none")
	}
	keys, err := c.credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	sum := sha256.Sum256(body)
	if err := c.signer.SignHTTP(ctx, keys, r, hex.EncodeToString(sum[:]), service, c.region, c.clock.Now()); err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("ask SES: %w", err)
	}
	defer resp.Body.Close()
	return outcome(resp)
}

// outcome reads what became of a mail.
func outcome(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of SES: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return &RefusedError{Code: code(resp.Header.Get("X-Amzn-Errortype"), text), Status: resp.StatusCode}
	}
	var said struct {
		MessageID string `json:"MessageId"`
	}
	if json.Unmarshal(text, &said) != nil || said.MessageID == "" {
		return &RefusedError{Code: "NoMessageId", Status: http.StatusInternalServerError} // nobody can say whether it was taken
	}
	return nil
}
