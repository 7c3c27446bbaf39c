// Package outbox is the mail of a laptop: what would be sent is written into a directory, one file a mail, in the form that every mail program
// opens (.eml). Nothing leaves the machine.
package outbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/letter"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
)

// Dir is the name of the directory in a store directory.
const Dir = "outbox"

// from is who such mails are from. The domain is reserved: nothing can be sent to it.
const from = "countersign@localhost.invalid"

// boundary stands between the parts of a mail. No part has it: what is quoted-printable has no =_.
const boundary = "=_countersign"

// Channel writes mails into a directory, which is made with the first one. Safe for concurrent use.
type Channel struct {
	Path  string // of the directory
	Clock clock.Clock
}

// Name implements notify.Channel.
func (Channel) Name() string { return letter.MailChannel }

// Reaches implements notify.Channel.
func (Channel) Reaches(p person.Person) bool { return letter.ValidAddress(p.Email) }

// Update implements notify.Channel: a mail stays as it is.
func (Channel) Update(context.Context, string, notify.Message) error { return nil }

// Send implements notify.Channel. The file is there whole or not at all, and only its owner may read it. What is decided is not mailed.
func (c Channel) Send(ctx context.Context, m notify.Message) (string, error) {
	if m.Occasion == notify.Decided {
		return "", nil
	}
	if !c.Reaches(m.To) {
		return "", fmt.Errorf("mail request %s: the person has no address", m.Approval.ID)
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	now := c.Clock.Now()
	name, err := fileName(m, now)
	if err != nil {
		return "", fmt.Errorf("mail request: %w", err)
	}
	data, err := render(m, now)
	if err != nil {
		return "", fmt.Errorf("mail request %s: %w", m.Approval.ID, err)
	}
	if err := c.write(name, data); err != nil {
		return "", fmt.Errorf("mail request %s: %w", m.Approval.ID, err)
	}
	return "", nil
}

// fileName is when, about what, why and to whom.
func fileName(m notify.Message, now time.Time) (string, error) {
	to, err := agent.ParsePrincipal(m.To.ID)
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

// write puts the file into its place by renaming it.
func (c Channel) write(name string, data []byte) (err error) {
	if err := os.MkdirAll(c.Path, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(c.Path, ".mail-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
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

// render is a mail as it travels (RFC 5322, RFC 2046).
func render(m notify.Message, now time.Time) ([]byte, error) {
	mail := letter.Of(m).AsMail()
	var b bytes.Buffer
	head := [][2]string{
		{"Date", now.UTC().Format(time.RFC1123Z)}, {"From", from}, {"To", m.To.Email}, {"Subject", mime.QEncoding.Encode("utf-8", mail.Subject)},
		{"Message-ID", fmt.Sprintf("<%s.%s.%d@localhost.invalid>", m.Approval.ID, m.Occasion, now.UnixNano())},
	}
	for _, h := range letter.Headers() {
		head = append(head, [2]string{h.Name, h.Value})
	}
	head = append(head, [2]string{"MIME-Version", "1.0"}, [2]string{"Content-Type", `multipart/alternative; boundary="` + boundary + `"`})
	for _, h := range head {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	for _, part := range [][2]string{{"text/plain", mail.Text}, {"text/html", mail.HTML}} {
		b.WriteString("\r\n--" + boundary + "\r\nContent-Type: " + part[0] + "; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n")
		w := quotedprintable.NewWriter(&b)
		if _, err := io.WriteString(w, part[1]); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
	}
	b.WriteString("\r\n--" + boundary + "--\r\n")
	return b.Bytes(), nil
}
