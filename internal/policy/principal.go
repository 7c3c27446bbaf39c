package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/run"
)

// Principal is who acts: one person, and the groups they are in. The zero Principal may decide nothing.
type Principal struct {
	ID     string   // user:ana; canonical ids are compared, never spellings of an e-mail address
	Groups []string // group:finance
}

// MayDecide reports whether p is among the approvers, by id or by group. It fails closed (A9): no approvers means
// nobody, and a principal without a well-formed user id is nobody.
func MayDecide(approvers []string, p Principal) bool {
	if !run.IsPrincipal("user:", p.ID) {
		return false
	}
	return slices.Contains(approvers, p.ID) || slices.ContainsFunc(p.Groups, func(g string) bool {
		return run.IsPrincipal("group:", g) && slices.Contains(approvers, g)
	})
}

// ParsePrincipal reads a principal as the command line takes it: one user:NAME and any number of group:NAME, in any
// order, separated by commas.
func ParsePrincipal(s string) (Principal, error) {
	var p Principal
	for part := range strings.SplitSeq(s, ",") {
		switch {
		case run.IsPrincipal("group:", part):
			p.Groups = append(p.Groups, part)
		case run.IsPrincipal("user:", part) && p.ID == "":
			p.ID = part
		default:
			return Principal{}, fmt.Errorf("parse principal %q: want one user:NAME and group:NAME, separated by commas", s)
		}
	}
	if p.ID == "" {
		return Principal{}, fmt.Errorf("parse principal %q: want a user:NAME", s)
	}
	return p, nil
}

// String is the form ParsePrincipal reads.
func (p Principal) String() string { return strings.Join(append([]string{p.ID}, p.Groups...), ",") }
