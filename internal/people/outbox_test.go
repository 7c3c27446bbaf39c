package people_test

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people"
)

func oddMessage() people.Message {
	m := newMail("--=_countersign\r\n.\n<b>&=3D é 🙂")
	m.Shown.Title = text("réfund of agent clerk")
	return m
}

// A mail is a file that mail programs open, with both halves as they were laid out; only its owner may read it.
func TestC2Outbox(t *testing.T) {
	c := people.Outbox{Path: filepath.Join(t.TempDir(), "home", "outbox"), Clock: clock.System()}
	m := oddMessage()
	ref, err := c.Send(t.Context(), m)
	require.NoError(t, err)
	require.Empty(t, ref)
	require.NoError(t, c.Update(t.Context(), ref, m))
	files, err := filepath.Glob(filepath.Join(c.Path, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Regexp(t, `/\d{8}T\d{6}\.\d{3}-aabc-asked-user_ana\.eml$`, filepath.ToSlash(files[0]))
	if runtime.GOOS != "windows" {
		info, err := os.Stat(files[0])
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	data, err := os.ReadFile(files[0])
	require.NoError(t, err)
	read, err := netmail.ReadMessage(bytes.NewReader(data))
	require.NoError(t, err)
	subject, err := new(mime.WordDecoder).DecodeHeader(read.Header.Get("Subject"))
	require.NoError(t, err)
	require.Equal(t, "Decision needed: réfund of agent clerk", subject)
	to, err := read.Header.AddressList("To")
	require.NoError(t, err)
	require.Equal(t, []*netmail.Address{{Address: "ana@example.com"}}, to)
	require.Empty(t, read.Header.Get("Bcc"))
	require.Equal(t, "auto-generated", read.Header.Get("Auto-Submitted"))
	_, err = read.Header.Date()
	require.NoError(t, err)

	kind, params, err := mime.ParseMediaType(read.Header.Get("Content-Type"))
	require.NoError(t, err)
	require.Equal(t, "multipart/alternative", kind)
	want := people.NewMail(m)
	parts := multipart.NewReader(read.Body, params["boundary"])
	for _, half := range []string{want.Text, want.HTML} {
		p, err := parts.NextRawPart()
		require.NoError(t, err)
		got, err := io.ReadAll(quotedprintable.NewReader(p))
		require.NoError(t, err)
		require.Equal(t, unixLines(half), unixLines(string(got)))
	}
	_, err = parts.NextPart()
	require.ErrorIs(t, err, io.EOF)
}

// unixLines are without their carriage returns, which mails have and texts do not.
func unixLines(s string) string {
	return string(bytes.ReplaceAll([]byte(s), []byte("\r\n"), []byte("\n")))
}

// Nothing that a request or a person is called leads out of the directory or into a header, and what fails leaves nothing behind.
func TestC2OutboxRefuses(t *testing.T) {
	for name, change := range map[string]func(*people.Message){
		"a request's id":  func(m *people.Message) { m.Approval.ID = "../../x" },
		"no id":           func(m *people.Message) { m.Approval.ID = "" },
		"a person's id":   func(m *people.Message) { m.To.ID = "user:../x" },
		"an address":      func(m *people.Message) { m.To.Email = "ana@example.com\r\nBcc: eve@example.com" },
		"no address":      func(m *people.Message) { m.To.Email = "" },
		"an odd occasion": func(m *people.Message) { m.Occasion = "../asked" },
	} {
		c := people.Outbox{Path: filepath.Join(t.TempDir(), "outbox"), Clock: clock.System()}
		m := oddMessage()
		change(&m)
		_, err := c.Send(t.Context(), m)
		require.Error(t, err, name)
		require.NoDirExists(t, c.Path, name)
	}
	m := oddMessage()
	m.Occasion = people.Decided
	c := people.Outbox{Path: filepath.Join(t.TempDir(), "outbox"), Clock: clock.System()}
	_, err := c.Send(t.Context(), m)
	require.NoError(t, err)
	require.NoDirExists(t, c.Path, "what is decided is not mailed")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = people.Outbox{Path: file, Clock: clock.System()}.Send(t.Context(), oddMessage())
	require.Error(t, err)
}
