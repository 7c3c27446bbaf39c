package people_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/standins"
)

const mailFrom = "approvals@example.com"

var awsKeys = aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET", SessionToken: "SESSION"}

func awsConfig(url string) aws.Config {
	return aws.Config{
		Region: "eu-central-1", Credentials: credentials.StaticCredentialsProvider{Value: awsKeys}, BaseEndpoint: &url,
	}
}

func mailService(t *testing.T, refuse func(n int) (int, string)) (*standins.Mail, *people.SES) {
	t.Helper()
	m := &standins.Mail{Credentials: awsKeys, Region: "eu-central-1", Identities: []string{mailFrom}, Refuse: refuse}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	c, err := people.NewSES(awsConfig(srv.URL+"/"), mailFrom)
	require.NoError(t, err)
	return m, c
}

// sendBy sends a mail by a service.
func sendBy(t *testing.T, sender string, by http.Handler) error {
	t.Helper()
	srv := httptest.NewServer(by)
	t.Cleanup(srv.Close)
	c, err := people.NewSES(awsConfig(srv.URL), sender)
	require.NoError(t, err)
	_, err = c.Send(t.Context(), newMail("x"))
	return err
}

// A mail arrives as it was laid out, for one person, marked as what it is, and the fake refuses it where it would be
// tracked.
func TestC2Send(t *testing.T) {
	s, c := mailService(t, nil)
	require.Equal(t, "email", c.Name())
	m := newMail(`<b>"chair"</b> & é 🙂`)
	ref, err := c.Send(t.Context(), m)
	require.NoError(t, err)
	require.Empty(t, ref, "no mail is changed later")
	want := people.NewMail(m)
	require.Equal(t, []standins.Sent{{
		From: mailFrom, To: "ana@example.com", Subject: "Decision needed: refund of agent clerk", Text: want.Text, HTML: want.HTML,
		Headers: map[string]string{"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All"},
	}}, s.Sent())
	require.Contains(t, want.Text, `<b>"chair"</b> & é 🙂`)

	require.NoError(t, c.Update(t.Context(), ref, m))
	m.Occasion = people.Decided
	_, err = c.Send(t.Context(), m)
	require.NoError(t, err)
	require.Len(t, s.Sent(), 1, "what is decided is not mailed")
}

func TestC2Reaches(t *testing.T) {
	s, c := mailService(t, nil)
	m := newMail("x")
	m.To.Email = "ana@example.com, eve@example.com"
	_, err := c.Send(t.Context(), m)
	require.ErrorContains(t, err, "no address")
	require.NotContains(t, err.Error(), "eve")
	require.Zero(t, s.Requests())
	for _, bad := range []string{"", "nobody", "A <a@example.com>", "a@example.com\r\nX: y"} {
		_, err := people.NewSES(awsConfig("http://127.0.0.1:1"), bad)
		require.ErrorContains(t, err, "want an address", bad)
	}
}

// What may pass is tried again, what will not is not, and no error repeats what SES says.
func TestC2Refused(t *testing.T) {
	first := func(n, status int, code string) func(int) (int, string) {
		return func(i int) (int, string) {
			if i <= n {
				return status, code
			}
			return 0, ""
		}
	}
	for name, c := range map[string]struct {
		refuse func(int) (int, string)
		asked  int
		ok     bool
		code   string
	}{
		"throttled once": {refuse: first(1, 429, "TooManyRequestsException"), asked: 2, ok: true},
		"failing once":   {refuse: first(1, 500, "InternalFailure"), asked: 2, ok: true},
		"always down":    {refuse: first(9, 503, "ServiceUnavailable"), asked: 4, code: "ServiceUnavailable"},
		"rejected":       {refuse: first(9, 400, "MessageRejected"), asked: 1, code: "MessageRejected"},
		"forbidden":      {refuse: first(9, 403, "AccessDeniedException"), asked: 1, code: "AccessDeniedException"},
		"paused":         {refuse: first(9, 400, "SendingPausedException"), asked: 1, code: "SendingPausedException"},
		"a story":        {refuse: first(9, 400, "what s3cret says"), asked: 1},
		"moved":          {refuse: first(9, 307, ""), asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some wait before they ask again
			s, ch := mailService(t, c.refuse)
			_, err := ch.Send(t.Context(), newMail("broken chair"))
			require.Equal(t, c.asked, s.Requests())
			if c.ok {
				require.NoError(t, err)
				require.Len(t, s.Sent(), 1)
				return
			}
			var refused *awssdk.Refusal
			require.True(t, errors.As(err, &refused), "%v", err)
			require.Equal(t, c.code, refused.Code)
			require.NotContains(t, err.Error(), "s3cret")
			require.NotContains(t, err.Error(), "ana@")
			require.ErrorContains(t, err, "aabc")
		})
	}
	t.Run("the answer lost once", func(t *testing.T) {
		lost := false
		s := &standins.Mail{Credentials: awsKeys, Region: "eu-central-1", Identities: []string{mailFrom}}
		require.NoError(t, sendBy(t, mailFrom, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.ServeHTTP(w, r); !lost {
				lost = true
				panic(http.ErrAbortHandler)
			}
		})))
		require.Len(t, s.Sent(), 2, "rather twice than never")
	})
	t.Run("another sender", func(t *testing.T) {
		s, _ := mailService(t, nil)
		require.ErrorContains(t, sendBy(t, "other@example.com", s), "MailFromDomainNotVerifiedException")
	})
	t.Run("no answer to it", func(t *testing.T) {
		empty := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
		require.ErrorContains(t, sendBy(t, mailFrom, empty), "does not say that it took the mail")
	})
}

var _ people.Channel = (*people.SES)(nil)
