package person

import (
	"cmp"
	"context"
	"slices"
)

// Book is a Directory that is read once, as from a file. The zero Book knows nobody.
type Book struct {
	tenants map[string]map[string]Person // by tenant and id
	teams   map[string]string            // the tenant of a workspace
}

// Person finds one by id.
func (b *Book) Person(_ context.Context, tenant, id string) (Person, bool, error) {
	p, ok := b.tenants[tenant][id]
	return p.clone(), ok, nil
}

// Members are the people of these principals.
func (b *Book) Members(_ context.Context, tenant string, principals []string) ([]Person, error) {
	var list []Person
	for id, p := range b.tenants[tenant] {
		if slices.Contains(principals, id) || slices.ContainsFunc(p.Groups, func(g string) bool { return slices.Contains(principals, g) }) {
			list = append(list, p.clone())
		}
	}
	slices.SortFunc(list, byID)
	return list, nil
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

func byID(a, b Person) int { return cmp.Compare(a.ID, b.ID) }

func (p Person) clone() Person {
	p.Groups, p.Notify = slices.Clone(p.Groups), slices.Clone(p.Notify)
	return p
}
