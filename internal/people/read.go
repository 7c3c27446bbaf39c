package people

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// The bounds of a document.
const (
	maxDocument = 1 << 20 // bytes
	maxName     = 200     // characters
	maxEmail    = 254     // bytes
)

// ReadError says what is wrong with a document of people. It quotes ids and no addresses.
type ReadError struct {
	Path []string // the keys that lead there; none = the document as a whole
	Line int      // from 1
	Text string   // what was got and what is wanted
}

// Key is the path as people write it: tenants.acme.user:ana.email.
func (e *ReadError) Key() string { return strings.Join(e.Path, ".") }

func (e *ReadError) Error() string {
	if len(e.Path) == 0 {
		return fmt.Sprintf("line %d: %s", e.Line, e.Text)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Key(), e.Text)
}

// Read reads a document of people by tenant, and of the Slack workspaces that are tenants':
//
//	{
//	  "tenants": {
//	    "acme": {
//	      "user:ana": {"groups": ["group:finance"], "name": "Ana", "email": "ana@example.com",
//	                   "slack": "U012ABCDEF", "notify": ["slack", "email"]},
//	      "user:ben": ["group:operators"]
//	    }
//	  },
//	  "slack": {"T012ABCDEF": "acme"}
//	}
//
// All keys of a person may be left out; a list alone is the groups. Its error is a *ReadError: unknown and doubled
// keys, ids that are no principals, a Slack id that two people of a tenant have, a channel that does not reach the
// person, a workspace of a tenant without people.
func Read(data []byte) (*Book, error) {
	b := &Book{tenants: map[string]map[string]Person{}, teams: map[string]string{}}
	err := b.read(data)
	if bad, ok := errors.AsType[*ReadError](err); ok && bad.Line == 0 {
		bad.Line = lineOf(data, bad.Path)
	}
	return b, err
}

func (b *Book) read(data []byte) error {
	var doc peopleDocument
	if err := decode(data, nil, &doc); err != nil {
		return err
	}
	for _, tenant := range slices.Sorted(maps.Keys(doc.Tenants)) {
		if !agent.ValidTenant(tenant) {
			return readError([]string{"tenants", tenant}, "want a tenant's name: ^[a-z0-9][a-z0-9-]{0,39}$")
		}
		if err := b.readPeople(tenant, doc.Tenants[tenant]); err != nil {
			return err
		}
	}
	for _, team := range slices.Sorted(maps.Keys(doc.Slack)) {
		at, tenant := []string{"slack", team}, doc.Slack[team]
		if !isSlackID(team, "TE") {
			return readError(at, "want a workspace's id, as T012ABCDEF")
		}
		if _, ok := b.tenants[tenant]; !ok {
			return readError(at, "got %q, want a tenant that has people here", tenant)
		}
		b.teams[team] = tenant
	}
	return nil
}

// peopleDocument is a document of people: by tenant and id, and the tenants of workspaces.
type peopleDocument struct {
	Tenants map[string]map[string]json.RawMessage `json:"tenants"`
	Slack   map[string]string                     `json:"slack"`
}

// decode decodes what stands under a path of a document.
func decode(raw json.RawMessage, at []string, v any) error {
	err := jsonx.DecodeStrictWithin(raw, jsonx.JSONLimits{Bytes: maxDocument, Depth: 8}, v)
	bad, ok := errors.AsType[*jsonx.JSONError](err)
	switch {
	case !ok:
		return err
	case bad.Offset > 0: // it is no JSON
		line := 1 + bytes.Count(raw[:min(bad.Offset, len(raw))], []byte("\n"))
		return &ReadError{Path: at, Line: line, Text: err.Error()}
	}
	below, err := jsonx.ParsePointer(bad.Pointer)
	return cmp.Or(err, readError(slices.Concat(at, below), "want %s", bad.Want))
}

func (b *Book) readPeople(tenant string, people map[string]json.RawMessage) error {
	at := []string{"tenants", tenant}
	b.tenants[tenant] = map[string]Person{}
	owner := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(people)) {
		here := childPath(at, id)
		p, err := readPerson(id, people[id], here)
		if err != nil {
			return err
		}
		if other := owner[p.Slack]; p.Slack != "" && other != "" {
			return readError(childPath(here, "slack"), "it is that of %s as well: want one of the person's own", other)
		}
		owner[p.Slack] = id
		b.tenants[tenant][id] = p
	}
	return nil
}

// Form is what a document says of a person.
type Form struct {
	Groups []string `json:"groups,omitempty"`
	Name   *string  `json:"name,omitempty"`
	Email  *string  `json:"email,omitempty"`
	Slack  *string  `json:"slack,omitempty"`  // the member's id in the workspace
	Notify []string `json:"notify,omitempty"` // the channels to use, in order; none = every one that reaches them
}

// readPerson reads what stands under a person's id: a Form, the groups alone, or nothing.
func readPerson(id string, raw json.RawMessage, at []string) (Person, error) {
	if !run.IsPrincipal("user:", id) {
		return Person{}, readError(at, "want user:NAME")
	}
	var form Form
	var err error
	groups := at
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		err = decode(raw, at, &form.Groups)
	} else if groups = childPath(at, "groups"); len(raw) > 0 {
		err = decode(raw, at, &form)
	}
	p := Person{ID: id, Groups: form.Groups, Notify: form.Notify}
	if err != nil {
		return p, err
	}
	for _, g := range p.Groups {
		if !run.IsPrincipal("group:", g) {
			return p, readError(groups, "got %q, want a list of group:NAME", agent.Bounded(g))
		}
	}
	for _, key := range []struct {
		name     string
		from, to *string
		ok       func(string) bool
		want     string
	}{
		{"name", form.Name, &p.Name, isName, fmt.Sprintf("want 1 to %d characters that can be seen", maxName)},
		{"email", form.Email, &p.Email, ValidEmail, "want one address, as ana@example.com"},
		{"slack", form.Slack, &p.Slack, ValidSlack, "want a member's id, as U012ABCDEF"},
	} {
		if key.from == nil {
			continue
		}
		if *key.to = *key.from; !key.ok(*key.to) {
			return p, readError(childPath(at, key.name), "%s", key.want)
		}
	}
	at = childPath(at, "notify")
	for i, name := range p.Notify {
		switch {
		case name != Email && name != Slack:
			return p, readError(at, "got %q, want %s or %s", agent.Bounded(name), Email, Slack)
		case slices.Contains(p.Notify[:i], name):
			return p, readError(at, "%s is named twice", name)
		case name == Email && p.Email == "" || name == Slack && p.Slack == "":
			return p, readError(at, "got %s, and the person has no %s here", name, name)
		}
	}
	return p, nil
}

// isName reports whether s is short and has no character that would change what stands around it.
func isName(s string) bool {
	bad := func(r rune) bool { return !unicode.IsPrint(r) }
	return strings.TrimSpace(s) != "" && utf8.RuneCountInString(s) <= maxName && !strings.ContainsFunc(s, bad)
}

// ValidEmail reports whether s is one mail address and nothing else: no name, no second one, nothing that is no ASCII.
// SES takes no others.
func ValidEmail(s string) bool {
	local, domain, ok := strings.Cut(s, "@")
	return ok && len(s) <= maxEmail && len(local) <= 64 && isDotAtom(local, "!#$%&'*+-/=?^_`{|}~.") &&
		isDotAtom(domain, "-.") && strings.Contains(domain, ".")
}

// isDotAtom reports whether s is words of letters, digits and signs, with one dot between any two.
func isDotAtom(s, signs string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && s[0] != '.' && s[len(s)-1] != '.' && !strings.Contains(s, "..") &&
		strings.Trim(s, letters+signs) == ""
}

// ValidSlack reports whether s is the id of a member of a workspace.
func ValidSlack(s string) bool { return isSlackID(s, "UW") }

// isSlackID reports whether s is one of Slack's ids: a letter of first, then capitals and digits.
func isSlackID(s, first string) bool {
	if len(s) < 2 || len(s) > 40 || !strings.ContainsRune(first, rune(s[0])) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') })
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null" }

func childPath(at []string, key string) []string { return append(slices.Clip(at), key) }

func readError(at []string, format string, args ...any) error {
	return &ReadError{Path: at, Text: fmt.Sprintf(format, args...)}
}

// lineOf is the line of the key at the end of a path in a JSON text that was read already, or of the last key that
// leads there.
func lineOf(data []byte, path []string) int {
	d := json.NewDecoder(bytes.NewReader(data))
	at := int64(0)
	if _, err := d.Token(); err != nil || len(path) == 0 {
		return 1
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		if key != path[0] {
			var skipped json.RawMessage
			if d.Decode(&skipped) != nil {
				break
			}
			continue
		}
		at = d.InputOffset()
		if path = path[1:]; len(path) == 0 {
			break
		}
		if open, err := d.Token(); err != nil || open != json.Delim('{') {
			break
		}
	}
	return 1 + bytes.Count(data[:at], []byte("\n"))
}
