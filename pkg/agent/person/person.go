// Package person knows the people who decide: the groups they are in, where they are reached, and who decides for them meanwhile.
package person

import "context"

// Person is one who may be an approver.
type Person struct {
	ID     string   // user:ana
	Groups []string // group:finance
	Name   string   // for people; "" = the id
	Email  string   // "" = none
	Slack  string   // the member's id in the workspace, as U012ABCDEF; "" = none
	Notify []string // the channels to use, in order: email, slack; nil = every one that reaches them, empty = none
}

// Directory finds people. Safe for concurrent use.
type Directory interface {
	// Person finds one by id; false where the tenant has nobody of that id.
	Person(ctx context.Context, tenant, id string) (Person, bool, error)
	// Members are the people of these principals, each once, sorted by id: a user stands for themself, a group for who is in it. Whoever the
	// directory does not know is left out.
	Members(ctx context.Context, tenant string, principals []string) ([]Person, error)
	// Slack finds who a workspace's member is; false where nobody is.
	Slack(ctx context.Context, team, member string) (tenant string, p Person, found bool, err error)
}
