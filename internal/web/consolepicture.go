package web

import (
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// pictureTypes are the types of files that are shown as pictures. SVG is a document, with links and scripts.
var pictureTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// MaxPicture is the size in bytes of a picture that is shown: a function's answer has 6 MB, in base64.
const MaxPicture = 4 << 20

// pictures are the paths of pictures: a run, and the number of the message.
var pictures = regexp.MustCompile(`^/runs/(r[a-z2-7]{25})/pictures/([1-9][0-9]{0,8})$`)

// servePicture writes the picture of a message, if its bytes are one of pictureTypes.
func (c *console) servePicture(w http.ResponseWriter, r *http.Request) {
	of := pictures.FindStringSubmatch(r.URL.Path)
	all, err := c.Conversation(r.Context(), of[1])
	var data []byte
	if n, _ := strconv.Atoi(of[2]); err == nil && n <= len(all) {
		switch m, _ := all[n-1].Block.(run.Media); {
		case m.Data != "":
			data, err = base64.StdEncoding.DecodeString(m.Data)
		case m.Blob != "" && c.Blob != nil:
			data, err = c.Blob(r.Context(), m.Blob)
		}
	}
	kind := http.DetectContentType(data)
	if errors.Is(err, store.ErrNoBlob) || err == nil && (!slices.Contains(pictureTypes, kind) || len(data) > MaxPicture) {
		err = errNoPage
	}
	if err != nil {
		c.renderPage(w, r, "", nil, err)
		return
	}
	c.setSecurityHeaders(w.Header())
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(data) // the client is gone if this fails
}
