package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// town is people.yaml: the people whom channels reach, and what goes wrong with those channels.
type town struct {
	people []person.Person
	fails  map[string]int // by channel: its first so many messages do not get through
}

// The channels of a scenario: whoever has an address of theirs is reached, and slack's messages can be updated.
const (
	emailChannel = "email"
	slackChannel = "slack"
)

// townForm is an element of people.yaml: a person, or what is wrong with a channel.
type townForm struct {
	ID      string    `json:"id"`
	Groups  []string  `json:"groups"`
	Name    string    `json:"name"`
	Email   string    `json:"email"`
	Slack   string    `json:"slack"`
	Notify  *[]string `json:"notify"`
	Channel string    `json:"channel"`
	Fails   int       `json:"fails"`
}

// loadTown reads people.yaml.
func (s *Scenario) loadTown(files map[string]section, ps *problems) {
	f, ok := files[townFile]
	if !ok {
		return
	}
	list, err := agentfile.ParseList(s.archive, f.padded())
	ps.add(err)
	s.town = &town{fails: map[string]int{}}
	for _, item := range list {
		var form townForm
		if err := (section{}).decode(item.JSON, 0, &form); err != nil {
			p, _ := err.(agentfile.Problem) //nolint:errorlint // decode makes nothing else
			ps.add(agentfile.Problem{File: s.archive, Line: item.Line, Key: under(item.Key, p.Key), Text: p.Text})
			continue
		}
		if key, text := s.town.add(form); text != "" {
			ps.add(agentfile.Problem{File: s.archive, Line: item.Line, Key: under(item.Key, key), Text: text})
		}
	}
}

// add takes an element in; text says what is wrong with it.
func (t *town) add(form townForm) (key, text string) {
	channels := []string{emailChannel, slackChannel}
	if form.Channel != "" {
		if !slices.Contains(channels, form.Channel) {
			return "channel", fmt.Sprintf("got %q, want email or slack", form.Channel)
		}
		t.fails[form.Channel] = form.Fails
		return "", ""
	}
	who, err := policy.ParsePrincipal(strings.Join(append([]string{form.ID}, form.Groups...), ","))
	if err != nil {
		return "id", "want user:NAME, and group:NAME in groups"
	}
	p := person.Person{ID: who.ID, Groups: who.Groups, Name: form.Name, Email: form.Email, Slack: form.Slack}
	if form.Notify != nil {
		p.Notify = slices.Concat([]string{}, *form.Notify)
		if i := slices.IndexFunc(p.Notify, func(c string) bool { return !slices.Contains(channels, c) }); i >= 0 {
			return "notify", fmt.Sprintf("got %q, want email or slack", p.Notify[i])
		}
	}
	t.people = append(t.people, p)
	return "", ""
}

// tells reports whether people of the story are told of requests, or others decide them after a while.
func (s *Scenario) tells() bool {
	if s.town != nil || timed(&s.agent) {
		return true
	}
	for _, d := range s.delegates {
		if timed(&d.agent) {
			return true
		}
	}
	return false
}

// timed reports whether one of an agent's rules has something done at a time.
func timed(d *agent.Definition) bool {
	return slices.ContainsFunc(d.Permission.Rules, func(r agent.Rule) bool { return r.Remind > 0 || r.Escalate != nil })
}

// notifier tells the story's people; nil = it has none to tell.
func (s *stage) notifier() *notify.Notifier {
	if !s.scenario.tells() {
		return nil
	}
	n := &notify.Notifier{}
	if t := s.scenario.town; t != nil {
		n.Directory = t
		for _, name := range []string{emailChannel, slackChannel} {
			n.Channels = append(n.Channels, s.faults.Channel(&outbox{stage: s, name: name, fails: t.fails[name]}))
		}
	}
	return n
}

// owes reports whether anything is due about the story's requests, now or later. Where who would have looked then has crashed, it waits for a
// process that begins.
func (s *stage) owes() bool {
	if !s.scenario.tells() || s.clock.Timers() == 0 {
		return false
	}
	p, err := s.table.Query(context.Background(), store.Range{PK: "DUE", Index: true, Limit: 1})
	return err == nil && len(p.Items) > 0
}

// Person implements person.Directory.
func (t *town) Person(_ context.Context, _, id string) (person.Person, bool, error) {
	i := slices.IndexFunc(t.people, func(p person.Person) bool { return p.ID == id })
	if i < 0 {
		return person.Person{}, false, nil
	}
	return t.people[i], true, nil
}

// Members implements person.Directory.
func (t *town) Members(_ context.Context, _ string, principals []string) ([]person.Person, error) {
	var out []person.Person
	for _, p := range t.people {
		if slices.Contains(principals, p.ID) || slices.ContainsFunc(p.Groups, func(g string) bool { return slices.Contains(principals, g) }) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b person.Person) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// Slack implements person.Directory.
func (t *town) Slack(_ context.Context, _, member string) (string, person.Person, bool, error) {
	i := slices.IndexFunc(t.people, func(p person.Person) bool { return p.Slack == member && member != "" })
	if i < 0 {
		return "", person.Person{}, false, nil
	}
	return tenant, t.people[i], true, nil
}

// notified is one message as want.json has it.
type notified struct {
	To       string          `json:"to"`
	Occasion notify.Occasion `json:"occasion"`
	Channel  string          `json:"channel"`
}

// errLost is what a channel says of a message that does not get through.
var errLost = errors.New("the channel is down")

// outbox is a channel that keeps what it carries.
type outbox struct {
	stage *stage
	name  string
	fails int
}

func (o *outbox) Name() string { return o.name }

func (o *outbox) Reaches(p person.Person) bool {
	return o.name == emailChannel && p.Email != "" || o.name == slackChannel && p.Slack != ""
}

func (o *outbox) Send(_ context.Context, m notify.Message) (string, error) {
	if o.fails > 0 {
		o.fails--
		return "", errLost
	}
	o.stage.notified = append(o.stage.notified, notified{m.To.ID, m.Occasion, o.name})
	if o.name != slackChannel {
		return "", nil
	}
	return fmt.Sprint(len(o.stage.notified)), nil
}

func (o *outbox) Update(_ context.Context, _ string, m notify.Message) error {
	o.stage.notified = append(o.stage.notified, notified{m.To.ID, m.Occasion, o.name})
	return nil
}

// relaxedNotified compares messages under a crash, which repeats some and moves others: each that is wanted came as often at least, and no other did.
func (s *stage) relaxedNotified(raw json.RawMessage) bool {
	var wanted []notified
	if json.Unmarshal(raw, &wanted) != nil {
		return false
	}
	fits := func(w notified) func(notified) bool {
		return func(g notified) bool {
			return w.To == g.To && w.Occasion == g.Occasion && (w.Channel == "" || w.Channel == g.Channel)
		}
	}
	for _, g := range s.notified {
		if !slices.ContainsFunc(wanted, func(w notified) bool { return fits(w)(g) }) {
			s.fail(Failure{Path: "notified", Got: fmt.Sprint(g), Want: "no such message"})
		}
	}
	for _, w := range wanted {
		want, got := number(wanted, func(o notified) bool { return o == w }), number(s.notified, fits(w))
		if got < want {
			s.fail(Failure{Path: "notified", Got: fmt.Sprintf("%d of %v", got, w), Want: fmt.Sprintf("at least %d", want)})
		}
	}
	return true
}

// number is how many fit.
func number(all []notified, fits func(notified) bool) (n int) {
	for _, one := range all {
		if fits(one) {
			n++
		}
	}
	return n
}
