package person

import (
	"bytes"
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
	if _, err := jsonx.CompactJSON(data, jsonx.JSONLimits{Bytes: maxDocument, Depth: 8}); err != nil {
		line := 1
		if at, ok := errors.AsType[*jsonx.JSONError](err); ok {
			line += bytes.Count(data[:min(at.Offset, len(data))], []byte("\n"))
		}
		return nil, &ReadError{Line: line, Text: err.Error()}
	}
	b := &Book{tenants: map[string]map[string]Person{}, teams: map[string]string{}}
	if err := b.read(data); err != nil {
		if bad, ok := errors.AsType[*ReadError](err); ok {
			bad.Line = lineOf(data, bad.Path)
		}
		return nil, err
	}
	return b, nil
}

func (b *Book) read(data []byte) error {
	doc, err := readMembers(data, nil, "tenants", "slack")
	if err != nil {
		return err
	}
	tenants, err := readMembers(doc["tenants"], []string{"tenants"})
	if err != nil {
		return err
	}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		at := []string{"tenants", tenant}
		if !agent.ValidTenant(tenant) {
			return readError(at, "want a tenant's name: ^[a-z0-9][a-z0-9-]{0,39}$")
		}
		people, err := readMembers(tenants[tenant], at)
		if err == nil {
			err = b.readPeople(tenant, people)
		}
		if err != nil {
			return err
		}
	}
	teams, err := readMembers(doc["slack"], []string{"slack"})
	if err != nil {
		return err
	}
	for _, team := range slices.Sorted(maps.Keys(teams)) {
		at := []string{"slack", team}
		if !isSlackID(team, "TE") {
			return readError(at, "want a workspace's id, as T012ABCDEF")
		}
		tenant, err := readText(teams[team], at)
		if err != nil {
			return err
		}
		if _, ok := b.tenants[tenant]; !ok {
			return readError(at, "got %q, want a tenant that has people here", tenant)
		}
		b.teams[team] = tenant
	}
	return nil
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

// readPerson reads what stands under a person's id: an object, the groups alone, or nothing.
func readPerson(id string, raw json.RawMessage, at []string) (Person, error) {
	p := Person{ID: id}
	if !run.IsPrincipal("user:", id) {
		return p, readError(at, "want user:NAME")
	}
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		p.Groups, err = readGroups(raw, at)
		return p, err
	}
	form, err := readMembers(raw, at, "groups", "name", "email", "slack", "notify")
	if err != nil {
		return p, err
	}
	if p.Groups, err = readGroups(form["groups"], childPath(at, "groups")); err != nil {
		return p, err
	}
	for _, key := range []struct {
		name string
		to   *string
		ok   func(string) bool
		want string
	}{
		{"name", &p.Name, isName, fmt.Sprintf("want 1 to %d characters that can be seen", maxName)},
		{"email", &p.Email, isEmail, "want one address, as ana@example.com"},
		{"slack", &p.Slack, func(s string) bool { return isSlackID(s, "UW") }, "want a member's id, as U012ABCDEF"},
	} {
		if isNull(form[key.name]) {
			continue
		}
		if *key.to, err = readText(form[key.name], childPath(at, key.name)); err != nil {
			return p, err
		}
		if !key.ok(*key.to) {
			return p, readError(childPath(at, key.name), "%s", key.want)
		}
	}
	at = childPath(at, "notify")
	if p.Notify, err = readTexts(form["notify"], at); err != nil {
		return p, err
	}
	for i, name := range p.Notify {
		switch {
		case name != Email && name != Slack:
			return p, readError(at, "got %q, want %s or %s", agent.Bounded(name), Email, Slack)
		case slices.Contains(p.Notify[:i], name):
			return p, readError(at, "%s is named twice", name)
		}
	}
	for _, name := range p.Notify {
		if name == Email && p.Email == "" || name == Slack && p.Slack == "" {
			return p, readError(at, "got %s, and the person has no %s here", name, name)
		}
	}
	return p, nil
}

func readGroups(raw json.RawMessage, at []string) ([]string, error) {
	list, err := readTexts(raw, at)
	for _, g := range list {
		if err == nil && !run.IsPrincipal("group:", g) {
			err = readError(at, "got %q, want a list of group:NAME", agent.Bounded(g))
		}
	}
	return list, err
}

// isName reports whether s is short and has no character that would change what stands around it.
func isName(s string) bool {
	bad := func(r rune) bool { return !unicode.IsPrint(r) }
	return strings.TrimSpace(s) != "" && utf8.RuneCountInString(s) <= maxName && !strings.ContainsFunc(s, bad)
}

// isEmail reports whether s is one plain address: no display name, no list, nothing that ends a line.
func isEmail(s string) bool {
	local, domain, ok := strings.Cut(s, "@")
	plain := func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`@,;:<>()[]\"`, r) }
	return ok && local != "" && domain != "" && len(s) <= maxEmail && !strings.ContainsFunc(local, plain) &&
		!strings.ContainsFunc(domain, plain)
}

// isSlackID reports whether s is one of Slack's ids: a letter of first, then capitals and digits.
func isSlackID(s, first string) bool {
	if len(s) < 3 || len(s) > 40 || !strings.ContainsRune(first, rune(s[0])) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') })
}

// readMembers reads the members of an object. Keys outside known, if any, are errors. Null has no members.
func readMembers(raw json.RawMessage, at []string, known ...string) (map[string]json.RawMessage, error) {
	if isNull(raw) {
		return nil, nil
	}
	var out map[string]json.RawMessage
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, readError(at, "want an object")
	}
	for _, key := range slices.Sorted(maps.Keys(out)) {
		if len(known) > 0 && !slices.Contains(known, key) {
			return nil, readError(childPath(at, key), "is not known, want %s", strings.Join(known, ", "))
		}
	}
	return out, nil
}

func readText(raw json.RawMessage, at []string) (s string, err error) {
	if isNull(raw) || json.Unmarshal(raw, &s) != nil {
		return "", readError(at, "want a string")
	}
	return s, nil
}

// readTexts reads a list of strings; nil if there is none.
func readTexts(raw json.RawMessage, at []string) ([]string, error) {
	if isNull(raw) {
		return nil, nil
	}
	var list []*string
	if json.Unmarshal(raw, &list) != nil || slices.Contains(list, nil) {
		return nil, readError(at, "want a list of strings")
	}
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, *s)
	}
	return out, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null" }

func childPath(at []string, key string) []string { return append(slices.Clip(at), key) }

func readError(at []string, format string, args ...any) error {
	return &ReadError{Path: at, Line: 1, Text: fmt.Sprintf(format, args...)}
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
