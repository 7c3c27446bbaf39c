package mask

import (
	"slices"
	"strings"
)

// markSecrets says of a value, and of all within it, what is masked: what the schema marks, and below it every value
// that has no members; texts behind a name that says so, and in a list behind one; and what has the form of a secret. A
// number, boolean or null behind such a name counts or switches something more often than it is a secret. An object is
// never masked as a whole, and no name masks what is in one: its members have names of their own.
//
// name is the name that the value stands behind, why the reason for which all of it is masked; "" = there is none.
func markSecrets(v *Value, m marks, name string, why Reason) {
	if m.secret() {
		why = BySchema
	}
	switch v.Kind {
	case String:
		v.markText(name, why)
	case Object:
		for _, member := range v.Members {
			under := why
			if under != BySchema {
				under = ""
			}
			if under == "" && SecretName(member.Key) {
				under = ByName
			}
			markSecrets(member.Value, m.member(member.Key), member.Key, under)
		}
	case Array:
		for i, member := range v.Members {
			markSecrets(member.Value, m.element(i), name, why)
		}
	default:
		if why == BySchema {
			v.Secret = why
		}
	}
}

// markText judges a text. Whoever writes the schema knows that its values are secrets, spaces and all, but not what a
// shell would run. Whoever writes the text has chosen its names: behind them only what cannot be anything else is
// masked.
func (v *Value) markText(name string, why Reason) {
	whole := Range{0, len(v.Text)}
	switch {
	case v.Text == "":
	case why == BySchema && !isCommand(v.Text), why == ByName && isOpaque(v.Text):
		v.Secret, v.Hidden = why, []Range{whole}
	default:
		v.Hidden = Secrets(v.Text)
		if why == ByName && isHeader(strings.ToLower(name)) { // Authorization, Cookie and others: read it with its name
			before, f := name+": ", finder{text: v.Text, found: v.Hidden}
			for _, r := range Secrets(before + v.Text) {
				if r.From >= len(before) {
					f.hide(r.From-len(before), r.To-len(before))
				}
			}
			v.Hidden = f.merged()
		}
		if slices.Equal(v.Hidden, []Range{whole}) {
			v.Secret = ByForm
		}
	}
}

// isCommand reports whether a text reads like a command with more than words in it: one that is put in place of
// something, or that stands behind another.
func isCommand(s string) bool {
	for _, sign := range []string{"$(", "${", "`", "<(", ">("} {
		if strings.Contains(s, sign) {
			return true
		}
	}
	for i := range len(s) {
		beside := i > 0 && isBlank(s[i-1]) || i+1 < len(s) && isBlank(s[i+1])
		if beside && strings.IndexByte(";|&<>", s[i]) >= 0 {
			return true
		}
	}
	return false
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
