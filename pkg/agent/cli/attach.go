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

// contentBlock is a content block as the API takes it.
type contentBlock struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Name      string `json:"name,omitempty"`
	MediaType string `json:"mediaType,omitempty"`
	Data      string `json:"data,omitempty"`
	Blob      string `json:"blob,omitempty"`
}

// userMessage is a message, and the files that have to be uploaded before it is sent because they do not fit into it.
type userMessage struct {
	message json.RawMessage
	uploads []upload
}

// upload is a file and what was found in it.
type upload struct {
	path string
	blob api.Blob
}

// newUserMessage is what a user says: a text, files, or both. The files are read, and nothing is sent.
func newUserMessage(text string, files []string) (userMessage, error) {
	if len(files) == 0 {
		raw, err := json.Marshal(text)
		return userMessage{message: raw}, err
	}
	var s userMessage
	var blocks []contentBlock
	for _, f := range files {
		b, err := s.attachFile(f)
		if err != nil {
			return userMessage{}, err
		}
		blocks = append(blocks, b)
	}
	if text != "" {
		blocks = append(blocks, contentBlock{Type: "text", Text: text})
	}
	var err error
	s.message, err = json.Marshal(blocks)
	return s, err
}

// attachFile reads a file: a small one whole, of a larger one what an upload needs to know of it.
func (s *userMessage) attachFile(path string) (contentBlock, error) {
	f, err := os.Open(path)
	if err != nil {
		return contentBlock{}, usageErrorf("--attach: %v", err)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, api.MaxInline+1))
	if err != nil {
		return contentBlock{}, usageErrorf("--attach: %v", err)
	}
	b := contentBlock{Type: "media", Name: filepath.Base(path), MediaType: detectMediaType(path, head)}
	switch {
	case len(head) == 0:
		return contentBlock{}, usageErrorf("--attach %s: the file is empty", path)
	case len(head) <= api.MaxInline:
		b.Data = base64.StdEncoding.EncodeToString(head)
		return b, nil
	}
	u, err := hashFile(f, path, head, b.MediaType)
	b.Blob = u.blob.SHA256
	s.uploads = append(s.uploads, u)
	return b, err
}

// hashFile reads the rest of a file behind its head. It has to be one that can be read again.
func hashFile(f *os.File, path string, head []byte, mediaType string) (upload, error) {
	switch info, err := f.Stat(); {
	case err != nil:
		return upload{}, usageErrorf("--attach: %v", err)
	case !info.Mode().IsRegular():
		return upload{}, usageErrorf("--attach %s: it has more than %d KiB and is no regular file", path, api.MaxInline>>10)
	case info.Size() > store.MaxBlob:
		return upload{}, usageErrorf("--attach %s: the file has %d bytes, want at most %d", path, info.Size(), store.MaxBlob)
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(io.MultiReader(bytes.NewReader(head), f), store.MaxBlob+1))
	switch {
	case err != nil:
		return upload{}, usageErrorf("--attach: %v", err)
	case n > store.MaxBlob: // it has grown
		return upload{}, usageErrorf("--attach %s: the file has more than %d bytes", path, store.MaxBlob)
	}
	return upload{path, api.Blob{MediaType: mediaType, Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}}, nil
}

// detectMediaType goes by the name, else by the content.
func detectMediaType(file string, data []byte) string {
	t := mime.TypeByExtension(filepath.Ext(file))
	if t == "" {
		t = http.DetectContentType(data)
	}
	t, _, _ = strings.Cut(t, ";")
	return t
}

// uploadFiles uploads what a message names. The same file twice, or again after the engine moved, is no harm.
func (s *session) uploadFiles(ctx context.Context, uploads []upload) error {
	for _, u := range uploads {
		s.p.logLine("%-8s %s, %d bytes", "upload", line(u.path), u.blob.Bytes)
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
