// Package people knows who decides, the groups they are in and where they are reached, and tells them of approval
// requests: new ones, reminders, escalations, questions and answers, and the decision. A message that is lost or sent
// twice does no harm (approvals.md, C3). Pages, mails, messages and terminals lay out the same Document of a request.
//
// A Directory serves two questions: who is told of a request, and who somebody is who comes by a link or from Slack;
// such a person acts with the groups that the directory gives them at that moment. Whoever shows a token of their own
// acts with the groups of the token.
package people

import (
	"cmp"
	"context"
	"slices"

	"github.com/countersign/countersign/internal/policy"
)

// The channels that a person may be told by.
const (
	Email = "email"
	Slack = "slack"
)

// Person is one who may be an approver.
type Person struct {
	ID     string   `json:"id"`               // user:ana
	Groups []string `json:"groups,omitempty"` // group:finance
	Name   string   `json:"name,omitempty"`   // for people; "" = the id
	Email  string   `json:"email,omitempty"`  // "" = none
	Slack  string   `json:"slack,omitempty"`  // the member's id in the workspace, as U012ABCDEF; "" = none
	// the channels to use, in order: email, slack; nil = every one that reaches them, empty = none
	Notify []string `json:"notify,omitempty"`
}

// Principal is the person as one who acts.
func (p Person) Principal() policy.Principal {
	return policy.Principal{ID: p.ID, Groups: slices.Clone(p.Groups)}
}

// Directory finds people. Safe for concurrent use.
type Directory interface {
	// Person finds one by id; false where the tenant has nobody of that id.
	Person(ctx context.Context, tenant, id string) (Person, bool, error)
	// Members are the people of these principals, each once, sorted by id: a user stands for themself, a group for who is
	// in it. Whoever the directory does not know is left out.
	Members(ctx context.Context, tenant string, principals []string) ([]Person, error)
	// Removed reports whether somebody was in the directory and was taken out of it.
	Removed(ctx context.Context, tenant, id string) (bool, error)
	// Slack finds who a workspace's member is; false where nobody is.
	Slack(ctx context.Context, team, member string) (tenant string, p Person, found bool, err error)
}

// Book is a Directory that is read once, as from a file. The zero Book knows nobody.
type Book struct {
	tenants map[string]map[string]Person // by tenant and id
	teams   map[string]string            // the tenant of a workspace
	removed []string                     // the ids of a stored tenant
}

// NewBook makes a Book of one tenant's people.
func NewBook(tenant string, people ...Person) *Book {
	b := &Book{tenants: map[string]map[string]Person{tenant: {}}}
	for _, p := range people {
		b.tenants[tenant][p.ID] = p
	}
	return b
}

// Person implements Directory.
func (b *Book) Person(_ context.Context, tenant, id string) (Person, bool, error) {
	p, ok := b.tenants[tenant][id]
	return p.clone(), ok, nil
}

// Members are the people of these principals.
func (b *Book) Members(_ context.Context, tenant string, principals []string) ([]Person, error) {
	var list []Person
	for id, p := range b.tenants[tenant] {
		if slices.Contains(principals, id) ||
			slices.ContainsFunc(p.Groups, func(g string) bool { return slices.Contains(principals, g) }) {
			list = append(list, p.clone())
		}
	}
	slices.SortFunc(list, byID)
	return list, nil
}

func byID(a, b Person) int { return cmp.Compare(a.ID, b.ID) }

// Removed reports whether somebody was taken out of the directory.
func (b *Book) Removed(_ context.Context, _, id string) (bool, error) {
	return slices.Contains(b.removed, id), nil
}

// Slack finds who a workspace's member is.
func (b *Book) Slack(_ context.Context, team, member string) (string, Person, bool, error) {
	tenant, ok := b.teams[team]
	if !ok || member == "" {
		return "", Person{}, false, nil
	}
	for _, p := range b.tenants[tenant] {
		if p.Slack == member {
			return tenant, p.clone(), true, nil
		}
	}
	return "", Person{}, false, nil
}

func (p Person) clone() Person {
	p.Groups, p.Notify = slices.Clone(p.Groups), slices.Clone(p.Notify)
	return p
}
