package agent

import "strings"

// The characters that names are made of. Names are matched by hand: compiling a regular expression for each would be a tenth of a
// function's cold start. A test holds them to those expressions.
const (
	lowercase = "abcdefghijklmnopqrstuvwxyz"
	digits    = "0123456789"
	letters   = lowercase + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// spelled reports whether s is 1 to most characters, the first one of first and all of them of any.
func spelled(s, first, any string, most int) bool {
	return s != "" && len(s) <= most && strings.IndexByte(first, s[0]) >= 0 && strings.Trim(s, any) == ""
}

// ValidTenant reports whether s may name a tenant: ^[a-z0-9][a-z0-9-]{0,39}$.
func ValidTenant(s string) bool { return spelled(s, lowercase+digits, lowercase+digits+"-", 40) }

// ValidAgentName reports whether s may name an agent: ^[a-z][a-z0-9-]{0,39}$.
func ValidAgentName(s string) bool { return spelled(s, lowercase, lowercase+digits+"-", 40) }

const agentNameForm = `^[a-z][a-z0-9-]{0,39}$`

// validWord reports whether s may be the id of a call, or a tool's name to a model: ^[A-Za-z0-9_-]{1,64}$.
func validWord(s string) bool {
	const word = letters + digits + "_-"
	return spelled(s, word, word, 64)
}

// validToolName reports whether s may be a tool's original name: ^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$.
func validToolName(s string) bool {
	const word = letters + digits + "_-"
	for part := range strings.SplitSeq(s, ".") {
		if !spelled(part, word, word, len(part)) {
			return false
		}
	}
	return true
}

// ValidToolName reports whether s may be a tool's original name: ^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$.
func ValidToolName(s string) bool { return validToolName(s) }

// validToolPattern reports whether s may be a pattern over original tool names: ^[A-Za-z0-9_.*-]+$.
func validToolPattern(s string) bool {
	const pattern = letters + digits + "_.*-"
	return spelled(s, pattern, pattern, len(s))
}

// ValidPrincipal reports whether s is user:NAME or group:NAME: ^(user|group):[A-Za-z0-9._@+-]{1,128}$.
func ValidPrincipal(s string) bool { return isPrincipal("user:", s) || isPrincipal("group:", s) }

func isPrincipal(kind, s string) bool {
	const name = letters + digits + "._@+-"
	who, ok := strings.CutPrefix(s, kind)
	return ok && spelled(who, name, name, 128)
}

// ValidDigest reports whether s has the form of a blob's digest: a SHA-256, 64 lower-case hex digits.
func ValidDigest(s string) bool {
	const hex = digits + "abcdef"
	return len(s) == 64 && spelled(s, hex, hex, 64)
}
