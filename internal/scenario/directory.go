package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// directory is people.yaml: the people whom channels reach, and the failures of channels.
type directory struct {
	people []people.Person
	fails  map[string]int // by channel: the number of first messages that are lost
}

// The channels of a scenario. A channel reaches people with an address of its kind. Slack messages can be updated.
const (
	emailChannel = "email"
	slackChannel = "slack"
)

// directoryForm is an element of people.yaml: a person, or a failing channel.
type directoryForm struct {
	people.Person
	Channel string `json:"channel"`
	Fails   int    `json:"fails"`
}

func (s *Scenario) loadDirectory(files map[string]section) {
	f, ok := files[directoryFile]
	if !ok {
		return
	}
	list, err := agentfile.ParseList(s.archive, f.padded())
	s.add(err)
	s.directory = &directory{fails: map[string]int{}}
	for _, item := range list {
		var form directoryForm
		if !s.decodeItem(item, &form) {
			continue
		}
		bad := func(key, format string, args ...any) { s.at(item.Line, joinPath(item.Key, key), format, args...) }
		unknown := func(channel string) bool { return channel != emailChannel && channel != slackChannel }
		who, err := policy.ParsePrincipal(strings.Join(append([]string{form.ID}, form.Groups...), ","))
		p := form.Person
		p.ID, p.Groups = who.ID, who.Groups
		switch i := slices.IndexFunc(p.Notify, unknown); {
		case form.Channel != "" && unknown(form.Channel):
			bad("channel", "got %q, want email or slack", form.Channel)
		case form.Channel != "":
			s.directory.fails[form.Channel] = form.Fails
		case err != nil:
			bad("id", "want user:NAME, and group:NAME in groups")
		case i >= 0:
			bad("notify", "got %q, want email or slack", p.Notify[i])
		default:
			s.directory.people = append(s.directory.people, p)
		}
	}
}

// newNotifier returns the notifier of the scenario's people; nil = nobody is notified.
func (s *simulation) newNotifier() *people.Notifier {
	if !s.scenario.notifies {
		return nil
	}
	n := &people.Notifier{}
	if d := s.scenario.directory; d != nil {
		n.Directory = people.NewBook(tenant, d.people...)
		for _, name := range []string{emailChannel, slackChannel} {
			n.Channels = append(n.Channels, &fakeChannel{sim: s, name: name, fails: d.fails[name]})
		}
	}
	return n
}

// hasDueWork reports whether a reminder or escalation is due, now or later, and a timer is set for it. After a crash
// the work may have no timer: it then waits for the next process that starts.
func (s *simulation) hasDueWork() bool {
	if !s.scenario.notifies || s.clock.Timers() == 0 {
		return false
	}
	_, due, _ := (&people.Notifier{Table: s.table}).NextDue(context.Background())
	return due
}

// notification is one message as want.json has it.
type notification struct {
	To       string          `json:"to"`
	Occasion people.Occasion `json:"occasion"`
	Channel  string          `json:"channel"`
}

type fakeChannel struct {
	sim   *simulation
	name  string
	fails int
}

func (c *fakeChannel) Name() string { return c.name }

func (c *fakeChannel) Reaches(p people.Person) bool {
	return c.name == emailChannel && p.Email != "" || c.name == slackChannel && p.Slack != ""
}

func (c *fakeChannel) Send(ctx context.Context, m people.Message) (string, error) {
	call := fault.Call{Port: "channel.Send", Target: c.name + " " + m.To.ID}
	return fault.Result(ctx, c.sim.injector.Do, call, func() (string, error) {
		if c.fails > 0 {
			c.fails--
			return "", errors.New("the channel is down")
		}
		if c.record(m); c.name == slackChannel {
			return fmt.Sprint(len(c.sim.notifications)), nil
		}
		return "", nil
	})
}

func (c *fakeChannel) Update(ctx context.Context, _ string, m people.Message) error {
	return c.sim.injector.Do(ctx, fault.Call{Port: "channel.Update", Target: c.name + " " + m.To.ID}, func() error {
		c.record(m)
		return nil
	})
}

func (c *fakeChannel) record(m people.Message) {
	c.sim.notifications = append(c.sim.notifications, notification{m.To.ID, m.Occasion, c.name})
}

// checkNotifiedAtLeast compares the notifications of a disturbed simulation, in any order: each wanted one was sent at
// least as often, and no other.
func (s *simulation) checkNotifiedAtLeast(raw json.RawMessage) bool {
	var wanted []notification
	if json.Unmarshal(raw, &wanted) != nil {
		return false
	}
	fits := func(w, g notification) bool {
		return w.To == g.To && w.Occasion == g.Occasion && (w.Channel == "" || w.Channel == g.Channel)
	}
	for _, g := range s.notifications {
		if !slices.ContainsFunc(wanted, func(w notification) bool { return fits(w, g) }) {
			s.addFailure("notified", fmt.Sprint(g), "no such message")
		}
	}
	for _, w := range wanted {
		want, got := 0, 0
		for _, o := range wanted {
			if o == w {
				want++
			}
		}
		for _, g := range s.notifications {
			if fits(w, g) {
				got++
			}
		}
		if got < want {
			s.addFailure("notified", fmt.Sprintf("%d of %v", got, w), fmt.Sprintf("at least %d", want))
		}
	}
	return true
}
