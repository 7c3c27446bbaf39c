package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/link"
)

// seen is what a form was made over: the state of the request as its person saw it. A word that is given on another state is given on something that
// the person has not seen, and is not taken. Each word of the person's own changes it, so that a form is used once.
type seen struct {
	Status string `json:"s"`
	Digest string `json:"d"` // of the action, and of the arguments as they are shown
	Mine   int    `json:"m"` // words of the person's own
	Edits  int    `json:"e"` // by whomever
	Tools  int    `json:"t"` // that were decided
	Thread int    `json:"r"` // remarks
}

// stateOf is what somebody sees of a request now. Approvals of others, of the very same action, leave it as it is: they change nothing that one has to
// think about again.
func stateOf(a approval.Approval, by string) seen {
	sum := sha256.Sum256(append([]byte(a.Digest+"\n"), a.Args...))
	s := seen{Status: string(a.Status), Digest: base64.RawURLEncoding.EncodeToString(sum[:12]), Thread: len(a.Thread)}
	for _, d := range a.Decisions {
		if d.By == by {
			s.Mine++
		}
		if d.Action == approval.Edit {
			s.Edits++
		}
	}
	for _, p := range a.Permissions {
		if p.Verdict != "" {
			s.Tools++
		}
	}
	return s
}

// ticket is the hidden field of a form: what it was made over, and a MAC by the link's nonce, which is in no page.
func ticket(l link.Link, s seen) (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("make a form: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(append(formMAC(l, text), text...)), nil
}

// readTicket is what a form was made over; false where no page of this link had it.
func readTicket(l link.Link, field string) (s seen, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(field)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], formMAC(l, raw[sha256.Size:])) {
		return seen{}, false
	}
	return s, json.Unmarshal(raw[sha256.Size:], &s) == nil
}

func formMAC(l link.Link, text []byte) []byte {
	mac := hmac.New(sha256.New, []byte(l.Nonce))
	for _, field := range []string{"countersign form 1", l.ID, l.Tenant, l.Approval, l.To, string(text)} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		mac.Write([]byte(field))
	}
	return mac.Sum(nil)
}

// changes says what has changed since a form was made, for the person who sent it; "" = nothing has.
func (s seen) changes(now seen) string {
	switch {
	case s == now:
		return ""
	case s.Mine != now.Mine && s.Status == now.Status:
		return "You have already answered with this form. This is how the request stands now."
	case s.Status != now.Status:
		return "The request was decided or called off meanwhile. Your answer was not taken."
	case s.Digest != now.Digest || s.Edits != now.Edits:
		return "Somebody changed the arguments meanwhile. Your answer was not taken: read them again and answer anew."
	case s.Tools != now.Tools:
		return "Somebody decided about some of the tools meanwhile. Your answer was not taken: look again and answer anew."
	default:
		return "Somebody wrote about the request meanwhile. Your answer was not taken: read it and answer anew."
	}
}

// The bounds of a form, in bytes and in characters.
const (
	maxForm   = 1 << 20
	MaxNote   = 1000 // so many characters of a note reach the model (C4)
	maxFields = 8
)

// fields are what the forms of a request's page send. Each comes once, and no other does.
var fields = []string{"form", "action", "note", "args", "result", "tool", "text"}

// proofField is where the console's forms hold what proves that they were sent by who may decide.
const proofField = "key"

// readForm reads a form strictly, with the proof or without. Its error is fit to be shown.
func readForm(r *http.Request, proof bool) (map[string]string, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, fmt.Errorf("want a form of this page")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxForm+1))
	if err != nil || len(body) > maxForm {
		return nil, fmt.Errorf("want a form of at most %d bytes", maxForm)
	}
	values, err := url.ParseQuery(string(body))
	if err != nil || len(values) > maxFields {
		return nil, fmt.Errorf("want a form of this page")
	}
	got := map[string]string{}
	for name, all := range values {
		if !slices.Contains(fields, name) && (!proof || name != proofField) || len(all) != 1 {
			return nil, fmt.Errorf("want a form of this page")
		}
		got[name] = strings.ReplaceAll(all[0], "\r\n", "\n") // as browsers send line ends
	}
	for _, name := range []string{"note", "text"} {
		if n := len([]rune(got[name])); n > MaxNote {
			return nil, fmt.Errorf("want at most %d characters, got %d", MaxNote, n)
		}
	}
	return got, nil
}
