package person

import (
	"context"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
)

// Preferences is what a person has said of how they want to be told. The zero Preferences say nothing: it is as the directory has it.
type Preferences struct {
	Notify []string `json:"notify"` // the channels, in order: email, slack; nil = as the directory has it, empty = none
}

func preferencesKey(tenant, id string) store.Key {
	return store.Key{PK: "T#" + tenant + "#PERSON#" + id, SK: "P"}
}

// ReadPreferences reads consistently what a person has said.
func ReadPreferences(ctx context.Context, t store.Table, tenant, id string) (Preferences, error) {
	it, found, err := t.Get(ctx, preferencesKey(tenant, id))
	if err != nil || !found {
		return Preferences{}, wrapped(err, "read preferences of %s", id)
	}
	var p Preferences
	if err := agent.ReadView("preferences", it.Body, &p); err != nil {
		return Preferences{}, wrapped(&store.DamagedError{Key: it.Key, Err: err}, "read preferences of %s", id)
	}
	for _, name := range p.Notify {
		if name != Email && name != Slack {
			err = store.Unreadable(it.Key, agent.UnknownWord("notify", name, Email+", "+Slack))
			return Preferences{}, wrapped(err, "read preferences of %s", id)
		}
	}
	if problem := checkChannels(p.Notify); problem != "" {
		return Preferences{}, wrapped(store.Damaged(it.Key, "notify: %s", problem), "read preferences of %s", id)
	}
	return p, nil
}

// Check says why preferences are not taken, as a *RefusedError.
func (p Preferences) Check() error {
	if problem := checkChannels(p.Notify); problem != "" {
		return refuse("notify", "%s", problem)
	}
	return nil
}

// WritePreferences keeps what by says of themself, in place of what they said before. By comes from what authenticated the person. The error is
// a *RefusedError where it is not taken.
func WritePreferences(ctx context.Context, t store.Table, tenant string, by agent.Principal, p Preferences) error {
	if !isUser(by.ID) {
		return refuse("notify", "%q is no person", agent.Bounded(by.ID))
	}
	if err := p.Check(); err != nil {
		return err
	}
	body, err := agent.MarshalVerbatim(p)
	if err != nil {
		return fmt.Errorf("marshal preferences of %s: %w", by.ID, err)
	}
	err = t.Write(ctx, store.Op{Kind: store.Put, Item: store.Item{Key: preferencesKey(tenant, by.ID), Body: body}})
	return wrapped(err, "write preferences of %s", by.ID)
}

// wrapped says what was being done when err came; nil where none did.
func wrapped(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// preferring is a Directory whose people are told as they want to be.
type preferring struct {
	Directory
	table store.Table
}

// WithPreferences is dir with what people have said in place of what it has of how they are told.
func WithPreferences(dir Directory, t store.Table) Directory { return preferring{dir, t} }

func (d preferring) Person(ctx context.Context, tenant, id string) (Person, bool, error) {
	p, found, err := d.Directory.Person(ctx, tenant, id)
	if err == nil && found {
		err = d.prefer(ctx, tenant, &p)
	}
	return p, found, err
}

func (d preferring) Members(ctx context.Context, tenant string, principals []string) ([]Person, error) {
	list, err := d.Directory.Members(ctx, tenant, principals)
	for i := range list {
		if err == nil {
			err = d.prefer(ctx, tenant, &list[i])
		}
	}
	return list, err
}

func (d preferring) Slack(ctx context.Context, team, member string) (string, Person, bool, error) {
	tenant, p, found, err := d.Directory.Slack(ctx, team, member)
	if err == nil && found {
		err = d.prefer(ctx, tenant, &p)
	}
	return tenant, p, found, err
}

// prefer leaves it as the directory has it where what was said cannot be read: a request that reaches nobody is worse than one told on another channel.
func (d preferring) prefer(ctx context.Context, tenant string, p *Person) error {
	said, err := ReadPreferences(ctx, d.table, tenant, p.ID)
	if store.Unread(err) {
		return nil
	}
	if err == nil && said.Notify != nil {
		p.Notify = said.Notify
	}
	return err
}
