package mail

import (
	"context"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
)

// headers are those of every mail beside its subject and addresses: no out-of-office answers it (RFC 3834).
var headers = [][2]string{{"Auto-Submitted", "auto-generated"}, {"X-Auto-Response-Suppress", "All"}}

// channel is what every channel of mails has. A mail that was sent stays as it is; its page says what became of the
// request.
type channel struct{}

// Name implements notify.Channel.
func (channel) Name() string { return "email" }

// Reaches implements notify.Channel: p has an address that is one and nothing else.
func (channel) Reaches(p person.Person) bool { return validAddress(p.Email) }

// Update implements notify.Channel.
func (channel) Update(context.Context, string, notify.Message) error { return nil }

// newMail returns the mail of a message; false = there is none, since what is decided is not mailed.
func (c channel) newMail(m notify.Message) (Mail, bool, error) {
	if m.Occasion == notify.Decided {
		return Mail{}, false, nil
	}
	if !c.Reaches(m.To) {
		return Mail{}, false, fmt.Errorf("mail request %s: the person has no address", m.Approval.ID)
	}
	return New(m), true, nil
}

// validAddress reports whether a is one mail address and nothing else: no name, no second one, nothing that is no
// ASCII. SES takes no others.
func validAddress(a string) bool {
	const atext = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-/=?^_`{|}~."
	const ldh = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."
	local, domain, ok := strings.Cut(a, "@")
	return ok && len(a) <= 254 && isDotAtom(local) && len(local) <= 64 && strings.Trim(local, atext) == "" &&
		isDotAtom(domain) && strings.Contains(domain, ".") && strings.Trim(domain, ldh) == ""
}

// isDotAtom reports whether s is words with one dot between any two.
func isDotAtom(s string) bool {
	return s != "" && s[0] != '.' && s[len(s)-1] != '.' && !strings.Contains(s, "..")
}
