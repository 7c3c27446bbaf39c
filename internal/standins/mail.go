package standins

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Mail is Amazon SES as far as SendEmail goes, with simple content: it checks signatures, the form, the sender and
// addresses, refuses mails that would be tracked, and keeps the others. What it does not know it refuses. Safe for
// concurrent use once it is made.
type Mail struct {
	Credentials aws.Credentials
	Region      string
	Identities  []string // verified addresses
	// Refuse is asked before the n-th request, from 1: a status other than 0 is its answer, with that code. Nil =
	// nothing is refused.
	Refuse func(n int) (status int, code string)

	requests atomic.Int64
	mu       sync.Mutex
	sent     []Sent
}

// Sent is a mail that was taken.
type Sent struct {
	From, To, Subject, Text, HTML string
	Headers                       map[string]string
}

// Sent are the mails that were taken, in order.
func (m *Mail) Sent() []Sent { return snapshot(&m.mu, &m.sent) }

// Requests is how often it was asked.
func (m *Mail) Requests() int { return int(m.requests.Load()) }

// maxMail is how large a mail may be, in bytes.
const maxMail = 40 << 20

// ServeHTTP takes SendEmail.
func (m *Mail) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxMail+1))
	status, code := refusal(r, body, m.Credentials, "ses", m.Region, &m.requests, m.Refuse)
	switch {
	case err != nil || len(body) > maxMail:
		refuse(w, http.StatusBadRequest, "BadRequestException")
	case r.Method != http.MethodPost || r.URL.Path != "/v2/email/outbound-emails":
		refuse(w, http.StatusNotFound, "UnknownOperationException")
	case status != 0:
		refuse(w, status, code)
	default:
		m.take(w, body)
	}
}

type sendEmail struct {
	FromEmailAddress string
	Destination      struct{ ToAddresses []string }
	Content          struct {
		Simple *struct {
			Subject mailContent
			Body    struct {
				Text mailContent
				HTML mailContent `json:"Html"`
			}
			Headers []struct{ Name, Value string }
		}
	}
	ConfigurationOverrides struct {
		Tracking struct{ ClickTrackingEnabled, OpenTrackingEnabled string }
	}
}

type mailContent struct{ Data, Charset string }

func (m *Mail) take(w http.ResponseWriter, body []byte) {
	var in sendEmail
	if decode(body, &in) != nil {
		refuse(w, http.StatusBadRequest, "BadRequestException")
		return
	}
	if code := m.wrong(in); code != "" {
		refuse(w, http.StatusBadRequest, code)
		return
	}
	s := in.Content.Simple
	sent := Sent{From: in.FromEmailAddress, To: in.Destination.ToAddresses[0], Subject: s.Subject.Data,
		Text: s.Body.Text.Data, HTML: s.Body.HTML.Data, Headers: map[string]string{}}
	for _, h := range s.Headers {
		sent.Headers[h.Name] = h.Value
	}
	m.mu.Lock()
	m.sent = append(m.sent, sent)
	id := fmt.Sprintf("0102019%09d-000000", len(m.sent))
	m.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]string{"MessageId": id}) // the client is gone if this fails
}

// wrong is the code of what is wrong with a mail; "" = nothing is.
func (m *Mail) wrong(in sendEmail) string {
	s, tracking := in.Content.Simple, in.ConfigurationOverrides.Tracking
	bad := func(c mailContent) bool { return c.Data == "" || c.Charset != "UTF-8" || !utf8.ValidString(c.Data) }
	switch {
	case s == nil || len(in.Destination.ToAddresses) != 1 || !address(in.Destination.ToAddresses[0]):
		return "BadRequestException"
	case !slices.Contains(m.Identities, in.FromEmailAddress):
		return "MailFromDomainNotVerifiedException"
	case tracking.ClickTrackingEnabled != "DISABLED" || tracking.OpenTrackingEnabled != "DISABLED":
		return "TrackedMail" // it would be sent all the same; nobody here wants that
	case bad(s.Subject) || bad(s.Body.Text) || bad(s.Body.HTML) || len(s.Headers) > 15 ||
		strings.ContainsFunc(s.Subject.Data, unicode.IsControl):
		return "BadRequestException"
	}
	for _, h := range s.Headers {
		if h.Name == "" || len(h.Name) > 126 || len(h.Value) > 870 || strings.ContainsFunc(h.Name+h.Value, unprintable) {
			return "BadRequestException"
		}
	}
	return ""
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

// address reports whether a is one address of ASCII.
func address(a string) bool {
	return strings.Count(a, "@") == 1 && !strings.ContainsFunc(a, unprintable) && !strings.ContainsAny(a, ` ,;<>()"`)
}
