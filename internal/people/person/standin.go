package person

import (
	"context"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/store"
)

// standing is a Directory in which those who decide for somebody are told as well.
type standing struct {
	Directory
	duties Duties
	clock  clock.Clock
}

// WithDuties is dir, where whoever decides for one of the Members at that time is one as well, if dir knows them. Who decides for those is not.
func WithDuties(dir Directory, d Duties, c clock.Clock) Directory { return standing{dir, d, c} }

func (d standing) Members(ctx context.Context, tenant string, principals []string) ([]Person, error) {
	list, err := d.Directory.Members(ctx, tenant, principals)
	if err != nil {
		return nil, err
	}
	now, seen := d.clock.Now(), map[string]bool{}
	for _, p := range list {
		seen[p.ID] = true
	}
	givers := slices.DeleteFunc(slices.Clone(principals), func(id string) bool { return !isUser(id) || seen[id] }) // whom dir does not know
	for _, p := range list {
		givers = append(givers, p.ID)
	}
	for _, by := range givers {
		others, err := d.deputies(ctx, tenant, by, now, seen)
		if err != nil {
			return nil, err
		}
		list = append(list, others...)
	}
	slices.SortFunc(list, byID)
	return list, nil
}

// deputies are those who decide for a person and are not seen yet.
func (d standing) deputies(ctx context.Context, tenant, by string, now time.Time, seen map[string]bool) ([]Person, error) {
	given, err := d.duties.Given(ctx, tenant, by, now)
	if _, err = store.Spared(err); err != nil { // one that cannot be read is nobody's
		return nil, err
	}
	var list []Person
	for _, duty := range given {
		if !duty.holds(now) || seen[duty.To] {
			continue
		}
		seen[duty.To] = true
		p, known, err := d.Directory.Person(ctx, tenant, duty.To)
		if err != nil {
			return nil, err
		}
		if known {
			list = append(list, p)
		}
	}
	return list, nil
}
