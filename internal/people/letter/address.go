package letter

import "strings"

// MailChannel is the name of the channel that carries mails.
const MailChannel = "email"

// Header is a header of a mail.
type Header struct{ Name, Value string }

// Headers are those of every mail beside its subject and addresses: no out-of-office answers it (RFC 3834).
func Headers() []Header {
	return []Header{{"Auto-Submitted", "auto-generated"}, {"X-Auto-Response-Suppress", "All"}}
}

// ValidAddress reports whether a is one mail address and nothing else: no name, no second one, nothing that is no ASCII. SES takes no others.
func ValidAddress(a string) bool {
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
