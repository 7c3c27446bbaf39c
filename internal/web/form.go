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

// formState is the state of a request that a form was made for. A form is refused if the request has changed since.
// The person's own decisions change it, so a form works once.
type formState struct {
	Status string `json:"s"`
	Digest string `json:"d"` // of the action and the shown arguments
	Mine   int    `json:"m"` // decisions of the person
	Edits  int    `json:"e"` // edits by anybody
	Tools  int    `json:"t"` // decided tools
	Thread int    `json:"r"` // remarks
}

// newFormState returns the current state of a request for one person. Approvals of others leave it unchanged, since
// they change nothing about the decision.
func newFormState(a approval.Approval, by string) formState {
	sum := sha256.Sum256(append([]byte(a.Digest+"\n"), a.Args...))
	s := formState{Status: string(a.Status), Digest: base64.RawURLEncoding.EncodeToString(sum[:12]),
		Thread: len(a.Thread)}
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

// signForm returns the hidden field of a form: its state, and a MAC with the link's nonce, which is in no page.
func signForm(l link.Link, s formState) (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("make a form: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(append(formMAC(l, text), text...)), nil
}

// verifyForm returns the state in a form's hidden field. It returns false if no page of this link has made the field.
func verifyForm(l link.Link, field string) (s formState, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(field)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], formMAC(l, raw[sha256.Size:])) {
		return formState{}, false
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

// describeChanges tells the person what has changed since the form was made; "" = nothing.
func (s formState) describeChanges(now formState) string {
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

// Bounds of a form, in bytes and in characters.
const (
	maxForm   = 1 << 20
	MaxNote   = 1000 // so many characters of a note reach the model (C4)
	maxFields = 8    // beside those of arguments
)

// fields are the allowed form fields, each at most once.
var fields = []string{"form", "action", "note", "args", "result", "tool", "text", "code", "back"}

// proofField is the field with the proof in the console's forms.
const proofField = "key"

// readForm reads a form strictly, with or without the proof field. People may see its error.
func readForm(r *http.Request, proof bool) (map[string]string, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/x-www-form-urlencoded" {
		return nil, fmt.Errorf("want a form of this page")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxForm+1))
	if err != nil || len(body) > maxForm {
		return nil, fmt.Errorf("want a form of at most %d bytes", maxForm)
	}
	values, err := url.ParseQuery(string(body))
	if err != nil || len(values) > maxFields+maxMembers {
		return nil, fmt.Errorf("want a form of this page")
	}
	got := map[string]string{}
	known := 0
	for name, all := range values {
		member := strings.HasPrefix(name, fieldPrefix)
		if !member {
			known++
		}
		ours := member || slices.Contains(fields, name) || proof && name == proofField
		if !ours || len(all) != 1 || known > maxFields {
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
