package builtin

import (
	"bytes"
	"strings"
)

// sniffed is how many bytes isPicture looks at.
const sniffed = 16

// isPicture reports whether a file that begins so is a picture tesseract reads; a file's name says nothing. It looks at
// the signature alone: whether the rest is sound is tesseract's to find out.
func isPicture(head []byte) bool {
	for _, signature := range []string{"\x89PNG\r\n\x1a\n", "\xFF\xD8\xFF", "GIF87a", "GIF89a", "BM", "II*\x00", "MM\x00*"} {
		if strings.HasPrefix(string(head), signature) {
			return true
		}
	}
	return bytes.HasPrefix(head, []byte("RIFF")) && len(head) >= 12 && string(head[8:12]) == "WEBP"
}
