package agentfile

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
)

// inert is a key of the fixed form that nothing reads yet. It may be written with a value that is in force anyway.
type inert struct {
	inForce []string // as JSON; none = there is no such value
	later   []string // words that will work one day, for a key whose values are words
}

// inertKeys holds every key of interfaces.md, section 2, that is not read, by path; [] stands for any index.
//
// In force is what the runtime does, not what a preset's table promises: no guards, no window, no truncation.
// Values that only tune a feature which is off (analysis under text: final, xml under dialect: native, the orchestrator's
// numbers) are in force at their defaults.
var inertKeys = map[string]inert{
	"permission.rules[].quorum":   {inForce: []string{`1`}},
	"permission.rules[].fourEyes": {inForce: []string{`false`}},
	"permission.rules[].remind":   {},
	"permission.rules[].escalate": {},
}

var index = regexp.MustCompile(`\[\d+\]`)

// unread deals with a key that has no reader in its mapping.
func (r *reader) unread(parent string, f field, readers map[string]read) {
	pattern := index.ReplaceAllString(f.path, "[]")
	if key, ok := inertKeys[pattern]; ok {
		r.inert(f, key)
		return
	}
	if len(inertChildren(pattern)) > 0 {
		r.mapping(f, nil)
		return
	}
	known := append(slices.Collect(maps.Keys(readers)), inertChildren(index.ReplaceAllString(parent, "[]"))...)
	slices.Sort(known)
	r.add(f.path, "got an unknown key, want one of "+strings.Join(slices.Compact(known), ", "))
}

// inertChildren names the keys of the table that are right in path.
func inertChildren(path string) []string {
	var names []string
	for key := range inertKeys {
		rest, ok := strings.CutPrefix(key, path)
		if ok && path != "" {
			rest, ok = strings.CutPrefix(rest, ".")
		}
		if name, _, _ := strings.Cut(rest, "."); ok && !strings.HasSuffix(name, "[]") {
			names = append(names, name)
		}
	}
	return names
}

// inert accepts the value that is in force anyway and refuses every other.
func (r *reader) inert(f field, key inert) {
	if slices.ContainsFunc(key.inForce, f.equals) || r.told(f.path) {
		return
	}
	if len(key.inForce) == 0 {
		r.add(f.path, "not supported yet")
		return
	}
	want := strings.Trim(key.inForce[0], `"`)
	got := string(f.kind)
	if key.later != nil || f.kind == kindNumber || f.kind == kindBool {
		got = f.word()
	}
	if f.kind == kindOf(key.inForce[0]) && (key.later == nil || slices.Contains(key.later, f.node.text)) {
		got += ", which is not supported yet;"
	} else {
		got += ","
	}
	r.add(f.path, fmt.Sprintf("got %s want %s", got, cmp.Or(want, `""`)))
}

// equals compares with a value of the table; numbers by value, so 0.0 is 0.
func (n *node) equals(want string) bool {
	if n.kind == kindNumber && kindOf(want) == kindNumber {
		c, err := agent.CompareNumbers(n.text, want)
		return err == nil && c == 0
	}
	return string(n.json()) == want
}

// kindOf tells the kind of a value of the table.
func kindOf(json string) kind {
	switch json[0] {
	case '"':
		return kindString
	case '[':
		return kindList
	case '{':
		return kindMapping
	case 't', 'f':
		return kindBool
	case 'n':
		return kindMapping // what is null now will be a mapping
	}
	return kindNumber
}
