package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// contentBlock is a content block of the API.
type contentBlock struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Name      string `json:"name,omitempty"`
	MediaType string `json:"mediaType,omitempty"`
	Data      string `json:"data,omitempty"`
	Blob      string `json:"blob,omitempty"`
}

// userMessage is a message and the files to upload before it, because they are too large to be inline.
type userMessage struct {
	message json.RawMessage
	uploads []upload
}

type upload struct {
	path string
	blob api.Blob
}

// newUserMessage builds a message from a text, files or both. It reads the files and sends nothing.
func newUserMessage(text string, files []string) (m userMessage, err error) {
	if len(files) == 0 {
		m.message, err = json.Marshal(text)
		return m, err
	}
	var blocks []contentBlock
	for _, f := range files {
		b, err := m.attachFile(f)
		if err != nil {
			return userMessage{}, err
		}
		blocks = append(blocks, b)
	}
	if text != "" {
		blocks = append(blocks, contentBlock{Type: "text", Text: text})
	}
	m.message, err = json.Marshal(blocks)
	return m, err
}

// attachFile adds a file: inline if the file is small, else as an upload.
func (m *userMessage) attachFile(path string) (contentBlock, error) {
	f, err := os.Open(path)
	if err != nil {
		return contentBlock{}, usageErrorf("--attach: %v", err)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, api.MaxInline+1))
	if err != nil {
		return contentBlock{}, usageErrorf("--attach: %v", err)
	}
	mediaType := mime.TypeByExtension(filepath.Ext(path))
	if mediaType == "" {
		mediaType = http.DetectContentType(head)
	}
	mediaType, _, _ = strings.Cut(mediaType, ";")
	b := contentBlock{Type: "media", Name: filepath.Base(path), MediaType: mediaType}
	info, err := f.Stat()
	switch {
	case len(head) == 0:
		return b, usageErrorf("--attach %s: the file is empty", path)
	case len(head) <= api.MaxInline:
		b.Data = base64.StdEncoding.EncodeToString(head)
		return b, nil
	case err != nil:
		return b, usageErrorf("--attach: %v", err)
	case !info.Mode().IsRegular(): // the upload reads it again
		return b, usageErrorf("--attach %s: it has more than %d KiB and is no regular file", path, api.MaxInline>>10)
	case info.Size() > store.MaxBlob:
		return b, usageErrorf("--attach %s: the file has %d bytes, want at most %d", path, info.Size(), store.MaxBlob)
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(io.MultiReader(bytes.NewReader(head), f), store.MaxBlob+1))
	switch {
	case err != nil:
		return b, usageErrorf("--attach: %v", err)
	case n > store.MaxBlob: // the file has grown
		return b, usageErrorf("--attach %s: the file has more than %d bytes", path, store.MaxBlob)
	}
	b.Blob = hex.EncodeToString(h.Sum(nil))
	m.uploads = append(m.uploads, upload{path, api.Blob{MediaType: mediaType, Bytes: n, SHA256: b.Blob}})
	return b, nil
}

// uploadFiles uploads the files of a message. Repeating an upload is harmless.
func (s *session) uploadFiles(ctx context.Context, uploads []upload) error {
	for _, u := range uploads {
		s.p.logEvent("upload", "%s, %d bytes", line(u.path), u.blob.Bytes)
		_, err := callAPI(ctx, s, func(c *api.Client) (string, error) {
			return c.Upload(ctx, u.blob, func() (io.ReadCloser, error) { return os.Open(u.path) })
		})
		switch {
		case errors.Is(err, api.ErrFile):
			return usageErrorf("--attach %s: %w", u.path, err)
		case err != nil:
			return fmt.Errorf("--attach %s: %w", u.path, err)
		}
	}
	return nil
}
