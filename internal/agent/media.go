package agent

import (
	"errors"
	"fmt"
	"mime"
	"strings"
)

// MaxMessageMedia is how many media one message may hold.
const MaxMessageMedia = 100

// MaxRequestMedia is how many bytes of media that blobs hold one request to a model carries, before base64. Providers take 20 to 50 MB
// a request, base64 included, and a function has 256 MB of memory.
const MaxRequestMedia = 15_000_000

// maxMediaType bounds a media type, in bytes.
const maxMediaType = 255

// ValidMediaType reports whether s is a media type as image/png or text/plain; charset=utf-8, of at most 255 bytes.
func ValidMediaType(s string) bool {
	kind, params, err := mime.ParseMediaType(s)
	main, sub, both := strings.Cut(kind, "/")
	return err == nil && both && main != "" && sub != "" && len(s) <= maxMediaType && mime.FormatMediaType(kind, params) != ""
}

// Check says what is wrong with media as somebody hands them in; nil = they may be kept. Whether a blob is there, and whether data is
// base64, it does not look at.
func (m Media) Check() error {
	switch {
	case !ValidMediaType(m.MediaType):
		return fmt.Errorf("mediaType: got %.64q, want one such as image/png", m.MediaType)
	case (m.Data == "") == (m.Blob == ""):
		return errors.New("want either data or blob")
	case m.Blob != "" && !ValidDigest(m.Blob):
		return fmt.Errorf("blob: got %.64q, want a SHA-256 in 64 lower-case hex digits", m.Blob)
	default:
		return nil
	}
}

// MediaBlobs are the digests of the blobs that messages name as media, each once, the newest first.
func MediaBlobs(messages []Message) []string {
	var out []string
	seen := map[string]bool{}
	for i := len(messages) - 1; i >= 0; i-- {
		if m, ok := messages[i].Block.(Media); ok && m.Blob != "" && !seen[m.Blob] {
			seen[m.Blob] = true
			out = append(out, m.Blob)
		}
	}
	return out
}

// FitMedia chooses which media by blob one request carries: the newest first, as long as all of them together have at most so many
// bytes. It gives the messages with a text in the place of each of the others, and leaves its argument alone. sizes has the bytes of
// every blob that messages name.
func FitMedia(messages []Message, sizes map[string]int64, most int64) []Message {
	out := append([]Message(nil), messages...)
	left := most
	for i := len(out) - 1; i >= 0; i-- {
		m, ok := out[i].Block.(Media)
		if !ok || m.Blob == "" {
			continue
		}
		if size := sizes[m.Blob]; size > left {
			out[i].Block = Text{Text: textMediaTooLarge(m, size, most)}
		} else {
			left -= size
		}
	}
	return out
}
