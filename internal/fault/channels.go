package fault

import (
	"context"

	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
)

// Channel puts the injector before a channel to people.
func (in *Injector) Channel(next notify.Channel) notify.Channel { return &channel{in, next} }

type channel struct {
	in   *Injector
	next notify.Channel
}

func (c *channel) Name() string { return c.next.Name() }

func (c *channel) Reaches(p person.Person) bool { return c.next.Reaches(p) }

func (c *channel) Send(ctx context.Context, m notify.Message) (ref string, err error) {
	err = c.in.through(ctx, Call{Port: "channel.Send", What: c.Name() + " " + m.To.ID}, func() (err error) {
		ref, err = c.next.Send(ctx, m)
		return err
	})
	return ref, err
}

func (c *channel) Update(ctx context.Context, ref string, m notify.Message) error {
	return c.in.through(ctx, Call{Port: "channel.Update", What: c.Name() + " " + m.To.ID}, func() error { return c.next.Update(ctx, ref, m) })
}
