package modelretry

import (
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Media are kinds of media that some models take none of.
type Media string

// The kinds of media; "" = no such kind.
const (
	Pictures Media = "pictures"
	Files    Media = "files"
)

var (
	takesNone = regexp.MustCompile(`not support|n[’']t support|unsupported|not enabled|not a multi-?modal|` +
		`no endpoints found that support|only supported by|at most 0 |content must be a string`)
	ofPictures = regexp.MustCompile(`image|vision|multi-?modal|content must be a string`)
	ofFiles    = regexp.MustCompile(`document|\bfiles?\b|pdf`)
)

// RefusedMedia returns the media that a service's message says its model takes none of.
func RefusedMedia(message string) Media {
	message = strings.ToLower(message)
	switch {
	case !takesNone.MatchString(message):
		return ""
	case ofPictures.MatchString(message):
		return Pictures
	case ofFiles.MatchString(message):
		return Files
	}
	return ""
}

// withoutMedia returns the messages with a word in place of each of the media, and whether there are any.
func withoutMedia(messages []run.Message, kind Media) (_ []run.Message, found bool) {
	messages = slices.Clone(messages)
	for i, m := range messages {
		b, ok := m.Block.(run.Media)
		isPicture := strings.HasPrefix(strings.ToLower(b.MediaType), "image/")
		if ok && kind != "" && isPicture == (kind == Pictures) {
			messages[i].Block = run.Text{Text: agent.TextMediaLeftOut(b, "the model takes no "+string(kind))}
			found = true
		}
	}
	return messages, found
}
