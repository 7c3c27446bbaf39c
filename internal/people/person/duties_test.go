package person_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

const day = 24 * time.Hour

var (
	ctx   = context.Background()
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ana   = agent.Principal{ID: "user:ana", Groups: []string{"group:finance", "group:operators"}}
	ben   = agent.Principal{ID: "user:ben", Groups: []string{"group:guests"}}
	carl  = agent.Principal{ID: "user:carl"}
	errUp = errors.New("directory is away")
)

// to is a duty for so long, from so much later.
func to(id string, from, until time.Duration) person.Duty {
	return person.Duty{To: id, From: start.Add(from), Until: start.Add(until)}
}

// acting are those in whose place p decides at that time, each as it is written.
func acting(t require.TestingT, s person.Duties, p agent.Principal, at time.Duration) []string {
	list, err := s.ActsFor(ctx, "acme", p, start.Add(at))
	require.NoError(t, err)
	out := []string{}
	for _, g := range list {
		out = append(out, g.String())
	}
	return out
}

func TestA15DutiesHoldWithinTheirDates(t *testing.T) {
	s := person.Duties{Table: memory.New()}
	d, err := s.Give(ctx, "acme", ana, to("user:ben", day, 3*day), start)
	require.NoError(t, err)
	require.Equal(t, ana.Groups, d.Groups)
	for at, want := range map[time.Duration][]string{
		0: {}, day - 1: {}, day: {ana.String()}, 3*day - 1: {ana.String()}, 3 * day: {}, 300 * day: {},
	} {
		require.Equal(t, want, acting(t, s, ben, at), at)
		require.Empty(t, acting(t, s, ana, at), "nobody decides for the one who decides for them")
		require.Empty(t, acting(t, s, carl, at))
	}
	other, err := s.ActsFor(ctx, "other", ben, start.Add(2*day))
	require.NoError(t, err)
	require.Empty(t, other, "a duty is of its tenant")
	none, err := s.ActsFor(ctx, "acme", agent.Principal{ID: "group:x", Groups: []string{"user:ben"}}, start.Add(2*day))
	require.NoError(t, err)
	require.Empty(t, none, "only a person has one")
}

// What a person was given they cannot hand on: carl decides for ben, and not for ana, for whom ben decides.
func TestA15DutiesAreNotHandedOn(t *testing.T) {
	s := person.Duties{Table: memory.New()}
	for by, d := range map[string]person.Duty{ana.String(): to("user:ben", 0, 9*day), ben.String(): to("user:carl", 0, 9*day)} {
		p, err := agent.ParsePrincipal(by)
		require.NoError(t, err)
		_, err = s.Give(ctx, "acme", p, d, start)
		require.NoError(t, err)
	}
	require.Equal(t, []string{ana.String()}, acting(t, s, ben, day))
	require.Equal(t, []string{ben.String()}, acting(t, s, carl, day))
}

func TestA15DutiesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		by   agent.Principal
		duty person.Duty
		want string
	}{
		"to oneself":      {ana, to("user:ana", 0, day), "to: got user:ana, want somebody else"},
		"to a group":      {ana, to("group:finance", 0, day), "to: got \"group:finance\", want user:NAME"},
		"to two":          {ana, to("user:ben,user:carl", 0, day), "want user:NAME"},
		"to nobody":       {ana, to("", 0, day), "want user:NAME"},
		"by a group":      {agent.Principal{ID: "group:finance"}, to("user:ben", 0, day), "is no person"},
		"by nobody":       {agent.Principal{}, to("user:ben", 0, day), "is no person"},
		"over before":     {ana, to("user:ben", -2*day, -day), "until: got"},
		"over now":        {ana, to("user:ben", -2*day, 0), "until: got"},
		"backwards":       {ana, to("user:ben", 2*day, day), "until: got"},
		"for no time":     {ana, to("user:ben", day, day), "until: got"},
		"too long":        {ana, to("user:ben", 0, person.MaxDuty+time.Millisecond), "want at most 90 days after from"},
		"too far ahead":   {ana, to("user:ben", person.MaxDuty+time.Millisecond, person.MaxDuty+day), "from: got"},
		"without an end":  {ana, person.Duty{To: "user:ben", From: start}, "until: got"},
		"a note too long": {ana, func() person.Duty { d := to("user:ben", 0, day); d.Note = strings.Repeat("é", 501); return d }(), "note: got 501 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			s := person.Duties{Table: memory.New()}
			_, err := s.Give(ctx, "acme", c.by, c.duty, start)
			var refused *person.RefusedError
			require.ErrorAs(t, err, &refused)
			require.Contains(t, err.Error(), c.want)
			require.Empty(t, acting(t, s, ben, 0))
		})
	}
	s := person.Duties{Table: memory.New()}
	_, err := s.Give(ctx, "acme", ana, to("user:ben", 0, person.MaxDuty), start)
	require.NoError(t, err, "the longest is taken")
}

// No two at once exceed the bound, and what is over makes room.
func TestA15DutiesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := person.Duties{Table: memory.New()}
		var wg sync.WaitGroup
		for i := range person.MaxDuties + 5 {
			wg.Go(func() {
				for {
					_, err := s.Give(ctx, "acme", ana, to(fmt.Sprintf("user:u%d", i), 0, day), start)
					if !errors.Is(err, store.ErrConflict) {
						return
					}
				}
			})
		}
		wg.Wait()
		open, err := s.Given(ctx, "acme", ana.ID, start)
		require.NoError(t, err)
		require.Len(t, open, person.MaxDuties)
		_, err = s.Give(ctx, "acme", ana, to("user:late", 0, 2*day), start)
		require.ErrorContains(t, err, "20 duties that are not over")
		require.NoError(t, s.End(ctx, "acme", ana, open[0].ID, start))
		_, err = s.Give(ctx, "acme", ana, to("user:late", 0, 2*day), start)
		require.NoError(t, err)
		_, err = s.Give(ctx, "acme", ana, to("user:later", day, 2*day), start.Add(day))
		require.NoError(t, err, "the others are over")
	})
}

func TestA15DutiesEndAtOnce(t *testing.T) {
	for _, ends := range []agent.Principal{ana, ben} {
		s := person.Duties{Table: memory.New()}
		d, err := s.Give(ctx, "acme", ana, to("user:ben", 0, 9*day), start)
		require.NoError(t, err)
		for _, foreign := range []struct {
			tenant string
			by     agent.Principal
			id     string
		}{{"acme", carl, d.ID}, {"other", ana, d.ID}, {"acme", ana, "dnone"}, {"acme", agent.Principal{}, d.ID}} {
			require.ErrorIs(t, s.End(ctx, foreign.tenant, foreign.by, foreign.id, start), person.ErrNoDuty)
		}
		require.Len(t, acting(t, s, ben, day), 1)
		for range 2 {
			require.NoError(t, s.End(ctx, "acme", ends, d.ID, start.Add(day)), "to end it again is no error")
		}
		require.Empty(t, acting(t, s, ben, day))
		open, err := s.Given(ctx, "acme", ana.ID, start)
		require.NoError(t, err)
		require.Empty(t, open)

		again, err := s.Give(ctx, "acme", ana, to("user:ben", 0, 9*day), start.Add(2*day))
		require.NoError(t, err)
		require.Equal(t, d.ID, again.ID)
		require.Len(t, acting(t, s, ben, 3*day), 1, "it may be given again")
		once, err := s.Given(ctx, "acme", ana.ID, start.Add(2*day))
		require.NoError(t, err)
		require.Len(t, once, 1)
	}
}

// What is handed over is the giver's right as it was, and at most as it is.
func TestA15TheSmallerRightWins(t *testing.T) {
	given := ana.Groups
	for name, c := range map[string]struct {
		dir  person.Directory
		want []string
	}{
		"no directory":                  {nil, given},
		"the directory knows others":    {book(t, `{"tenants": {"acme": {"user:ben": ["group:bosses"]}}}`), given},
		"the same":                      {book(t, `{"tenants": {"acme": {"user:ana": ["group:operators", "group:finance"]}}}`), given},
		"she has left one":              {book(t, `{"tenants": {"acme": {"user:ana": ["group:finance"]}}}`), []string{"group:finance"}},
		"she has left all":              {book(t, `{"tenants": {"acme": {"user:ana": []}}}`), nil},
		"she is in another since":       {book(t, `{"tenants": {"acme": {"user:ana": ["group:finance", "group:operators", "group:bosses"]}}}`), given},
		"another tenant knows her less": {book(t, `{"tenants": {"other": {"user:ana": []}}}`), given},
	} {
		t.Run(name, func(t *testing.T) {
			s := person.Duties{Table: memory.New(), Directory: c.dir}
			_, err := s.Give(ctx, "acme", ana, to("user:ben", 0, day), start)
			require.NoError(t, err)
			list, err := s.ActsFor(ctx, "acme", ben, start)
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, ana.ID, list[0].ID)
			require.ElementsMatch(t, c.want, list[0].Groups)
		})
	}
	s := person.Duties{Table: memory.New(), Directory: away{}}
	_, err := s.Give(ctx, "acme", ana, to("user:ben", 0, day), start)
	require.NoError(t, err)
	list, err := s.ActsFor(ctx, "acme", ben, start)
	require.ErrorIs(t, err, errUp)
	require.Empty(t, list, "it fails closed")
}

// away is a directory that does not answer.
type away struct{ *person.Book }

func (away) Person(context.Context, string, string) (person.Person, bool, error) {
	return person.Person{}, false, errUp
}

// Whatever is given and ended in whatever order, who decides for whom is what a list of the duties says.
func TestDutiesAreWhatWasGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := person.Duties{Table: memory.New()}
		type known struct {
			person.Duty
			ended bool
		}
		var all []known
		now := time.Duration(0)
		people := []agent.Principal{ana, ben, carl}
		one := rapid.SampledFrom(people)
		t.Repeat(map[string]func(*rapid.T){
			"give": func(t *rapid.T) {
				by, who := one.Draw(t, "by"), one.Draw(t, "to")
				from := now + time.Duration(rapid.IntRange(-2, 3).Draw(t, "from"))*day
				d, err := s.Give(ctx, "acme", by, to(who.ID, from, from+time.Duration(rapid.IntRange(1, 4).Draw(t, "days"))*day), start.Add(now))
				if err == nil {
					all = append(all, known{Duty: d})
				}
			},
			"end": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				d, by := rapid.SampledFrom(all).Draw(t, "duty"), one.Draw(t, "by")
				err := s.End(ctx, "acme", by, d.ID, start.Add(now))
				require.Equal(t, (by.ID == d.By || by.ID == d.To) && !start.Add(now).After(d.Until), err == nil, "%v", err)
				for i := range all {
					if err == nil && all[i].ID == d.ID {
						all[i].ended = true
					}
				}
			},
			"wait": func(t *rapid.T) { now += time.Duration(rapid.IntRange(0, 36).Draw(t, "hours")) * time.Hour },
			"": func(t *rapid.T) {
				at := start.Add(now)
				for _, p := range people {
					want := map[string]bool{}
					for _, d := range all {
						if d.To == p.ID && !d.ended && !at.Before(d.From) && at.Before(d.Until) {
							want[d.By] = true
						}
					}
					got, err := s.ActsFor(ctx, "acme", p, at)
					require.NoError(t, err)
					require.Len(t, got, len(want))
					for _, g := range got {
						require.True(t, want[g.ID])
					}
				}
			},
		})
	})
}

// TestA15WhoDecidesForAnotherIsTold: within the dates, once, and with nobody behind them.
func TestA15WhoDecidesForAnotherIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		now := c.Now()
		s := person.Duties{Table: memory.New()}
		dir := person.WithDuties(book(t, `{"tenants": {"acme": {"user:ana": ["group:finance"], "user:ben": null, "user:carl": null}}}`), s, c)
		for by, who := range map[string]string{"user:ana": "user:ben", "user:ben": "user:carl", "user:gone": "user:carl"} {
			_, err := s.Give(ctx, "acme", agent.Principal{ID: by}, person.Duty{To: who, From: now.Add(day), Until: now.Add(2 * day)}, now)
			require.NoError(t, err)
		}
		_, err := s.Give(ctx, "acme", ana, person.Duty{To: "user:unknown", From: now, Until: now.Add(2 * day)}, now)
		require.NoError(t, err)
		for _, want := range []map[string][]string{
			{"group:finance": {"user:ana"}, "user:gone": {}},
			{"group:finance": {"user:ana", "user:ben"}, "group:finance,user:ben": {"user:ana", "user:ben", "user:carl"}, "user:gone": {"user:carl"}},
			{"group:finance": {"user:ana"}},
		} {
			for principals, people := range want {
				list, err := dir.Members(ctx, "acme", strings.Split(principals, ","))
				require.NoError(t, err)
				require.Equal(t, people, ids(list), principals)
			}
			time.Sleep(day)
		}
	})
}
