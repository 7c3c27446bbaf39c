package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wneessen/go-mail"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
)

// OutboxDir is the name of the directory of mails in a store directory.
const OutboxDir = "outbox"

// outboxFrom is who the mails of an Outbox are from. The domain is reserved: nothing can be sent to it.
const outboxFrom = "countersign@localhost.invalid"

// Outbox is the mail of a laptop: it writes what would be sent into a directory, one file a mail, in the form that
// every mail program opens (.eml). Nothing leaves the machine. The directory is made with the first mail. Safe for
// concurrent use.
type Outbox struct {
	mailChannel
	Path  string // of the directory
	Clock clock.Clock
}

// Send implements Channel. The file is there whole or not at all, and only its owner may read it. What is
// decided is not mailed.
func (c Outbox) Send(ctx context.Context, m Message) (string, error) {
	text, ok, err := c.newMail(m)
	if err = cmp.Or(err, ctx.Err()); !ok || err != nil {
		return "", err
	}
	now := c.Clock.Now()
	name, err := mailFileName(m, now)
	if err != nil {
		return "", fmt.Errorf("mail request: %w", err)
	}
	msg, err := newMIMEMessage(m, text, now)
	if err == nil {
		err = c.write(name, msg)
	}
	if err != nil {
		return "", fmt.Errorf("mail request %s: %w", m.Approval.ID, err)
	}
	return "", nil
}

// mailFileName is when, about what, why and to whom.
func mailFileName(m Message, now time.Time) (string, error) {
	to, err := policy.ParsePrincipal(m.To.ID)
	if err != nil || to.ID != m.To.ID {
		return "", fmt.Errorf("%.80q is no person's id", m.To.ID)
	}
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	if m.Approval.ID == "" || len(m.Approval.ID) > 80 || strings.Trim(m.Approval.ID+string(m.Occasion), plain) != "" {
		return "", fmt.Errorf("%.80q is no request's id", m.Approval.ID)
	}
	who := strings.ReplaceAll(to.ID, ":", "_")
	return fmt.Sprintf("%s-%s-%s-%s.eml", now.UTC().Format("20060102T150405.000"), m.Approval.ID, m.Occasion, who), nil
}

func (c Outbox) write(name string, msg *mail.Msg) error {
	if err := os.MkdirAll(c.Path, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(c.Path, ".mail-*")
	if err != nil {
		return err
	}
	_, err = msg.WriteTo(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(c.Path, name))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what went wrong first is told
	}
	return err
}

func newMIMEMessage(m Message, text Mail, now time.Time) (*mail.Msg, error) {
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := errors.Join(msg.From(outboxFrom), msg.To(m.To.Email)); err != nil {
		return nil, err
	}
	msg.SetDateWithValue(now.UTC())
	msg.SetMessageIDWithValue(fmt.Sprintf("%s.%s.%d@localhost.invalid", m.Approval.ID, m.Occasion, now.UnixNano()))
	msg.Subject(text.Subject)
	for _, h := range mailHeaders {
		msg.SetGenHeader(mail.Header(h[0]), h[1])
	}
	msg.SetBodyString(mail.TypeTextPlain, text.Text)
	msg.AddAlternativeString(mail.TypeTextHTML, text.HTML)
	return msg, nil
}
